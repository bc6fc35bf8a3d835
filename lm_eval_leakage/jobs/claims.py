"""Claims: which worker runs a unit, whatever machine it is on, and without locks of the file system.

The claims of a unit are numbered. A claim is a file that only one worker can create; its worker renews the file's time
while it runs. It ends when somebody creates the file that says so, which again only one can: its worker at the end,
or whoever finds that the worker is gone. Only then can the next claim be created. So a worker that was stopped and
wakes up finds that its claim has ended, and publishes nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.files import clock_of, kernel
from lm_eval_leakage.texts import as_json

LEASE_S = 180.0  # a claim that was not renewed for so long is lost, by the clock of the file system
RENEWALS = 6  # within that time
ENDED = ".ended"  # suffix of the files that end claims


@dataclass(frozen=True)
class Claim:
    """A unit in the hands of one worker.

    slug: of the unit, the beginning of its files' names
    number: of the claim, among those of the unit, from 1
    """

    folder: Path
    slug: str
    number: int

    @property
    def file(self) -> Path:
        return self.folder / f"{self.slug}.{self.number}"

    @property
    def has_ended(self) -> bool:
        return self._end.exists()

    @property
    def _end(self) -> Path:
        return self.file.with_name(self.file.name + ENDED)

    @property
    def worker(self) -> Mapping[str, Any]:
        """What identifies the worker's process; empty if that cannot be read."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def is_lost(self, now: float) -> bool:
        """Return whether its worker is gone: a process of this machine that has ended, or one that is silent.

        now: by the clock of the file system
        """
        if _is_gone(self.worker):
            return True
        try:
            return now - self.file.stat().st_mtime > LEASE_S
        except FileNotFoundError:
            return True

    def end(self) -> bool:
        """Return whether this call has ended it, and no other one before."""
        return _created(self._end, "")

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Within the block, the worker is known to be alive; afterwards the claim has ended."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(LEASE_S / RENEWALS):
                with suppress(OSError):
                    os.utime(self.file)  # by the clock of the file system

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.end()


def last_claim(folder: Path, slug: str) -> Claim | None:
    """Return the latest claim of a unit, ended or not; None if there is none."""
    numbers = [
        int(number)
        for file in folder.glob(f"{_escaped(slug)}.*")
        if (number := file.name.removeprefix(f"{slug}.")).isdigit()
    ]
    return Claim(folder, slug, max(numbers)) if numbers else None


def next_claim(folder: Path, slug: str, worker: str) -> Claim | None:
    """Return a new claim of a unit, or None if somebody has the unit, or gets it at the same moment."""
    last = last_claim(folder, slug)
    if last is not None and not last.has_ended:
        return None
    claim = Claim(folder, slug, 1 if last is None else last.number + 1)
    return claim if _created(claim.file, as_json(_this_process() | {"worker": worker})) else None


def lost_claim(folder: Path, slug: str) -> Claim | None:
    """Return the claim of a unit if its worker is gone; then it has ended by this call, and by no other one."""
    last = last_claim(folder, slug)
    if last is None or last.has_ended or not last.is_lost(clock_of(folder)):
        return None
    return last if last.end() else None


def _created(file: Path, text: str) -> bool:
    """Return whether this call has created a file, which no two can."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except FileExistsError:
        return False
    return True


def _escaped(slug: str) -> str:
    """The slug as a pattern that only matches itself."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in slug)


# ---------------------------------------------------------------------- processes


def _this_process() -> dict[str, object]:
    pid = os.getpid()
    return {"host": _machine(), "pid": pid, "started": psutil.Process(pid).create_time()}


def _machine() -> str:
    """A text that is the same for processes that can see each other's ids, and for no others."""
    with suppress(OSError):
        return f"{socket.gethostname()} {kernel()} {Path('/proc/self/ns/pid').stat().st_ino}"
    return f"{socket.gethostname()} {kernel()}"


def _is_gone(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker was a process of this machine, and has ended."""
    if worker.get("host") != _machine():
        return False
    try:
        process = psutil.Process(int(worker["pid"]))
        return bool(process.create_time() != worker["started"] or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
