"""Finds files in folders, including those behind symbolic links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def files_below(place: Path, on_error: Callable[[OSError], None] | None = None) -> Iterator[Path]:
    """Yield the files in a folder at any depth, and the symbolic links to nothing. Links to folders are followed, each
    folder once, so that loops end.

    on_error: called for a folder that cannot be listed
    """
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, onerror=on_error, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(folder, name) for name in names)
