"""Atomic file writes: a file or folder appears complete or not at all. All output of the package goes through here.

Until it is complete, it has the name of a *part*, which no other write has. Process ids do not tell writers apart on
storage that several machines or containers share, so each part has a random name. Its writer holds its lock; whoever
writes into a folder removes the parts there that kills left.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO
from uuid import uuid4

QUESTION_FILES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")  # endings of files that may hold a benchmark

PART = ".part"  # suffix of parts; our readers ignore such files
A_PART = re.compile(rf"\..*\.(?P<kernel>[0-9a-f]{{8}})\.[0-9a-f]{{32}}{re.escape(PART)}", re.DOTALL)
LONGEST_NAME = 40  # characters of the final name in that of a part; a file system takes 255 bytes
DAY = 24 * 60 * 60.0  # seconds


@contextmanager
def own_part(place: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `place`, which nobody else writes; it is removed at the end, if it still has that name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part, stream = _locked_part(place)
    try:
        with stream:
            _remove_abandoned_parts(place.parent, now=os.fstat(stream.fileno()).st_mtime)
            yield part, stream
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def own_part_folder(place: Path) -> Iterator[Path]:
    """The path of a folder beside `place`, which nobody else writes and which is removed at the end, if it is there.
    Locked is a part beside it, since many file systems cannot lock folders."""
    with own_part(place) as (part, _):
        folder = _folder_of(part)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_parts(folder: Path) -> None:
    """Removes all parts in a folder that this process alone may write into, also those of machines that were lost."""
    for part in list(folder.glob(f".*{PART}")):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def clock_of(folder: Path) -> float:
    """Return the time by the clock of the file system that holds a folder, which may differ from this machine's."""
    with own_part(folder / "clock") as (_, stream):
        return os.fstat(stream.fileno()).st_mtime


def _folder_of(part: Path) -> Path:
    return part.with_suffix(f".files{PART}")


def _locked_part(place: Path) -> tuple[Path, BinaryIO]:
    """A new one is made if another process took it for abandoned in the moment before it was locked."""
    while True:
        part = place.with_name(f".{place.name[:LONGEST_NAME]}.{kernel()}.{uuid4().hex}{PART}")
        stream = part.open("xb")
        if _takes_lock(stream) is not False and os.fstat(stream.fileno()).st_nlink:
            return part, stream
        stream.close()


def _takes_lock(stream: BinaryIO) -> bool | None:
    """Until the stream is closed or the process ends; False if another has it, None if the file system has none."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_abandoned_parts(folder: Path, now: float) -> None:
    """Removes what kills have left in `folder`, never a part that is being written.

    A part is abandoned if nobody has its lock, which the system frees when a process ends. Locks of other machines may
    not be seen here (NFS with `nolock`, Lustre with `localflock`), so theirs must have been as they are for a day,
    too. Where a file system has no locks, parts stay.

    now: when a file was just made, by the clock of the file system, which may differ from this machine's
    """
    for part in list(folder.iterdir()):
        name = A_PART.fullmatch(part.name)
        if name is None:
            continue
        with suppress(OSError), part.open("rb+") as stream:
            is_idle = now - os.fstat(stream.fileno()).st_mtime > DAY
            if (name["kernel"] == kernel() or is_idle) and _takes_lock(stream):
                shutil.rmtree(_folder_of(part), ignore_errors=True)
                part.unlink()


@cache
def kernel() -> str:
    """Eight digits of the running kernel, which all containers on a machine share and no two machines do."""
    try:
        told = Path("/proc/sys/kernel/random/boot_id").read_bytes()  # Linux
    except OSError:
        told = socket.gethostname().encode()
    return sha256(told).hexdigest()[:8]


DEVICES = (Path("/dev"), Path("/dev/fd"))
LOCK = ".lock"


@contextmanager
def atomic_binary_file(file: Path) -> Iterator[BinaryIO]:
    """A file that gets its name only when all of it is on disk: if the process is killed, the disk is full or the
    block raises, the old file remains, or none. Missing folders are created.

    Anything but a regular file, such as /dev/stdout, is written directly. Raises OSError if that fails.
    """
    if _is_device(file):
        with file.open("wb") as stream:
            yield stream
        return
    place = file.resolve()  # a symbolic link stays a link
    with own_part(place) as (part, stream):
        yield stream
        _flush(stream)
        part.replace(place)
    _flush_folder(place.parent)


@contextmanager
def atomic_file(file: Path) -> Iterator[TextIO]:
    """A text file (UTF-8), written like `atomic_binary_file`. A lone surrogate, which UTF-8 cannot encode, is replaced
    by a question mark."""
    with atomic_binary_file(file) as stream:
        text = TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        yield text
        text.flush()
        text.detach()


def atomic_write(file: Path, text: str) -> None:
    """Writes `text` to `file` atomically (see `atomic_file`)."""
    with atomic_file(file) as stream:
        stream.write(text)


def add_record(file: Path, line: str) -> None:
    """Adds a line to a file that only this process writes, and waits until it is on disk. A kill may leave the last
    line incomplete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        stream.write(f"{line}\n".encode("utf-8", "replace"))
        stream.flush()
        os.fsync(stream.fileno())


