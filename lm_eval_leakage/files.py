"""Files that are written whole or not at all: the one place where the package writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

PART = ".part"  # ends the temporary name of what is being written; no reader of ours looks at such a name
DEVICES = (Path("/dev"), Path("/dev/fd"))


@contextmanager
def whole_binary(file: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only when all of it is on disk: a kill, a full disk or an error inside the block
    leaves the old file, or none. Folders that are missing are made.

    What is no regular file, such as /dev/stdout, is written as it is. Raises OSError where the file cannot be written.
    """
    if _is_device(file):
        with file.open("wb") as stream:
            yield stream
        return
    place = file.resolve()  # a link stays a link
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}{PART}")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_file(file: Path) -> Iterator[TextIO]:
    """A text file (UTF-8), as `whole_binary`. A lone surrogate, which no encoding can write, is replaced by a question
    mark."""
    with whole_binary(file) as stream:
        text = TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        yield text
        text.flush()
        text.detach()


def write_whole(file: Path, text: str) -> None:
    """`text` as a file, by `whole_file`."""
    with whole_file(file) as stream:
        stream.write(text)


def move_whole(finished: Path, folder: Path) -> None:
    """Puts a finished folder in its place in one step, so that a kill never leaves half of one there."""
    beside = folder.with_name(folder.name + PART)
    shutil.rmtree(beside, ignore_errors=True)
    beside.parent.mkdir(parents=True, exist_ok=True)
    to_disk(finished)
    shutil.move(finished, beside)
    beside.rename(folder)


def to_disk(folder: Path) -> None:
    """Has the system write out every file of a folder, which it may else do much later."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def set_aside(place: Path, why: str) -> Path:
    """Renames what is of no use, so that nothing reads it and nothing is lost; an earlier one of that name goes."""
    aside = place.with_name(f"{why}-{place.name}")
    remove_whole(aside)
    return place.rename(aside)


def remove_whole(folder: Path) -> None:
    """A folder that a kill in the middle of its removal leaves under another name, where there is one at all."""
    beside = folder.with_name(folder.name + PART)
    shutil.rmtree(beside, ignore_errors=True)
    if folder.exists():
        folder.rename(beside)
        shutil.rmtree(beside, ignore_errors=True)


def check_writable(place: Path, *, folder: bool = False) -> None:
    """Raises ValueError, with the reason, where a file, or a `folder`, cannot be written at `place`: known before the
    work whose result is written there. Nothing is made."""
    there = place.absolute()
    present = next(path for path in (there, *there.parents) if path.exists())
    if present == there and there.is_dir() != folder:
        is_one, wanted = ("a file", "a folder") if folder else ("a folder", "a file")
        raise ValueError(f"{place} is {is_one}; choose {wanted}")
    if present != there and not present.is_dir():
        raise ValueError(f"{place} cannot be written, since {present} is a file; choose another place")
    holder = there.resolve().parent if there.is_file() else present  # a file is replaced there, not changed
    if not (os.access(present, os.W_OK) and os.access(holder, os.W_OK)):
        raise ValueError(f"{place} cannot be written ({holder} is read-only); choose another place")


def _is_device(file: Path) -> bool:
    """Also /dev/stdout where that is a file: it is the shell's, which has it open."""
    return (file.exists() and not file.is_file()) or file.absolute().parent in DEVICES
