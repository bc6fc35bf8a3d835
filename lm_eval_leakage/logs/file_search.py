"""Finds files in folders, including those behind symbolic links."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from lm_eval_leakage.logs.run import OF_CHECK, REPLACED, RUNS, WORK


def files_below(place: Path, on_error: Callable[[OSError], None] | None = None) -> Iterator[Path]:
    """Yield the files in a folder at any depth, and the symbolic links to nothing. Links to folders are followed, each
    folder once, so that loops end. In the folder of a check, units in progress and replaced ones are left out.

    on_error: called for a folder that cannot be listed
    """
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, onerror=on_error, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        if {*names} >= OF_CHECK:
            folders[:] = [name for name in folders if name not in (WORK, REPLACED)]
        yield from (Path(folder, name) for name in names)


def is_check(folder: Path) -> bool:
    """Return whether a check has written the folder."""
    return all((folder / name).exists() for name in OF_CHECK)


def check_of(file: Path) -> Path | None:
    """Return the folder of the check among whose runs a file is; None if it is of no check."""
    above = (folder.parent for folder in file.absolute().parents if folder.name == RUNS)
    return next(filter(is_check, above), None)
