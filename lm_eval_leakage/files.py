"""Files that are written whole or not at all: the one place where the package writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

PART = ".part"  # ends the temporary name of a file that is being written; no reader of ours looks at such a name


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """A text file (UTF-8) that takes its name only when all of it is on disk: a kill, a full disk or an error inside
    the block leaves the old file, or none. Folders that are missing are made.

    A lone surrogate, which no encoding can write, is replaced by a question mark. What is no regular file, such as
    /dev/stdout, is written as it is. Raises OSError where the file cannot be written.
    """
    place = file.resolve()  # a link stays a link
    if place.exists() and not place.is_file():
        with place.open("w", encoding="utf-8", errors="replace") as stream:
            yield stream
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}{PART}")
    try:
        with part.open("w", encoding="utf-8", errors="replace", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def write_whole(file: Path, text: str) -> None:
    """`text` as a file, by `whole_file`."""
    with whole_file(file) as stream:
        stream.write(text)
