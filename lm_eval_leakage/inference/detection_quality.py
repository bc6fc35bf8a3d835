"""Detection quality: how well do scores separate trained questions from held-out ones?

Null hypothesis: none is tested; uninformative scores have AUROC 0.5 and a TPR equal to the FPR. Limits: intervals
cover the choice of questions, for one training run of one model. Source: textbook definitions; intervals are
percentile bootstraps in which both halves are resampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.inference.pooling import Floats

BOOTSTRAP_RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % bootstrap interval; NaN if undefined."""

    value: float
    low: float
    high: float


def auroc(trained: Floats, held_out: Floats) -> float:
    """Probability that a trained question has the higher score; a tie counts half."""
    if not len(trained) or not len(held_out):
        return math.nan
    ordered = np.sort(held_out)
    below = np.searchsorted(ordered, trained, side="left")
    not_above = np.searchsorted(ordered, trained, side="right")
    return float((below + not_above).mean() / (2 * len(held_out)))


def threshold_at_fpr(held_out: Floats, fpr: float) -> float:
    """The lowest held-out score that at most a share `fpr` of them exceeds; scores above it are flagged."""
    if not len(held_out):
        return math.nan
    n_allowed = math.floor(fpr * len(held_out) + 1e-9)
    return float(np.sort(held_out)[len(held_out) - 1 - n_allowed])


def tpr_at_fpr(trained: Floats, held_out: Floats, fpr: float) -> float:
    """Share of trained questions above the threshold that flags at most a share `fpr` of the held-out ones."""
    if not len(trained) or not len(held_out):
        return math.nan
    return float((trained > threshold_at_fpr(held_out, fpr)).mean())


@dataclass(frozen=True)
class Confusion:
    """Counts of a rule's decisions; a rate over nothing is NaN."""

    true_positives: int
    false_negatives: int
    false_positives: int
    true_negatives: int

    @classmethod
    def of(cls, trained: Sequence[bool], held_out: Sequence[bool]) -> Confusion:
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


def bootstrap(
    measure: Callable[[Floats, Floats], float],
    trained: Sequence[float],
    held_out: Sequence[float],
    *,
    n_resamples: int = BOOTSTRAP_RESAMPLES,
    rng: np.random.Generator,
) -> Interval:
    """`measure` of both halves, with the interval from resampling the questions of each half."""
    own, others = np.asarray(trained, dtype=float), np.asarray(held_out, dtype=float)
    value = measure(own, others)
    if math.isnan(value):
        return Interval(math.nan, math.nan, math.nan)
    drawn = [
        measure(own[rng.integers(len(own), size=len(own))], others[rng.integers(len(others), size=len(others))])
        for _ in range(n_resamples)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Interval(value, float(low), float(high))
