"""Everything that this process writes to stdout and stderr, in the log of a unit."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from lm_eval_leakage.files import log_to_add_to, standard_output

STDOUT, STDERR = 1, 2


@contextmanager
def written_to(log: Path) -> Iterator[None]:
    """Within the block, both streams of the process go to the end of `log`, what C libraries write included, and so do
    messages from INFO on."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    before = [os.dup(STDOUT), os.dup(STDERR)]
    with log_to_add_to(log) as stream:
        for place in (STDOUT, STDERR):
            os.dup2(stream.fileno(), place)
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(name)s] %(message)s"))
        root = logging.getLogger()
        level, handlers = root.level, root.handlers
        root.handlers = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            root.handlers = handlers
            root.setLevel(level)
            for kept, place in zip(before, (STDOUT, STDERR), strict=True):
                os.dup2(kept, place)
                os.close(kept)


@contextmanager
def only_for_us() -> Iterator[TextIO]:
    """Stdout as a stream for the block; whatever else is written to stdout meanwhile goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with standard_output(kept) as stream:
            yield stream
    finally:
        os.dup2(kept, STDOUT)
        os.close(kept)
