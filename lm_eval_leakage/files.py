"""Atomic file writes: a file or folder appears complete or not at all. All output of the package goes through here.

A file that is being written is a *part*, with a random name that no other write uses. Process ids would not do, since
several machines or containers may share the storage and use the same ids. The writer of a part holds its lock. Every
write into a folder removes the parts there that killed processes have left.
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
DEVICES = (Path("/dev"), Path("/dev/fd"))
LOCK = ".lock"


@contextmanager
def new_part(place: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a new file beside `place` that nobody else writes. At the end it is removed if it still has that name."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part, stream = _locked_part(place)
    try:
        with stream:
            _remove_abandoned_parts(place.parent, now=os.fstat(stream.fileno()).st_mtime)
            yield part, stream
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def new_part_folder(place: Path) -> Iterator[Path]:
    """Return the path of a folder beside `place` that nobody else writes. At the end the folder is removed if it
    exists. The lock is that of a part beside it, since many file systems cannot lock folders."""
    with new_part(place) as (part, _):
        folder = _folder_of(part)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_parts(folder: Path) -> None:
    """Remove all parts in a folder that only this process may write into, including those of lost machines."""
    for part in list(folder.glob(f".*{PART}")):
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def clock_of(folder: Path) -> float:
    """Return the time by the clock of the file system that holds a folder, which may differ from this machine's."""
    with new_part(folder / "clock") as (_, stream):
        return os.fstat(stream.fileno()).st_mtime


def _folder_of(part: Path) -> Path:
    return part.with_suffix(f".files{PART}")


def _locked_part(place: Path) -> tuple[Path, BinaryIO]:
    """Create a part and lock it. If another process removes it before it is locked, create another one."""
    while True:
        part = place.with_name(f".{place.name[:LONGEST_NAME]}.{kernel()}.{uuid4().hex}{PART}")
        stream = part.open("xb")
        if _takes_lock(stream) is not False and os.fstat(stream.fileno()).st_nlink:
            return part, stream
        stream.close()


def _takes_lock(stream: BinaryIO) -> bool | None:
    """Lock a file until the stream is closed or the process ends. Return False if another process holds the lock, and
    None if the file system has no locks."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_abandoned_parts(folder: Path, now: float) -> None:
    """Remove the parts in `folder` that killed processes have left, never a part that is being written.

    A part is abandoned if nobody holds its lock, which the system frees when a process ends. Locks of other machines
    may be invisible here (NFS with `nolock`, Lustre with `localflock`), so a part of another machine must also have
    been unchanged for a day. Where a file system has no locks, parts stay.

    now: the time at which a file was just created, by the clock of the file system, which may differ from this
        machine's
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
    """Return eight digits that identify the running kernel: all containers on a machine share it."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes()  # Linux
    except OSError:
        boot_id = socket.gethostname().encode()
    return sha256(boot_id).hexdigest()[:8]


@contextmanager
def atomic_binary_file(file: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name only when all of it is on disk. If the process is killed, the disk is full or the
    block raises, the old file stays as it was. Missing folders are created.

    Anything but a regular file, such as /dev/stdout, is written directly. Raises OSError if a write fails.
    """
    if _is_device(file):
        with file.open("wb") as stream:
            yield stream
        return
    place = file.resolve()  # a symbolic link stays a link
    with new_part(place) as (part, stream):
        yield stream
        _flush(stream)
        part.replace(place)
    _flush_folder(place.parent)


@contextmanager
def atomic_file(file: Path) -> Iterator[TextIO]:
    """Open a text file (UTF-8) that is written like `atomic_binary_file`. A lone surrogate, which UTF-8 cannot encode,
    is replaced by a question mark."""
    with atomic_binary_file(file) as stream:
        text = TextIOWrapper(stream, encoding="utf-8", errors="replace", newline="")
        yield text
        text.flush()
        text.detach()


def atomic_write(file: Path, text: str) -> None:
    """Write `text` to `file` atomically (see `atomic_file`)."""
    with atomic_file(file) as stream:
        stream.write(text)


def add_record(file: Path, line: str) -> None:
    """Add a line to a file that only this process writes, and wait until it is on disk. A kill may leave the last
    line incomplete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as stream:
        stream.write(f"{line}\n".encode("utf-8", "replace"))
        stream.flush()
        os.fsync(stream.fileno())


def open_log(file: Path) -> TextIO:
    """Open a log at its end. Every line is written immediately."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.open("a", buffering=1, encoding="utf-8", errors="replace")


def published(finished: Path, folder: Path) -> bool:
    """Flush a finished folder and rename it in one step, on the same disk. Return False, and change nothing, if
    `folder` exists already."""
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
    """Write a new folder with `files` in one step. Return False, and change nothing, if it exists and holds files.

    Only the owner can read the files below its folder `secret`, from the first byte on. All files get the same time,
    in whole seconds.
    """
    place, now = folder.resolve(), int(time.time())
    with new_part_folder(place) as staged:
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
    """Flush every file of a folder to disk (fsync), which the system might otherwise do much later."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def atomic_remove(folder: Path) -> None:
    """Remove a folder if it exists. It is renamed first, so that a kill leaves no incomplete folder under its name."""
    if not folder.parent.is_dir():
        return
    with new_part_folder(folder) as beside, suppress(FileNotFoundError):
        folder.rename(beside)


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """Lock `folder` for one command; it is created if it is missing. The lock of a killed command is released. Raises
    ValueError if another command holds the lock, or if the folder cannot be written."""
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
    """Raise ValueError, with the reason, if a file (or a `folder`) cannot be written at `place`. Callers check this
    before the work whose result goes there. Nothing is created."""
    target = place.absolute()
    nearest = next(path for path in (target, *target.parents) if path.exists())
    if nearest == target and target.is_dir() != folder:
        existing, wanted = ("a file", "a folder") if folder else ("a folder", "a file")
        raise ValueError(f"{place} is {existing}; choose {wanted}")
    if nearest != target and not nearest.is_dir():
        raise ValueError(f"{place} cannot be written, since {nearest} is a file; choose another place")
    # an existing file is replaced by renaming, not changed
    holder = target.resolve().parent if target.is_file() else nearest
    if not (os.access(nearest, os.W_OK) and os.access(holder, os.W_OK)):
        raise ValueError(f"{place} cannot be written ({holder} is read-only); choose another place")


def try_to_write(folder: Path) -> None:
    """Raise OSError if no file can be written in `folder`, which is created if it is missing. Like every write, it
    removes the parts that killed processes have left there."""
    with new_part(folder / "trial") as (_, stream):
        _flush(stream)


def _flush(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _flush_folder(folder: Path) -> None:
    """Make a new name in a folder survive a power failure. Some file systems cannot do this."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_device(file: Path) -> bool:
    """Return whether this is no regular file. /dev/stdout counts even if it is redirected to a file, since the shell
    has that file open."""
    return (file.exists() and not file.is_file()) or file.absolute().parent in DEVICES
