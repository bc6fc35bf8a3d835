"""The time limit of an attempt, kept within the worker, so that its model stays loaded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeIsUp(BaseException):
    """An attempt took longer than the plan allows. No Exception, so that no task or backend catches it."""


@contextmanager
def time_limit(minutes: float | None) -> Iterator[None]:
    """Raises TimeIsUp in the block when the time is up. Works in the main thread only, and between instructions of
    Python: engines also have a limit, after which they end the worker."""
    if minutes is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp(too_long(minutes))

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def too_long(minutes: float) -> str:
    return f"it took longer than minutes: {minutes:g} allows; give more, or more shards"


def engine_limit(minutes: float | None) -> float | None:
    """Seconds after which an engine ends a worker that has not kept the limit itself."""
    return None if minutes is None else 60 * minutes + max(30.0, 6 * minutes)
