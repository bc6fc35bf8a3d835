"""Reports how far a plan is, from its folder: on the terminal, in the status file and by `check --status`."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import Any

import psutil

from lm_eval_leakage.files import clock_of
from lm_eval_leakage.jobs.folder import CLAIMS, RUNNING, STATUS, Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.queue import Queue, read_queue
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.results.formatting import about, count, duration

FAILURES_LISTED = 100  # in the status file
SILENT = 60.0  # seconds without news after which a driver that should be running is taken for killed
WORKING_SHOWN, FAILURES_SHOWN = 20, 20
SECONDS_OF_STATUS = 5.0
AT_ITS_END, BROKEN_OFF = "ended", "interrupted"


class Progress:
    """The progress of a driver's session, read from its folder.

    units: all that can be done
    retries: as for `read_queue`
    """

    def __init__(
        self,
        folder: CampaignFolder,
        units: Sequence[Unit],
        retries: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._retries, self._clock, self._start = folder, retries, clock, clock()
        self.n_units = len(units)
        self._queue = self._read()
        self.n_left_before = len(self._queue.left)
        self._reported: set[Attempt] = set(self._queue.attempts)

    def _read(self) -> Queue:
        return read_queue(self._folder, self._retries)

    def update(self, queue: Queue) -> list[Attempt]:
        """Return the attempts that have ended since the last call."""
        self._queue = queue
        new = [attempt for attempt in queue.attempts if attempt not in self._reported]
        self._reported.update(new)
        return new

    # ------------------------------------------------------------------ numbers

    @property
    def n_done_before(self) -> int:
        """Number of units that were done when the session began."""
        return self.n_units - self.n_left_before

    @property
    def n_done(self) -> int:
        return self.n_units - len(self._queue.left)

    @property
    def failed(self) -> list[Attempt]:
        """The last attempt of each unit whose last attempt failed."""
        return self._queue.failed

    @property
    def seconds(self) -> float:
        return max(1e-9, self._clock() - self._start)

    @property
    def tokens_per_second(self) -> float:
        return sum(attempt.n_tokens for attempt in self._queue.attempts) / self.seconds

    @property
    def seconds_left(self) -> float | None:
        """The seconds left at the pace of the session so far; None before its first unit is done."""
        n_done = self.n_done - self.n_done_before
        return (self.n_units - self.n_done) * self.seconds / n_done if n_done else None

    def as_status(self) -> dict[str, Any]:
        self._queue = self._read()
        left, n_done = self.seconds_left, self.n_done - self.n_done_before
        n_requests = sum(attempt.n_requests for attempt in self._queue.attempts)
        return {
            "units": {
                "all": self.n_units,
                "done": self.n_done,
                "done_in_this_session": n_done,
                "failed": len(self.failed),
                "in_progress": len(self._queue.claims),
            },
            "seconds": round(self.seconds, 1),
            "units_per_hour": round(3600 * n_done / self.seconds, 2),
            "requests_per_second": round(n_requests / self.seconds, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "seconds_left": None if left is None else round(left),
            "in_progress": [
                {"unit": unit.id, "worker": claim.worker, "seconds": round(claim.seconds, 1)}
                for unit, claim in self._queue.claims.items()
            ],
            "failures": [attempt.as_record for attempt in self.failed[:FAILURES_LISTED]],
        }


def status_as_text(folder: CampaignFolder) -> str:
    """Return the status of a campaign as text; raises ValueError if there is none in the folder."""
    status = folder.status()
    if not status:
        raise ValueError(f"{folder.path} has no {STATUS}; name the folder of a campaign that has begun")
    return "\n".join(_lines(folder, status))


def _lines(folder: CampaignFolder, status: Mapping[str, Any]) -> Iterator[str]:
    is_running, queue = status["state"] == RUNNING, read_queue(folder, 0)
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(status["time"])).total_seconds()
    state = f"{status['state']} on {status['host']} (process {status['pid']}), {duration(age)} ago"
    # on another machine only its silence shows whether the driver lives
    is_gone = status["host"] == socket.gethostname() and not psutil.pid_exists(status["pid"])
    if is_running and (age > SILENT or is_gone):
        is_running = False
        state = f"last heard of {duration(age)} ago on {status['host']}, and killed since; the same command goes on"
    yield f"{folder.path}: {state}"
    yield f"engine: {status['engine']}"
    n_units, place = status["units"]["all"], folder.path / CLAIMS
    clock = clock_of(place) if queue.claims else 0.0
    working = {unit: claim for unit, claim in queue.claims.items() if not claim.is_lost(clock)}
    yield (
        f"units: {count(n_units - len(queue.left))} of {count(n_units)} done, {len(working)} in progress, "
        f"{count(len(queue.failed))} failed"
    )
    left = status["seconds_left"]
    yield (
        f"speed: {status['units_per_hour']:g} units per hour, {about(round(status['tokens_per_second']))} tokens per "
        f"second{f', about {duration(left)} left' if left and is_running else ''}"
    )
    for unit, claim in [*working.items()][:WORKING_SHOWN]:
        yield f"in progress: {unit.id} for {duration(claim.seconds)} ({claim.worker})"
    for attempt in queue.failed[:FAILURES_SHOWN]:
        yield f"failed: {attempt.unit.id}: {attempt.error} (log: {folder.log_of(attempt.unit)})"


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
