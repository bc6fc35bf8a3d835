"""Measures how well scores separate trained questions from held-out ones.

Null hypothesis: none is tested; uninformative scores have AUROC 0.5 and a TPR equal to the FPR. Limits: intervals
cover the choice of questions, for one training run of one model, and fewer than 10 questions in either half give none.
Source: textbook definitions; the interval of AUROC is Newcombe's (2006), which inverts a score test with the variance
of Hanley and McNeil (1982); that of the TPR is ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.pooling import IN_95_PERCENT, Floats

FEWEST_FOR_INTERVAL = 10  # questions of each half
N_TPRS = 4000  # of the interval of a TPR


@dataclass(frozen=True)
class Interval:
    """A value with the ends of its 95 % interval. All are NaN if undefined, and the ends with too few questions."""

    value: float
    low: float
    high: float


def auroc(trained: Floats, held_out: Floats) -> float:
    """Return the probability that a trained question has a higher score than a held-out one; a tie counts half."""
    if not len(trained) or not len(held_out):
        return math.nan
    ordered = np.sort(held_out)
    below = np.searchsorted(ordered, trained, side="left")
    not_above = np.searchsorted(ordered, trained, side="right")
    return float((below + not_above).mean() / (2 * len(held_out)))


def tpr_at_fpr(trained: Floats, held_out: Floats, fpr: float) -> float:
    """Return the share of trained questions above the threshold, which is the lowest held-out score that at most a
    share `fpr` of the held-out questions exceeds."""
    if not len(trained) or not len(held_out):
        return math.nan
    n_allowed = math.floor(fpr * len(held_out) + 1e-9)
    return float((trained > np.sort(held_out)[len(held_out) - 1 - n_allowed]).mean())


@dataclass(frozen=True)
class Confusion:
    """The counts of a rule's decisions, with the rates computed from them; a rate over no question is NaN."""

    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int

    @classmethod
    def of(cls, trained: Sequence[bool], held_out: Sequence[bool]) -> Confusion:
        """Return the counts of the decisions on both halves, True for a flagged question."""
        return cls(sum(trained), len(trained) - sum(trained), sum(held_out), len(held_out) - sum(held_out))

    @property
    def recall(self) -> float:
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def precision(self) -> float:
        return _share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def f1(self) -> float:
        return _share(2 * self.true_positives, 2 * self.true_positives + self.false_positives + self.false_negatives)

    @property
    def fpr(self) -> float:
        return _share(self.false_positives, self.false_positives + self.true_negatives)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def auroc_interval(trained: Sequence[float], held_out: Sequence[float]) -> Interval:
    """Return the AUROC with its interval: all values that a score test does not reject."""
    n, m = len(trained), len(held_out)
    value = auroc(np.asarray(trained, dtype=float), np.asarray(held_out, dtype=float))
    if min(n, m) < FEWEST_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)

    from scipy.optimize import brentq  # takes half a second

    def beyond(true: float) -> float:
        """Return a number above 0 if the test rejects this AUROC."""
        more = (n + m) / 2 - 1  # for both halves, as the variance would otherwise depend on which of them varies more
        factor = 1 + more * (1 - true) / (2 - true) + more * true / (1 + true)
        return (value - true) ** 2 - IN_95_PERCENT**2 * true * (1 - true) * factor / (n * m)

    tiny = 1e-9
    low = 0.0 if value <= tiny else brentq(beyond, tiny**2, min(value, 1 - tiny))
    high = 1.0 if value >= 1 - tiny else brentq(beyond, max(value, tiny), 1 - tiny**1.5)
    return Interval(value, float(low), float(high))


def tpr_interval(
    trained: Sequence[float], held_out: Sequence[float], fpr: float, *, rng: np.random.Generator
) -> Interval:
    """Return the TPR at the threshold that a share `fpr` of all possible held-out questions would exceed.

    The number of the given held-out questions above this threshold is binomial. Each draw of it places the threshold
    between two of their scores. The number of trained questions above the threshold is then drawn uniformly from those
    that are possible there, and the TPR from its Beta posterior with Jeffreys' prior.
    """
    positives, negatives = np.sort(np.asarray(trained, dtype=float)), np.sort(np.asarray(held_out, dtype=float))[::-1]
    value = tpr_at_fpr(positives, negatives, fpr)
    if min(len(positives), len(negatives)) < FEWEST_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)
    above = np.concatenate(
        [[0], len(positives) - np.searchsorted(positives, negatives, side="right"), [len(positives)]]
    )
    n_exceeding = rng.binomial(len(negatives), fpr, N_TPRS)
    n_above = rng.integers(above[n_exceeding], above[n_exceeding + 1], endpoint=True)
    low, high = np.quantile(rng.beta(n_above + 0.5, len(positives) - n_above + 0.5), (0.025, 0.975))
    return Interval(value, float(low), float(high))
