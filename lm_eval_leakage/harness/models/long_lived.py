"""Spares Python's search for garbage what a run holds until its end anyway."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_searched_for_garbage() -> Iterator[None]:
    """Within the block, whatever existed before it: the search for garbage goes through all objects again and again
    while the requests of a large benchmark are made. What is created in the block is collected as usual."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
