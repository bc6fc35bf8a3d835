"""Waits for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOKS, LOOK_S = 1200, 0.1


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(LOOKS):
        if condition():
            return
        time.sleep(LOOK_S)
    raise AssertionError("it did not happen")
