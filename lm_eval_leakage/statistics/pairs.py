"""Is the published order preferred between two options at a time?

`pair_published`, as published: the first two options in their order are the likeliest of all ordered pairs. Null
hypothesis: all n(n-1) pairs are equally likely to be it. It compares different words, so that a short pair wins
whatever its order. `pair_direction`, like for like: the gain of every pair over its own reverse, summed in the
published direction, beats that sum in every other order of the options. Null hypothesis: the orders are
exchangeable, so that each wins with probability 1 / n!. Limits: a natural order of the options breaks both.
Source: Hidayat et al., 2025 (arXiv 2505.24263), permutation-Q; the second is our mending of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.inference.pooling import EVIDENCE_ROWS
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence
from lm_eval_leakage.statistics import statistics

EXACT_UP_TO = 7  # options; their 5,040 orders are enumerated
DRAWN = 5_000


@dataclass(frozen=True)
class PairEvidence(Evidence):
    """flagged: nothing compared is as likely as the published

    pvalue: share of what is compared, the published included, that is at least as likely; ties count against
    margin: nats by which the published beats the best other; negative where it does not
    n_compared: pairs, or orders
    """

    margin: float
    n_compared: int

    @property
    def statistic(self) -> float:
        return self.margin


def _evidence(published: float, others: NDArray[np.float64]) -> PairEvidence:
    n_compared = 1 + len(others)
    at_least = 1 + int((others >= published).sum())
    margin = published - float(others.max())
    return PairEvidence(margin > 0, at_least / n_compared, 1 / n_compared, margin, n_compared)


@statistics.register("pair_published")
@dataclass(frozen=True)
class PairPublished:
    probe: ClassVar[str] = "option_pairs"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[PairEvidence]:
        return [_evidence(question.answers[0], np.array(question.answers[1:])) for question in answered]


@statistics.register("pair_direction")
@dataclass(frozen=True)
class PairDirection:
    probe: ClassVar[str] = "option_pairs"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[PairEvidence]:
        return [self._direction(question) for question in answered]

    def _direction(self, answered: Answered) -> PairEvidence:
        n_options = len(answered.question.options)
        gains = _gains(answered.answers, n_options)
        first, second = np.triu_indices(n_options, 1)
        orders = np.array(_orders(n_options, rng=random.Random(answered.question.id)))
        sums = gains[orders[:, first], orders[:, second]].sum(axis=1)
        return _evidence(float(sums[0]), sums[1:])


def _gains(loglikelihoods: Sequence[float], n_options: int) -> NDArray[np.float64]:
    """`(n_options, n_options)`: nats by which option i before j beats j before i."""
    ordered = np.zeros((n_options, n_options))
    for (i, j), score in zip(permutations(range(n_options), 2), loglikelihoods, strict=True):
        ordered[i, j] = score
    # rounded, so that orders whose sums differ by the order of addition only are ties
    gains: NDArray[np.float64] = np.round(ordered - ordered.T, 9)
    return gains


def _orders(n_options: int, *, rng: random.Random) -> list[tuple[int, ...]]:
    """Orders of the options, the published one first: all, or DRAWN others where there are too many."""
    if n_options <= EXACT_UP_TO:
        return list(islice(permutations(range(n_options)), math.factorial(n_options)))
    drawn = [tuple(rng.sample(range(n_options), n_options)) for _ in range(DRAWN)]
    published = tuple(range(n_options))
    return [published, *(order for order in drawn if order != published)]
