"""Registries that map names to probes and statistics: a module registers what it defines, and nothing else lists it.

Other distributions add detectors through an entry point in the group `lm_eval_leakage.detectors`, whose value names
one of their packages. That package is imported at the first lookup of a probe or statistic; if it is broken, only its
own detectors are unavailable.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
ENTRY_POINTS = "lm_eval_leakage.detectors"
OWN_PREFIX = f"{__name__.partition('.')[0]}."
_name_of: dict[object, str] = {}


def registered_name(item: type) -> str:
    """The name under which a class is registered, or its own name if it is not registered."""
    return _name_of.get(item, item.__name__)


class Registry(Generic[T]):
    """The named objects that the modules of one package, and of other distributions, define.

    kind: what the objects are called in messages, such as "probe"
    package: all its modules are imported at the first lookup, so that adding a module needs no other edit
    """

    _all: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._objects: dict[str, T] = {}
        self._all.append(self)

    def register(self, name: str) -> Callable[[T], T]:
        def add(item: T) -> T:
            if not _module(item).startswith(OWN_PREFIX):
                import_whole(self.package)  # first, so that our own names are already taken
            if name in self._objects:
                raise ValueError(f"the {self.kind} {name!r} is registered twice; give one of them another name")
            self._objects[name] = item
            _name_of[item] = name
            return item

        return add

    def names(self) -> list[str]:
        import_whole(self.package)
        _import_detector_packages()
        return sorted(self._objects)

    def get(self, name: str) -> T:
        known = self.names()
        if name not in self._objects:
            raise ValueError(f"unknown {self.kind} {name!r}; choose one of: {', '.join(known)}")
        return self._objects[name]

    def _forget(self, package: DetectorPackage) -> None:
        self._objects = {name: item for name, item in self._objects.items() if not package.defines(item)}


def import_whole(package: str) -> None:
    """Imports a package and its modules, but not the modules of its sub-packages."""
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.name != "__main__":
            import_module(f"{package}.{module.name}")


# ---------------------------------------------------------------------- other distributions


@dataclass(frozen=True)
class DetectorPackage:
    """A package of another distribution that defines detectors.

    folder: contains its modules and its audit templates
    """

    name: str
    folder: Path

    def defines(self, item: object) -> bool:
        return f"{_module(item)}.".startswith(f"{self.name}.")


@cache
def detector_packages() -> tuple[DetectorPackage, ...]:
    """The installed detector packages, sorted by name; none is imported by this call."""
    names = sorted({point.value for point in entry_points(group=ENTRY_POINTS)})
    return tuple(package for package in map(_found, names) if package is not None)


def package_of(item: object) -> DetectorPackage | None:
    """The package of another distribution that defines a probe or statistic; None for one of ours."""
    return next((package for package in detector_packages() if package.defines(item)), None)


def leave_out(package: DetectorPackage, why: object) -> None:
    """Removes its probes and statistics from all registries, with a warning."""
    logger.warning("no detector of the package %s is available: %s; fix or uninstall it", package.name, why)
    for registry in Registry._all:
        registry._forget(package)


def _found(name: str) -> DetectorPackage | None:
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            return DetectorPackage(name, Path(spec.submodule_search_locations[0]))
        why = "there is no package of that name"
    except Exception as error:  # find_spec imports the parent package, which may raise anything
        why = repr(error)
    logger.warning("an entry point in %s names %r, which cannot be used: %s", ENTRY_POINTS, name, why)
    return None


@cache
def _import_detector_packages() -> None:
    for package in detector_packages():
        try:
            import_whole(package.name)
        except Exception as error:  # third-party code may raise anything
            leave_out(package, repr(error))


def _module(item: object) -> str:
    return str(getattr(item, "__module__", ""))
