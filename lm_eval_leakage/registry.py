"""Maps names to probes and statistics: each module registers what it defines, and no other list exists.

Other distributions add detectors through an entry point in the group `lm_eval_leakage.detectors`, whose value names
one of their packages. That package is imported at the first lookup of a probe or statistic; if it is broken, only its
own detectors are unavailable.

A detector's id is a short, stable name that people read and type (`max_order`; `max_order:orders=12`;
`outlier:delta=-0.1,orders=paper`; `max_order@option_pairs`; `relative_likelihood:reference=gpt2`) and the key of its
scores in logs. It consists of the statistic's registered name, the probe if it is not the one that the statistic is
made for, and every parameter of either that differs from its default. Adding a parameter with a default therefore
changes no id.
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
OUR_PREFIX = f"{__name__.partition('.')[0]}."
OUTSIDE_ID = MappingProxyType({"in_id": False})  # field metadata: the parameter affects no question's verdict
NAME = re.compile(r"[A-Za-z0-9_.+/-]+")  # of a model; other names are replaced by a digest
REFERENCE = re.compile(r"[:,]reference=[^,]*$")  # `detector_id` writes it last
MOST_CHARACTERS = 24  # of a parameter's value
_name_of: dict[object, str] = {}


def registered_name(item: type) -> str:
    """Return the name under which a class is registered, or the class's name if it is not registered."""
    return _name_of.get(item, item.__name__)


class Registry(Generic[T]):
    """A registry of the named objects that the modules of one package, and of other distributions, define.

    kind: the noun for an object in messages, such as "probe"
    package: the package whose modules are all imported at the first lookup, so that adding a module needs no other
        edit
    """

    _all: ClassVar[list[Registry[Any]]] = []

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._objects: dict[str, T] = {}
        self._all.append(self)

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class by this name. It raises ValueError if the name is taken."""

        def add(item: T) -> T:
            if not item.__module__.startswith(OUR_PREFIX):
                import_whole(self.package)  # first, so that the names of this package are taken
            if name in self._objects:
                raise ValueError(f"the {self.kind} {name!r} is registered twice; give one of them another name")
            self._objects[name] = item
            _name_of[item] = name
            return item

        return add

    def names(self) -> list[str]:
        """Return all names, in alphabetical order."""
        import_whole(self.package)
        _import_detector_packages()
        return sorted(self._objects)

    def get(self, name: str) -> T:
        """Return the object with this name. Raises ValueError, with all names, if there is none."""
        names = self.names()
        if name not in self._objects:
            raise ValueError(f"unknown {self.kind} {name!r}; choose one of: {', '.join(names)}")
        return self._objects[name]

    def _forget(self, package: DetectorPackage) -> None:
        self._objects = {name: item for name, item in self._objects.items() if not package.defines(item)}


def import_whole(package: str) -> None:
    """Import a package and its modules, but not the modules of its sub-packages."""
    for module in pkgutil.iter_modules(import_module(package).__path__):
        if module.name != "__main__":
            import_module(f"{package}.{module.name}")


# ---------------------------------------------------------------------- other distributions


@dataclass(frozen=True)
class DetectorPackage:
    """A package of another distribution that defines detectors.

    name: dotted name of the package
    folder: folder of its modules and its audit templates
    """

    name: str
    folder: Path

    def defines(self, item: object) -> bool:
        """Return whether a class or object comes from this package."""
        return f"{item.__module__}.".startswith(f"{self.name}.")


@cache
def detector_packages() -> tuple[DetectorPackage, ...]:
    """Return the installed detector packages, sorted by name. This call imports none of them."""
    names = sorted({point.value for point in entry_points(group=ENTRY_POINTS)})
    return tuple(package for package in map(_locate, names) if package is not None)


def package_of(item: object) -> DetectorPackage | None:
    """Return the package of another distribution that defines a probe or statistic; None for one of this package."""
    return next((package for package in detector_packages() if package.defines(item)), None)


def unregister(package: DetectorPackage, why: object) -> None:
    """Remove the package's probes and statistics from all registries, and log a warning with the reason."""
    logger.warning("no detector of the package %s is available: %s; fix or uninstall it", package.name, why)
    for registry in Registry._all:
        registry._forget(package)


def _locate(name: str) -> DetectorPackage | None:
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
            unregister(package, repr(error))


def detector_id(probe: object, statistic: object, reference: str | None = None) -> str:
    """Return the id of a probe and statistic with their parameters. Scores are comparable only if their ids are equal.

    reference: name of the reference model whose log-likelihoods are subtracted
    """
    label, probe_name = registered_name(type(statistic)), registered_name(type(probe))
    if probe_name != getattr(statistic, "probe", ""):
        label += f"@{probe_name}"
    parameters = [f"{name}={value}" for name, value in sorted((_changed(probe) | _changed(statistic)).items())]
    if reference is not None:
        parameters.append(f"reference={reference if NAME.fullmatch(reference) else spelled(reference)}")
    return f"{label}:{','.join(parameters)}" if parameters else label


def without_reference(detector: str) -> str:
    """Return the id of the same probe and statistic without a reference model."""
    return REFERENCE.sub("", detector)


def spelled(value: object) -> str:
    """Return a parameter's value as a few characters without spaces or commas; a digest for any other text."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.12g}"
    text = value if isinstance(value, str) else repr(value)
    if NAME.fullmatch(text) and len(text) <= MOST_CHARACTERS:
        return text
    return "#" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _changed(part: object) -> dict[str, str]:
    """Return the parameters of a probe or statistic that differ from their defaults."""
    parameters = fields(part) if is_dataclass(part) and not isinstance(part, type) else ()
    names = [field.name for field in parameters if field.metadata.get("in_id", True)]
    default = type(part)()
    return {name: spelled(getattr(part, name)) for name in names if getattr(part, name) != getattr(default, name)}
