"""CPU time of reading hostile rows: one reading of one row, its guards or the requests of one probe about it may take
half a second at most.

    python -m benchmarks.hostile_rows [ROWS [SEED]]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from tests.fuzzed_documents import documents, read_all


def main(n_rows: int = 1000, seed: int = 0) -> None:
    seconds: list[float] = []

    def measured(work: Callable[[], Any]) -> Any:
        start = time.thread_time()
        try:
            return work()
        finally:
            seconds.append(time.thread_time() - start)

    print(dict(read_all(islice(documents(random.Random(seed)), n_rows), measured)))
    print(
        f"{len(seconds):,} readings, the slowest {max(seconds):.3f} s, "
        f"{sum(reading > 0.5 for reading in seconds)} above 0.5 s"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
