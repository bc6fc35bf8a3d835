"""Groups items by a key, in the order in which they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Key = TypeVar("Key")
One = TypeVar("One")


def grouped(items: Iterable[One], key: Callable[[One], Key]) -> dict[Key, list[One]]:
    """Return the items by key, in the order in which they come."""
    groups: dict[Key, list[One]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
