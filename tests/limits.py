"""What a full disk does to a writer, without filling one."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file of this process may have more than `room` bytes: like a full disk, it raises OSError in the middle of
    the writing."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)


def with_locks_of_their_own() -> None:
    """Before processes are forked and killed: tqdm has one lock for all of them, and a killed one keeps it."""
    from threading import RLock

    from tqdm import tqdm

    tqdm.set_lock(RLock())
