"""How many questions may have been seen, by the data-set test of option orders: what it could find, before a model is
asked, and an upper confidence bound of the share, afterwards.

A question that was seen k times prefers its published order; how much is described by the distribution of that order's
rank among all orders, which needs no unit and so carries over to other models as far as their memory is like that of
the models it was measured on (docs/validity.md). The scores themselves are those of the audited model.
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

FOUND_WITH = 0.8
DETECT, DETECT_TIMES = 0.25, 3  # share of the questions, seen so many times, that a test should find
MOST_NEEDED = 10**6  # questions
SEEN_ERROR = 0.05  # of an upper bound of the share of seen questions, over all looks at a benchmark and both stages
Shares = tuple[tuple[int, float], ...]  # by exposures, a share of seen questions
POWER_SEED = 0
SEEN_TIMES = (1, 3)  # exposures for which it is known
CONTROL_FORMS = ("in words", "in capitals")  # in which an audit asks every order again, in this order
# By the number of layouts in which each order is asked, by what the scores are ("orders", "reference" or a control
# form) and by exposures: in how many questions the published order was the first, second, ... by score.
SEEN_IN_LAYOUTS: Mapping[int, Mapping[str, Mapping[int, Sequence[int]]]] = yaml.safe_load(
    Path(__file__).with_name("seen_ranks.yaml").read_text(encoding="utf-8")
)
SEEN_RANKS = SEEN_IN_LAYOUTS[1]


class Power(Protocol):
    """What a test finds on the questions that it was used on, see `OrderPower`."""

    def critical(self, level: float) -> float: ...
    def detectable(self, level: float) -> Shares: ...
    def at_most(self, error: float) -> Shares: ...
    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None: ...


@dataclass(frozen=True, eq=False)
class OrderPower:
    """What the test of option orders finds at any level, on the questions that it was used on, and how many of them
    may have been seen.

    weights: of each question, the weight of every order, the published one first, `(n_orders,)`
    bases: their probabilities under the null hypothesis; None if they are equally likely
    ranks: by exposures, in how many seen questions the published order was in the first, second, ... of so many
        equally wide parts of the question's orders, the most likely ones first
    families: of each question, the number of its family; None if each is one of its own
    found_with: the probability of finding
    deviation: standard deviation of a normal addition to the sum under the null hypothesis
    priors: how likely the orders of an unseen question were to be published; None if all are as likely
    """

    weights: Sequence[Floats]
    bases: Sequence[Floats] | None = None
    ranks: Mapping[int, Sequence[float]] = field(default_factory=lambda: SEEN_RANKS["orders"])
    families: Sequence[int] | None = None
    found_with: float = FOUND_WITH
    deviation: float = 0.0
    priors: Sequence[Floats] | None = None

    def detectable(self, level: float) -> Shares:
        """For each of `SEEN_TIMES`, the smallest share of questions, seen so often, that it finds at `level` with
        probability `found_with`; NaN if even all would be missed. The sum is taken to be normal, as a mixture of
        unseen and seen families, each of which is seen as a whole or not at all."""
        return self._sufficient(self.critical(level), self.found_with)

    def critical(self, level: float) -> float:
        """The sum from which the test rejects at `level`, see `critical_sum`."""
        weights, bases = self.weights, self.bases
        if len(set(self._numbers)) < len(weights):
            weights, bases = as_units(weights, bases or equal_bases(weights), self._numbers)
        rng = np.random.default_rng(POWER_SEED)
        return critical_sum(weights, rng, level, bases, self.deviation)

    def at_most(self, error: float) -> Shares:
        """For each of `SEEN_TIMES`, an upper confidence bound of the share of questions that were seen so often: if it
        were larger, so small a sum of the published orders would have a probability of `error` or less; NaN if all may
        have been seen. A sum below that of unseen questions counts as that: where other orders than the published
        ones are natural, it says nothing of memory. The natural addition to the sum is among what is by chance. Sums
        are corrected for continuity by half the smallest step, which only matters where all questions have two orders.
        """
        found, expected = math.fsum(own[0] for own in self.weights), float(self._if_unseen[:, 0].sum())
        steps = -np.concatenate([np.diff(own) for own in self._likeliest])
        half_step = float(np.min(steps[steps > EQUAL], initial=math.inf)) / 2
        return self._sufficient(max(found, expected) + half_step, 1 - error, self.deviation)

    def _sufficient(self, least: float, probability: float, deviation: float = 0.0) -> Shares:
        """The smallest shares with which the sum is at least `least` with this probability."""
        unseen = self._if_unseen
        return tuple(
            (times, _smallest_share(unseen, self._if_seen(times), least, probability, deviation))
            for times in self.ranks
        )

    def needed(self, share: float, level: float, times: int = DETECT_TIMES) -> int | None:
        """About how many questions like these find at `level`, with probability `found_with`, that `share` of them was
        seen `times` times; None if no number does, or more than `MOST_NEEDED`. The sum is taken to be normal, under
        the null hypothesis, too."""
        n_units, n = len(set(self._numbers)), len(self.weights)
        null = _moments(*as_units(self.weights, self.bases or equal_bases(self.weights), self._numbers))
        mixed = (1 - share) * self._if_unseen + share * self._if_seen(times)
        (mean, variance), (other, its_variance) = (
            # rounding may leave a variance of 0 below it
            (float(own[:, 0].mean()), max(0.0, float((own[:, 1] - own[:, 0] ** 2).mean())))
            for own in (null, mixed)
        )
        beyond, reached = (-NormalDist().inv_cdf(part) for part in (level, 1 - self.found_with))

        def is_found(n_asked: int) -> bool:
            spread = math.hypot(math.sqrt(n_asked * variance), n_asked * self.deviation / n_units)
            return n_asked * (other - mean) >= beyond * spread + reached * math.sqrt(n_asked * its_variance)

        fewest = 1 + bisect_left(range(1, MOST_NEEDED + 1), True, key=is_found)
        return None if fewest > MOST_NEEDED else math.ceil(fewest * n / n_units)

    @property
    def _numbers(self) -> Sequence[int]:
        return range(len(self.weights)) if self.families is None else self.families

    @cached_property
    def _likeliest(self) -> list[Floats]:
        return [np.sort(own)[::-1] for own in self.weights]

    @cached_property
    def _if_unseen(self) -> Floats:
        return _moments(*as_units(self.weights, self.priors or equal_bases(self.weights), self._numbers))

    def _if_seen(self, times: int) -> Floats:
        parts = {size: _spread(self.ranks[times], size) for size in {len(own) for own in self._likeliest}}
        return _moments(*as_units(self._likeliest, [parts[len(own)] for own in self._likeliest], self._numbers))


def _smallest_share(unseen: Floats, seen: Floats, least: float, probability: float, deviation: float) -> float:
    """NaN if not even all are enough."""

    def is_enough(share: float) -> bool:
        return _reached(unseen, seen, share, least, deviation) >= probability

    return smallest(is_enough, 0.0, 1.0) if is_enough(1.0) else NAN


def seen_at_most(powers: Sequence[Power], error: float) -> Shares:
    """By exposures, the smallest of the upper bounds of several tests of the same questions, each with its part of the
    error; NaN if none of them has one; empty if there are none."""
    every = [dict(power.at_most(error / len(powers))) for power in powers]
    return tuple((times, float(np.fmin.reduce([own[times] for own in every]))) for times in (every or [{}])[0])


def found_by_all(shares: Iterable[Shares]) -> Shares:
    """What several tests find that must agree: by exposures, the largest of their smallest shares; NaN if one of them
    would miss all. If each finds its share with probability 1 - d, k of them find the largest with 1 - k d or more."""
    every = [dict(own) for own in shares]
    return tuple((count, float(np.max([own[count] for own in every]))) for count in every[0])


def needed_by_all(powers: Iterable[Power], detect: float, level: float) -> int | None:
    """About how many questions all of several tests need, see `OrderPower.needed`; None if one of them needs more than
    any number, or if there are none."""
    found = [power.needed(detect, level) for power in powers]
    return max((n for n in found if n is not None), default=None) if None not in found else None


def _spread(ranks: Sequence[float], n_orders: int) -> Floats:
    """The probabilities of `n_orders` places, from those of equally wide parts of them. Of fewer orders than there are
    parts, as those of as many drawn from the parts, the published one among them."""
    n, shares = len(ranks), np.asarray(ranks, dtype=float) / math.fsum(ranks)
    if n_orders < n:
        from scipy.stats import hypergeom  # takes half a second

        above = np.arange(n)  # others that are more likely, for each rank
        return np.array([shares @ hypergeom.pmf(place, n - 1, above, n_orders - 1) for place in range(n_orders)])
    ends = np.concatenate([[0.0], np.cumsum(shares)])
    places = np.interp(np.linspace(0, 1, n_orders + 1), np.linspace(0, 1, n + 1), ends)
    spread: Floats = np.diff(places)
    return spread


def _moments(weights: Sequence[Floats], bases: Sequence[Floats]) -> Floats:
    """Mean and mean square of each unit, `(n_units, 2)`."""
    return np.array([(float(base @ own), float(base @ own**2)) for own, base in zip(weights, bases, strict=True)])


def _reached(unseen: Floats, seen: Floats, share: float, least: float, deviation: float) -> float:
    """The probability that the sum of a mixture, with a normal addition of this deviation, is at least `least`."""
    means, squares = ((1 - share) * unseen + share * seen).T
    spread = math.sqrt(max(1e-300, float((squares - means**2).sum()) + deviation**2))
    return 0.5 * math.erfc((least - float(means.sum())) / spread / math.sqrt(2))
