"""Waits for what another process does, and ends it with the test."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOOKS, LOOK_S = 3600, 0.1  # Ray starts a worker again that does not register within a minute on a busy machine


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(LOOKS):
        if condition():
            return
        time.sleep(LOOK_S)
    raise AssertionError("it did not happen")


@contextmanager
def a_process(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed at the end of the block, also if the test fails, and so does not fail a later one."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
