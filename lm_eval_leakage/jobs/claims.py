"""Claims: which worker runs a unit, whatever machine it is on, and without locks of the file system.

The claims of a unit are numbered. A claim is a file that only one worker can create; its worker renews the file's time
while it runs. It ends when somebody creates the file that says so, which again only one can: its worker at the end,
or a driver that finds the worker gone. Only then can the next claim be created. So a worker that was stopped and
wakes up finds that its claim has ended, and publishes nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.files import kernel
from lm_eval_leakage.texts import as_json

LEASE_S = 180.0  # a claim that was not renewed for so long is lost, by the clock of the file system
RENEWALS = 6  # within that time
ENDED = ".ended"  # suffix of the files that end claims


@dataclass(frozen=True)
class Claim:
    """The claim of one worker to a unit.

    file: named after its unit and the number of the claim, among those of the unit, from 1
    """

    file: Path

    @property
    def has_ended(self) -> bool:
        return self._end.exists()

    @property
    def _end(self) -> Path:
        return self.file.with_name(self.file.name + ENDED)

    @property
    def holder(self) -> Mapping[str, Any]:
        """The record that identifies the worker's process; empty if it cannot be read."""
        try:
            record = json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    @property
    def worker(self) -> str:
        """The name of the worker."""
        return str(self.holder.get("worker", "unknown"))

    @property
    def seconds(self) -> float:
        """The seconds for which the worker has had the unit, by the clocks of its machine and of this one."""
        since = self.holder.get("since")
        return max(0.0, time.time() - since) if isinstance(since, float) else 0.0

    def is_lost(self, now: float) -> bool:
        """Return whether its worker is gone: a process of this machine that has ended, or one that is silent.

        now: by the clock of the file system
        """
        if _is_gone(self.holder):
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
        """Keep the claim alive within the block; afterwards it has ended."""
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


def held_claims(folder: Path) -> dict[str, Claim]:
    """Return the claims that have not ended, by the slugs of their units, with which their files' names begin."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    ended = {name.removesuffix(ENDED) for name in names if name.endswith(ENDED)}
    last = _last_numbers(names)
    files = {slug: f"{slug}.{number}" for slug, number in last.items()}
    return {slug: Claim(folder / file) for slug, file in files.items() if file not in ended}


def next_claim(folder: Path, slug: str, worker: str) -> Claim | None:
    """Return a new claim of a unit, or None if somebody has the unit, or gets it at the same moment."""
    number = _last_numbers(file.name for file in folder.glob(f"{_escaped(slug)}.*")).get(slug, 0)
    if number and not Claim(folder / f"{slug}.{number}").has_ended:
        return None
    claim = Claim(folder / f"{slug}.{number + 1}")
    record = {**_this_process(), "worker": worker, "since": time.time()}
    return claim if _created(claim.file, as_json(record)) else None


def _last_numbers(names: Iterable[str]) -> dict[str, int]:
    """Return the number of the latest claim of each unit, ended or not."""
    last: dict[str, int] = {}
    for name in names:
        slug, _, number = name.rpartition(".")
        if number.isdigit():
            last[slug] = max(int(number), last.get(slug, 0))
    return last


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


def _is_gone(holder: Mapping[str, Any]) -> bool:
    """Return whether a worker was a process of this machine, and has ended."""
    if holder.get("host") != _machine():
        return False
    try:
        process = psutil.Process(int(holder["pid"]))
        return bool(process.create_time() != holder["started"] or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
