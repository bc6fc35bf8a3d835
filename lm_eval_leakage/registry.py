"""Detectors find their parts by name: a module registers what it defines, nothing else lists it."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")
_name_of: dict[object, str] = {}


def registered_name(item: type) -> str:
    """The name under which a class is registered; its own where it is not."""
    return _name_of.get(item, item.__name__)


class Registry(Generic[T]):
    """The named objects that the modules of one package define.

    kind: what they are called in messages, such as "probe"
    package: imported whole at the first lookup, so that a new module needs no other edit
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._objects: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(item: T) -> T:
            if name in self._objects:
                raise ValueError(f"the {self.kind} {name!r} is registered twice; give one of them another name")
            self._objects[name] = item
            _name_of[item] = name
            return item

        return add

    def names(self) -> list[str]:
        package = import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            import_module(f"{self.package}.{module.name}")
        return sorted(self._objects)

    def get(self, name: str) -> T:
        known = self.names()
        if name not in self._objects:
            raise ValueError(f"unknown {self.kind} {name!r}; choose one of: {', '.join(known)}")
        return self._objects[name]
