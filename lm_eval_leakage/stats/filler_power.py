"""Computes the power of the test of crossed blocks, and bounds how many rows were seen, by the normal approximation.

A row that was seen prefers its published filler by an effect, in standard deviations per row. It was measured on
copies of a small model (docs/validity.md), so these numbers hold as far as other models remember like that one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import NormalDist

from lm_eval_leakage.stats.order_power import DETECT_TIMES, FOUND_WITH, MOST_NEEDED, SEEN_TIMES, Shares
from lm_eval_leakage.stats.pooling import NAN, smallest

# By form: names in the rows as the benchmark shows them; names minus the control form; numbers.
SEEN_EFFECTS: Mapping[str, Mapping[int, float]] = {
    "names": {1: 0.6, 3: 1.0},
    "in words": {1: 0.45, 3: 0.85},
    "numbers": {1: NAN, 3: 0.6},  # not measured for one exposure
}


@dataclass(frozen=True)
class FillerPower:
    """The power of a test of crossed blocks on rows like the tested ones; it is computed from these values.

    effect: the measured effect per row
    n: number of rows
    deviation: standard deviation of the effect under the null hypothesis, from sampling alone
    seen: the effect of a seen row, by number of exposures
    spread: standard deviation of the natural preference between benchmarks
    found_with: the probability with which a share counts as detectable
    """

    effect: float
    n: int
    deviation: float
    seen: Mapping[int, float] = field(default_factory=lambda: SEEN_EFFECTS["names"])
    spread: float = 0.0
    found_with: float = FOUND_WITH

    def critical(self, level: float) -> float:
        """Return the smallest effect at which the test rejects at `level`."""
        return -NormalDist().inv_cdf(level) * math.hypot(self.deviation, self.spread)

    def detectable(self, level: float) -> Shares:
        """Return, by exposures, the smallest share of seen rows that the test detects with probability `found_with`;
        NaN if it would miss even all of them."""
        return self._sufficient(self.critical(level), self.found_with)

    def at_most(self, error: float) -> Shares:
        """Return, by exposures, an upper confidence bound of the share of seen rows; NaN if all may have been seen.

        With a larger share, so small an effect would have a probability of `error` or less. An effect below 0 counts
        as 0.
        """
        return self._sufficient(max(self.effect, 0.0), 1 - error)

    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None:
        """Return about how many rows like these are needed to detect that `share` of them was seen `times` times; None
        if no number, or only one above `MOST_NEEDED`, is enough."""
        beyond = -NormalDist().inv_cdf(level)
        reached = -NormalDist().inv_cdf(1 - self.found_with)

        def is_enough(n: int) -> bool:
            sampling = self.deviation * math.sqrt(self.n / n)
            mixed = self._spread_of(share, times, sampling, n)
            return share * self.seen[times] >= beyond * math.hypot(sampling, self.spread) + reached * mixed

        fewest = 1 + bisect_left(range(1, MOST_NEEDED + 1), True, key=is_enough)
        return None if fewest > MOST_NEEDED else fewest

    def _sufficient(self, least: float, probability: float) -> Shares:
        """Return, by exposures, the smallest share with which the effect reaches `least` with this probability."""
        return tuple((times, self._smallest_share(least, probability, times)) for times in SEEN_TIMES)

    def _smallest_share(self, least: float, probability: float, times: int) -> float:
        beyond = NormalDist().inv_cdf(probability)

        def is_enough(share: float) -> bool:
            spread = self._spread_of(share, times, self.deviation, self.n)
            return share * self.seen[times] - least >= beyond * spread

        return smallest(is_enough, 0.0, 1.0) if is_enough(1.0) else NAN

    def _spread_of(self, share: float, times: int, sampling: float, n: int) -> float:
        """Return the standard deviation of the effect if this share of n rows was seen."""
        mixture = share * (1 - share) * self.seen[times] ** 2 / n
        return math.sqrt(sampling**2 + mixture + self.spread**2)
