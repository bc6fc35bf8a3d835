"""How far a campaign is: counted as attempts end, without looking at any file."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.units import Unit

FAILURES_LISTED = 100  # in the status file

ModelAndKind = tuple[str, str]


class Progress:
    """For several threads.

    units: all that can be done; left: those that are not done when the session begins
    """

    def __init__(
        self, units: Sequence[Unit], left: Iterable[Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mutex, self._clock, self._begun = threading.Lock(), clock, clock()
        self._left = Counter((unit.model, unit.kind) for unit in left)
        self.n_units = len(units)
        self.n_done_before = self.n_units - self._left.total()
        self._n_done = self._n_requests = self._n_tokens = 0
        self._working: dict[Unit, tuple[str, float]] = {}
        self._failed: dict[Unit, Attempt] = {}
        self._seconds, self._n_timed = Counter[ModelAndKind](), Counter[ModelAndKind]()

    def begun(self, unit: Unit, worker: str) -> None:
        with self._mutex:
            self._working[unit] = (worker, self._clock())

    def ended(self, attempt: Attempt) -> None:
        with self._mutex:
            unit, key = attempt.unit, (attempt.unit.model, attempt.unit.kind)
            self._working.pop(unit, None)
            self._n_requests += attempt.n_requests
            self._n_tokens += attempt.n_tokens
            if not attempt.ok:
                self._failed[unit] = attempt
                return
            self._failed.pop(unit, None)
            self._n_done += 1
            self._left[key] -= 1
            self._seconds[key] += attempt.seconds  # type: ignore[assignment]
            self._n_timed[key] += 1

    # ------------------------------------------------------------------ what is told

    @property
    def n_done(self) -> int:
        return self.n_done_before + self._n_done

    @property
    def failed(self) -> list[Attempt]:
        """The last attempt of each unit whose last attempt failed."""
        with self._mutex:
            return list(self._failed.values())

    @property
    def tokens_per_second(self) -> float:
        return self._n_tokens / max(1e-9, self._clock() - self._begun)

    def seconds_left(self) -> float | None:
        """By the mean time of units of the same model and kind, else of the same kind, else of all; None before the
        first is done."""
        with self._mutex:
            return self._seconds_left()

    def _seconds_left(self) -> float | None:
        if not self._n_done:
            return None
        means = {key: self._seconds[key] / n for key, n in self._n_timed.items()}
        of_kind = {kind: _mean([mean for (_, own), mean in means.items() if own == kind]) for _, kind in means}
        usual = _mean(list(means.values()))
        work = sum(n * means.get(key, of_kind.get(key[1], usual)) for key, n in self._left.items())
        worked = sum(self._seconds.values())
        at_once = max(1.0, worked / max(1e-9, self._clock() - self._begun))
        return work / at_once

    def as_status(self) -> dict[str, Any]:
        with self._mutex:
            seconds = max(1e-9, self._clock() - self._begun)
            failed = list(self._failed.values())
            working = [
                {"unit": unit.id, "worker": worker, "seconds": round(self._clock() - since, 1)}
                for unit, (worker, since) in self._working.items()
            ]
            left = self._seconds_left()
            return {
                "units": {
                    "all": self.n_units,
                    "done": self.n_done,
                    "done_in_this_session": self._n_done,
                    "failed": len(failed),
                    "in_progress": len(working),
                },
                "seconds": round(seconds, 1),
                "units_per_hour": round(3600 * self._n_done / seconds, 2),
                "requests_per_second": round(self._n_requests / seconds, 2),
                "tokens_per_second": round(self._n_tokens / seconds, 1),
                "seconds_left": None if left is None else round(left),
                "in_progress": working,
                "failures": [attempt.as_record for attempt in failed[:FAILURES_LISTED]],
            }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
