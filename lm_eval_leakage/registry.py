"""Registries that map names to probes and statistics: a module registers what it defines, and nothing else lists it.

Other distributions add detectors through an entry point in the group `lm_eval_leakage.detectors`, whose value names
one of their packages. That package is imported at the first lookup of a probe or statistic; if it is broken, only its
own detectors are unavailable.

A detector's id is a short, stable name that people read and type (`max_order`; `max_order:orders=12`;
`outlier:delta=-0.1,orders=paper`; `max_order@option_pairs`; `relative_likelihood:reference=gpt2`) and the key of its
scores in logs. It is the statistic's registered name, the probe if it is not the one that the
statistic is made for, and every parameter of either that differs from its default, so that adding a parameter with a
default changes no id.
"""

from __future__ import annotations

import logging
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
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
            if not item.__module__.startswith(OWN_PREFIX):
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
        return f"{item.__module__}.".startswith(f"{self.name}.")


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


OUTSIDE_ID = MappingProxyType({"in_id": False})  # field metadata: the parameter affects no question's verdict
NAME = re.compile(r"[A-Za-z0-9_.+/-]+")  # of a model; other names are replaced by a digest
REFERENCE = re.compile(r"[:,]reference=[^,]*$")  # `detector_id` writes it last
MOST_CHARACTERS = 24  # of a parameter's value


def detector_id(probe: object, statistic: object, reference: str | None = None) -> str:
    """The id of a probe and statistic with their parameters; scores are comparable only if their ids are equal.

    reference: name of the reference model whose log-likelihoods are subtracted
    """
    who, of_probe = registered_name(type(statistic)), registered_name(type(probe))
    if of_probe != getattr(statistic, "probe", ""):
        who += f"@{of_probe}"
    shown = [f"{name}={value}" for name, value in sorted((_changed(probe) | _changed(statistic)).items())]
    if reference is not None:
        shown.append(f"reference={reference if NAME.fullmatch(reference) else spelled(reference)}")
    return f"{who}:{','.join(shown)}" if shown else who


def without_reference(detector: str) -> str:
    """The id of the same probe and statistic where no other model's log-likelihoods are subtracted."""
    return REFERENCE.sub("", detector)


def spelled(value: object) -> str:
    """A parameter's value as a few characters without spaces or commas; a digest of any other text."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.12g}"
    text = value if isinstance(value, str) else repr(value)
    if NAME.fullmatch(text) and len(text) <= MOST_CHARACTERS:
        return text
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _changed(part: object) -> dict[str, str]:
    """The parameters of a probe or statistic that are not at their defaults."""
    own = fields(part) if is_dataclass(part) and not isinstance(part, type) else ()
    names = [field.name for field in own if field.metadata.get("in_id", True)]
    usual = type(part)()
    return {name: spelled(getattr(part, name)) for name in names if getattr(part, name) != getattr(usual, name)}
