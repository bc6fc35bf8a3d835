"""Computes the power of the data-set test of option orders before a model is audited, and an upper confidence bound of
the share of seen questions afterwards.

A model prefers the published order of a question that it has seen k times. The preference is described by the
distribution of that order's rank among all orders. Ranks have no unit, so the distribution carries over to other
models as far as they remember like the measured ones (docs/validity.md). The scores themselves are those of the
audited model.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

import numpy as np
import yaml

from lm_eval_leakage.stats.order_sum import EQUAL, as_units, critical_sum, equal_bases
from lm_eval_leakage.stats.pooling import NAN, Floats, smallest

FOUND_WITH = 0.8  # probability
DETECT, DETECT_TIMES = 0.25, 3  # share of the questions, seen so many times, that a test should detect
MOST_NEEDED = 10**6  # questions
# error of an upper bound of the share of seen questions, over all looks at a benchmark and both stages
SEEN_ERROR = 0.05
Shares = tuple[tuple[int, float], ...]  # by exposures, a share of seen questions
POWER_SEED = 0
SEEN_TIMES = (1, 3)  # exposures for which the ranks were measured
CONTROL_FORMS = ("in words", "in capitals")  # forms in which an audit scores every order again, in this order
# By the number of layouts in which each order is scored, by the kind of score ("orders", "reference" or a control
# form) and by exposures: the numbers of questions whose published order was the first, second, ... by score.
SEEN_IN_LAYOUTS: Mapping[int, Mapping[str, Mapping[int, Sequence[int]]]] = yaml.safe_load(
    Path(__file__).with_name("seen_ranks.yaml").read_text(encoding="utf-8")
)
SEEN_RANKS = SEEN_IN_LAYOUTS[1]


class Power(Protocol):
    """The power of a test on the tested questions; `OrderPower` describes its methods."""

    def critical(self, level: float) -> float: ...
    def detectable(self, level: float) -> Shares: ...
    def at_most(self, error: float) -> Shares: ...
    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None: ...


@dataclass(frozen=True, eq=False)
class OrderPower:
    """The power of the test of option orders on the tested questions, at any level; it also bounds how many of them
    were seen.

    weights: for each question, the weight of every order, the published one first, `(n_orders,)`
    bases: for each question, the probabilities of its orders under the null hypothesis; None if they are equal
    ranks: by exposures, the distribution of the published order of a seen question over equally wide parts of its
        orders, the most likely ones first, as numbers of questions
    families: the number of each question's family; None if each question is a family
    found_with: the probability with which a share counts as detectable
    deviation: standard deviation of a normal addition to the sum under the null hypothesis
    priors: for each question, how likely each of its orders was to be published if it is unseen; None if equally
    """

    weights: Sequence[Floats]
    bases: Sequence[Floats] | None = None
    ranks: Mapping[int, Sequence[float]] = field(default_factory=lambda: SEEN_RANKS["orders"])
    families: Sequence[int] | None = None
    found_with: float = FOUND_WITH
    deviation: float = 0.0
    priors: Sequence[Floats] | None = None

    def detectable(self, level: float) -> Shares:
        """Return, by exposures, the smallest share of seen questions that the test detects at `level` with probability
        `found_with`; NaN if it would miss even all of them. The sum is taken to be normal, as a mixture of unseen and
        seen families, each of which is seen as a whole or not at all."""
        return self._sufficient(self.critical(level), self.found_with)

    def critical(self, level: float) -> float:
        """Return the smallest sum at which the test rejects at `level`, see `critical_sum`."""
        weights, bases = self.weights, self.bases
        if len(set(self._numbers)) < len(weights):
            weights, bases = as_units(weights, bases or equal_bases(weights), self._numbers)
        rng = np.random.default_rng(POWER_SEED)
        return critical_sum(weights, rng, level, bases, self.deviation)

    def at_most(self, error: float) -> Shares:
        """Return, by exposures, an upper confidence bound of the share of seen questions; NaN if all may have been
        seen.

        With a larger share, so small a sum of the published orders would have a probability of `error` or less. A sum
        below that of unseen questions counts as theirs: it says that other orders than the published ones are natural,
        and nothing of memory. The natural addition to the sum counts as random. Sums are corrected for continuity by
        half the smallest step, which only matters if all questions have two orders.
        """
        observed = math.fsum(weights[0] for weights in self.weights)
        expected = float(self._if_unseen[:, 0].sum())
        steps = -np.concatenate([np.diff(weights) for weights in self._likeliest])
        half_step = float(np.min(steps[steps > EQUAL], initial=math.inf)) / 2
        return self._sufficient(max(observed, expected) + half_step, 1 - error, self.deviation)

    def _sufficient(self, least: float, probability: float, deviation: float = 0.0) -> Shares:
        """Return, by exposures, the smallest share with which the sum reaches `least` with this probability."""
        unseen = self._if_unseen
        return tuple(
            (times, _smallest_share(unseen, self._if_seen(times), least, probability, deviation))
            for times in self.ranks
        )

    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None:
        """Return about how many questions like these are needed to detect at `level`, with probability `found_with`,
        that `share` of them was seen `times` times; None if no number, or only one above `MOST_NEEDED`, is enough. The
        sum is taken to be normal, under the null hypothesis too."""
        n_units, n = len(set(self._numbers)), len(self.weights)
        null = _moments(*as_units(self.weights, self.bases or equal_bases(self.weights), self._numbers))
        mixed = (1 - share) * self._if_unseen + share * self._if_seen(times)
        (null_mean, null_variance), (mean, variance) = _mean_and_variance(null), _mean_and_variance(mixed)
        beyond, reached = (-NormalDist().inv_cdf(part) for part in (level, 1 - self.found_with))

        def is_enough(n_asked: int) -> bool:
            spread = math.hypot(math.sqrt(n_asked * null_variance), n_asked * self.deviation / n_units)
            return n_asked * (mean - null_mean) >= beyond * spread + reached * math.sqrt(n_asked * variance)

        fewest = 1 + bisect_left(range(1, MOST_NEEDED + 1), True, key=is_enough)
        return None if fewest > MOST_NEEDED else math.ceil(fewest * n / n_units)

    @property
    def _numbers(self) -> Sequence[int]:
        return range(len(self.weights)) if self.families is None else self.families

    @cached_property
    def _likeliest(self) -> list[Floats]:
        return [np.sort(weights)[::-1] for weights in self.weights]

    @cached_property
    def _if_unseen(self) -> Floats:
        return _moments(*as_units(self.weights, self.priors or equal_bases(self.weights), self._numbers))

    def _if_seen(self, times: int) -> Floats:
        sizes = [len(weights) for weights in self._likeliest]
        parts = {size: _spread(self.ranks[times], size) for size in set(sizes)}
        return _moments(*as_units(self._likeliest, [parts[size] for size in sizes], self._numbers))


def _smallest_share(unseen: Floats, seen: Floats, least: float, probability: float, deviation: float) -> float:
    """Return the smallest share of seen units with which the sum reaches `least` with this probability, or NaN."""

    def is_enough(share: float) -> bool:
        return _reached(unseen, seen, share, least, deviation) >= probability

    return smallest(is_enough, 0.0, 1.0) if is_enough(1.0) else NAN


def seen_at_most(powers: Sequence[Power], error: float) -> Shares:
    """Return, by exposures, the smallest upper bound of several tests of the same questions, which divide the error.

    A bound is NaN if no test has one. The result is empty if there are no tests.
    """
    bounds = [dict(power.at_most(error / len(powers))) for power in powers]
    return tuple((times, float(np.fmin.reduce([bound[times] for bound in bounds]))) for times in (bounds or [{}])[0])


def found_by_all(shares: Iterable[Shares]) -> Shares:
    """Return, by exposures, the share that all of several tests detect: the largest of theirs; NaN if one of them
    would miss all questions. If each of k tests detects its share with probability 1 - d, all detect the largest with
    probability 1 - k d or more."""
    of_tests = [dict(by_exposures) for by_exposures in shares]
    return tuple((times, float(np.max([test[times] for test in of_tests]))) for times in of_tests[0])


def needed_by_all(powers: Iterable[Power], detect: float, level: float) -> int | None:
    """Return about how many questions all of several tests need, see `OrderPower.needed`; None if no number is enough
    for one of them, or if there are no tests."""
    numbers = [power.needed(detect, level) for power in powers]
    if None in numbers:
        return None
    return max((n for n in numbers if n is not None), default=None)


def _spread(ranks: Sequence[float], n_orders: int) -> Floats:
    """Return the probabilities of `n_orders` places from those of equally wide parts. With fewer orders than parts,
    the orders count as drawn from the parts, with the published one among them."""
    n, shares = len(ranks), np.asarray(ranks, dtype=float) / math.fsum(ranks)
    if n_orders < n:
        from scipy.stats import hypergeom  # takes half a second

        above = np.arange(n)  # for each rank, the number of parts that are more likely
        return np.array([shares @ hypergeom.pmf(place, n - 1, above, n_orders - 1) for place in range(n_orders)])
    ends = np.concatenate([[0.0], np.cumsum(shares)])
    places = np.interp(np.linspace(0, 1, n_orders + 1), np.linspace(0, 1, n + 1), ends)
    spread: Floats = np.diff(places)
    return spread


def _moments(weights: Sequence[Floats], bases: Sequence[Floats]) -> Floats:
    """Return mean and mean square of each unit's weight, `(n_units, 2)`."""
    pairs = zip(weights, bases, strict=True)
    return np.array([(float(base @ unit_weights), float(base @ unit_weights**2)) for unit_weights, base in pairs])


def _mean_and_variance(moments: Floats) -> tuple[float, float]:
    """Return the mean over units of their means and of their variances, which rounding may leave below 0."""
    variances = moments[:, 1] - moments[:, 0] ** 2
    return float(moments[:, 0].mean()), max(0.0, float(variances.mean()))


def _reached(unseen: Floats, seen: Floats, share: float, least: float, deviation: float) -> float:
    """Return the probability that the sum of a mixture, with a normal addition of this deviation, reaches `least`."""
    means, squares = ((1 - share) * unseen + share * seen).T
    spread = math.sqrt(max(1e-300, float((squares - means**2).sum()) + deviation**2))
    return 0.5 * math.erfc((least - float(means.sum())) / spread / math.sqrt(2))