def log_to_add_to(file: Path) -> TextIO:
    """A log, open at its end; every line is written at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("a", buffering=1, encoding="utf-8", errors="replace")


def published(finished: Path, folder: Path) -> bool:
    """Renames a finished folder on the same disk in one step, its files flushed. Returns False, and changes nothing,
    if there is one already."""
    to_disk(finished)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        finished.rename(folder)
    except OSError:
        if folder.is_dir():
            return False
        raise
    _flush_folder(folder.parent)
    return True


def publish_files(folder: Path, files: Mapping[str, bytes], secret: str) -> bool:
    """Writes a new folder with `files` in one step. Returns False, and changes nothing, if there is one with files.

    Whatever is below its folder `secret` can be read by its owner only, from the first byte on. All files get the same
    time, in whole seconds.
    """
    place, now = folder.resolve(), int(time.time())
    with own_part_folder(place) as staged:
        staged.mkdir()
        for name, content in files.items():
            file, is_secret = staged / name, name.startswith(f"{secret}/")
            file.parent.mkdir(mode=0o700 if is_secret else 0o777, exist_ok=True)
            with open(file, "xb", opener=_owners_only if is_secret else None) as stream:
                stream.write(content)
            os.utime(file, (now, now))
        return published(staged, place)


def _owners_only(file: str, flags: int) -> int:
    return os.open(file, flags, mode=0o600)


def to_disk(folder: Path) -> None:
    """Flushes every file of a folder to disk (fsync), which the system might otherwise do much later."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def atomic_remove(folder: Path) -> None:
    """Removes a folder if it exists. It is renamed first: a kill halfway leaves no incomplete one under its name."""
    if not folder.parent.is_dir():
        return
    with own_part_folder(folder) as beside, suppress(FileNotFoundError):
        folder.rename(beside)


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Locks `folder`, which is created if it is missing, for one command; a command that is killed gives it up. Raises
    ValueError if another one has it, or if it cannot be written."""
    from filelock import FileLock, Timeout

    check_writable(folder, folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        held = lock.acquire()
    except Timeout as error:
        raise ValueError(
            f"{folder} is in use by another command; wait until it ends, or give another output_path"
        ) from error
    with held:
        yield


def user_cache() -> Path:
    """Return this package's folder in the user's cache folder. Raises RuntimeError for a user without a home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lm_eval_leakage"


def check_writable(place: Path, *, folder: bool = False) -> None:
    """Raises ValueError, with the reason, if a file (or a `folder`) cannot be written at `place`, so that this is
    known before the work whose result goes there. Creates nothing."""
    there = place.absolute()
    present = next(path for path in (there, *there.parents) if path.exists())
    if present == there and there.is_dir() != folder:
        is_one, wanted = ("a file", "a folder") if folder else ("a folder", "a file")
        raise ValueError(f"{place} is {is_one}; choose {wanted}")
    if present != there and not present.is_dir():
        raise ValueError(f"{place} cannot be written, since {present} is a file; choose another place")
    # an existing file is replaced by renaming, not changed
    holder = there.resolve().parent if there.is_file() else present
    if not (os.access(present, os.W_OK) and os.access(holder, os.W_OK)):
        raise ValueError(f"{place} cannot be written ({holder} is read-only); choose another place")


def try_to_write(folder: Path) -> None:
    """Raises OSError if no file can be written in `folder`, which is created if it is missing. As every write does, it
    removes what kills have left there."""
    with own_part(folder / "trial") as (_, stream):
        _flush(stream)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    """So that a new name outlasts a power failure; some file systems cannot."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_device(file: Path) -> bool:
    """Whether it is no regular file; also /dev/stdout redirected to a file, which the shell has open."""
    return (file.exists() and not file.is_file()) or file.absolute().parent in DEVICES
