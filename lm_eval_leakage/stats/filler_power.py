"""What the test of crossed blocks finds, and how many rows may have been seen, by the normal approximation.

A row that was seen prefers its published filler by an effect, in standard deviations per row, that was measured on
copies of a small model (docs/validity.md): as far as the memory of other models is like that, so are these numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

from lm_eval_leakage.stats.order_power import DETECT_TIMES, FOUND_WITH, MOST_NEEDED, SEEN_TIMES, Shares
from lm_eval_leakage.stats.pooling import NAN, smallest

# By form: names in the rows as the benchmark shows them, and less the control form; numbers.
SEEN_EFFECTS: Mapping[str, Mapping[int, float]] = {
    "names": {1: 0.6, 3: 1.0},
    "in words": {1: 0.45, 3: 0.85},
    "numbers": {1: NAN, 3: 0.6},  # not measured for one exposure
}


@dataclass(frozen=True)
class FillerPower:
    """What a test of crossed blocks finds on rows like those that it was used on.

    effect: that it measured, per row
    n: number of rows; deviation: standard deviation of the effect under the null hypothesis, from sampling alone
    seen: by exposures, the effect of a seen row
    spread: standard deviation of the natural preference between benchmarks
    found_with: the probability of finding
    """

    effect: float
    n: int
    deviation: float
    seen: Mapping[int, float] = field(default_factory=lambda: SEEN_EFFECTS["names"])
    spread: float = 0.0
    found_with: float = FOUND_WITH

    def critical(self, level: float) -> float:
        """Return the effect from which the test rejects at `level`."""
        return -NormalDist().inv_cdf(level) * math.hypot(self.deviation, self.spread)

    def detectable(self, level: float) -> Shares:
        """Return, by exposures, the smallest share of seen rows that is found with probability `found_with`; NaN if
        even all would be missed."""
        return self._sufficient(self.critical(level), self.found_with)

    def at_most(self, error: float) -> Shares:
        """Return, by exposures, an upper confidence bound of the share of seen rows: if it were larger, so small an
        effect would have a probability of `error` or less; NaN if all may have been seen. An effect below 0 counts as
        0."""
        return self._sufficient(max(self.effect, 0.0), 1 - error)

    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None:
        """Return about how many rows like these find that `share` of them was seen `times` times; None if no number
        does, or more than `MOST_NEEDED`."""
        beyond = -NormalDist().inv_cdf(level)
        reached = -NormalDist().inv_cdf(1 - self.found_with)

        def is_found(n: int) -> bool:
            sampling = self.deviation * math.sqrt(self.n / n)
            mixed = self._spread_of(share, times, sampling, n)
            return share * self.seen[times] >= beyond * math.hypot(sampling, self.spread) + reached * mixed

        fewest = 1 + bisect_left(range(1, MOST_NEEDED + 1), True, key=is_found)
        return None if fewest > MOST_NEEDED else fewest

    def _sufficient(self, least: float, probability: float) -> Shares:
        """Return the smallest shares with which the effect is at least `least` with this probability."""
        return tuple((times, self._smallest_share(least, probability, times)) for times in SEEN_TIMES)

    def _smallest_share(self, least: float, probability: float, times: int) -> float:
        beyond = NormalDist().inv_cdf(probability)

        def is_enough(share: float) -> bool:
            spread = self._spread_of(share, times, self.deviation, self.n)
            return share * self.seen[times] - least >= beyond * spread

        return smallest(is_enough, 0.0, 1.0) if is_enough(1.0) else NAN

    def _spread_of(self, share: float, times: int, sampling: float, n: int) -> float:
        """Return the standard deviation of the effect where this share of n rows was seen."""
        mixture = share * (1 - share) * self.seen[times] ** 2 / n
        return math.sqrt(sampling**2 + mixture + self.spread**2)
