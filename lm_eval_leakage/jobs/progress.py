"""How far a plan is: counted by the driver as attempts end, written into the status file, and read from there."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

import psutil

from lm_eval_leakage.jobs.folder import RUNNING, STATUS, Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.results.formatting import about, count, duration

FAILURES_LISTED = 100  # in the status file
SILENT = 60.0  # seconds without news after which a driver that should be running is taken for killed
WORKING_SHOWN, FAILURES_SHOWN = 20, 20
SECONDS_OF_STATUS = 5.0
AT_ITS_END, BROKEN_OFF = "ended", "interrupted"


class Progress:
    """Changed by one thread, and read by another that writes the status file.

    units: all that can be done; left: those that are not done when the session begins
    """

    def __init__(
        self, units: Sequence[Unit], left: Collection[Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._begun = clock, clock()
        self.n_units = len(units)
        self.n_done_before = self.n_units - len(left)
        self._n_done = self._n_requests = self._n_tokens = 0
        self._working: dict[Unit, tuple[str, float]] = {}
        self._failed: dict[Unit, Attempt] = {}

    @property
    def n_left_before(self) -> int:
        """Number of units that were not done when the session began."""
        return self.n_units - self.n_done_before

    def begun(self, unit: Unit, worker: str) -> None:
        self._working[unit] = (worker, self._clock())

    def ended(self, attempt: Attempt) -> None:
        self._working.pop(attempt.unit, None)
        self._n_requests += attempt.n_requests
        self._n_tokens += attempt.n_tokens
        if attempt.ok:
            self._failed.pop(attempt.unit, None)
            self._n_done += 1
        else:
            self._failed[attempt.unit] = attempt

    # ------------------------------------------------------------------ what is told

    @property
    def n_done(self) -> int:
        return self.n_done_before + self._n_done

    @property
    def failed(self) -> list[Attempt]:
        """The last attempt of each unit whose last attempt failed."""
        return list(self._failed.values())

    @property
    def seconds(self) -> float:
        return max(1e-9, self._clock() - self._begun)

    @property
    def tokens_per_second(self) -> float:
        return self._n_tokens / self.seconds

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the session so far; None before its first unit is done."""
        return (self.n_units - self.n_done) * self.seconds / self._n_done if self._n_done else None

    def as_status(self) -> dict[str, Any]:
        left, failed = self.seconds_left, self.failed
        working = [
            {"unit": unit.id, "worker": worker, "seconds": round(self._clock() - since, 1)}
            for unit, (worker, since) in list(self._working.items())
        ]
        return {
            "units": {
                "all": self.n_units,
                "done": self.n_done,
                "done_in_this_session": self._n_done,
                "failed": len(failed),
                "in_progress": len(working),
            },
            "seconds": round(self.seconds, 1),
            "units_per_hour": round(3600 * self._n_done / self.seconds, 2),
            "requests_per_second": round(self._n_requests / self.seconds, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "seconds_left": None if left is None else round(left),
            "in_progress": working,
            "failures": [attempt.as_record for attempt in failed[:FAILURES_LISTED]],
        }


def status_as_text(folder: CampaignFolder) -> str:
    """Raises ValueError if there is no campaign in the folder."""
    status = folder.status()
    if not status:
        raise ValueError(f"{folder.path} has no {STATUS}; name the folder of a campaign that has begun")
    return "\n".join(_lines(folder, status))


def _lines(folder: CampaignFolder, status: Mapping[str, Any]) -> Iterator[str]:
    units, is_running = status["units"], status["state"] == RUNNING
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(status["time"])).total_seconds()
    told = f"{status['state']} on {status['host']} (process {status['pid']}), {duration(age)} ago"
    # on another machine only its silence tells whether the driver lives
    is_gone = status["host"] == socket.gethostname() and not psutil.pid_exists(status["pid"])
    if is_running and (age > SILENT or is_gone):
        is_running = False
        told = f"last heard of {duration(age)} ago on {status['host']}, and killed since; the same command goes on"
    yield f"{folder.path}: {told}"
    yield f"engine: {status['engine']}"
    yield (
        f"units: {count(units['done'])} of {count(units['all'])} done, {units['in_progress']} in progress, "
        f"{count(units['failed'])} failed"
    )
    left = status["seconds_left"]
    yield (
        f"speed: {status['units_per_hour']:g} units per hour, {about(round(status['tokens_per_second']))} tokens per "
        f"second{f', about {duration(left)} left' if left and is_running else ''}"
    )
    for one in status["in_progress"][:WORKING_SHOWN] if is_running else ():
        yield f"in progress: {one['unit']} for {duration(one['seconds'] + age)} ({one['worker']})"
    for one in status["failures"][:FAILURES_SHOWN]:
        yield f"failed: {one['unit']}: {one['error']} (log: {folder.log_of(Unit.of_id(one['unit']))})"


@contextmanager
def status_written(folder: CampaignFolder, progress: Progress, engine: str) -> Iterator[None]:
    """Write the status file every few seconds, and once more at the end.

    A disk that is full meanwhile costs only the status: what else is written ends the command with its own reason.
    """
    ended = threading.Event()

    def write(state: str) -> None:
        who = {"state": state, "time": now(), "engine": engine, "host": socket.gethostname(), "pid": os.getpid()}
        folder.write_status(who | progress.as_status())

    def keep_writing() -> None:
        while not ended.wait(SECONDS_OF_STATUS):
            with suppress(OSError):
                write(RUNNING)

    write(RUNNING)
    thread = threading.Thread(target=keep_writing, daemon=True)
    thread.start()
    state = BROKEN_OFF
    try:
        yield
        state = AT_ITS_END
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            write(state)
