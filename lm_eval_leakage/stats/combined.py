"""Detection quality: how well do scores separate trained questions from held-out ones? And a combined score: the
probability that a question was trained on, from the scores of all detectors.

Null hypothesis: none is tested; uninformative scores have AUROC 0.5 and a TPR equal to the FPR. The combined score's
probability is that of the lab, where half of the questions were trained on. Limits: intervals cover the choice of
questions, for one training run of one model, and fewer than 10 questions in either half give none; the combined score
is fitted on one model, benchmark and kind of exposure: on others its ranking may hold, its probability will not.
Source: textbook definitions; the interval of AUROC is Newcombe's (2006), which inverts a score test with the variance
of Hanley and McNeil (1982); that of the TPR is ours. Logistic regression with an L2 penalty (scikit-learn); scores are
put on a common scale by their ranks among the known-unseen questions, so that their units do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.stats.pooling import IN_95_PERCENT, Floats

FEWEST_FOR_INTERVAL = 10  # questions of each half
N_TPRS = 4000  # of the interval of a TPR


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval; NaN if undefined, the ends also if there are too few questions for one."""

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


def tpr_at_fpr(trained: Floats, held_out: Floats, fpr: float) -> float:
    """Share of trained questions above the lowest held-out score that at most a share `fpr` of these exceeds."""
    if not len(trained) or not len(held_out):
        return math.nan
    n_allowed = math.floor(fpr * len(held_out) + 1e-9)
    return float((trained > np.sort(held_out)[len(held_out) - 1 - n_allowed]).mean())


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


def auroc_interval(trained: Sequence[float], held_out: Sequence[float]) -> Interval:
    """The AUROC of both halves: the values that a score test does not reject."""
    n, m = len(trained), len(held_out)
    value = auroc(np.asarray(trained, dtype=float), np.asarray(held_out, dtype=float))
    if min(n, m) < FEWEST_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)

    from scipy.optimize import brentq  # takes half a second

    def beyond(true: float) -> float:
        """Above 0 where the test rejects this AUROC."""
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
    """The TPR at the threshold that a share `fpr` of all held-out questions would exceed.

    The number of ours that exceed it is binomial; drawn, it says between which of their scores the threshold lies, and
    how many trained questions lie above that is uniform within; the TPR is then drawn from its Beta posterior with
    Jeffreys' prior.
    """
    own, others = np.sort(np.asarray(trained, dtype=float)), np.sort(np.asarray(held_out, dtype=float))[::-1]
    value = tpr_at_fpr(own, others, fpr)
    if min(len(own), len(others)) < FEWEST_FOR_INTERVAL:
        return Interval(value, math.nan, math.nan)
    above = np.concatenate([[0], len(own) - np.searchsorted(own, others, side="right"), [len(own)]])
    n_exceeding = rng.binomial(len(others), fpr, N_TPRS)
    n_above = rng.integers(above[n_exceeding], above[n_exceeding + 1], endpoint=True)
    low, high = np.quantile(rng.beta(n_above + 0.5, len(own) - n_above + 0.5), (0.025, 0.975))
    return Interval(value, float(low), float(high))


PENALTY = 1.0  # scikit-learn's C
FOLDS = 10


@dataclass(frozen=True)
class CombinedScore:
    """weights, intercept: of the logistic model
    unseen: sorted scores of the known-unseen questions, which set the scale, by detector
    """

    detectors: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float
    unseen: Mapping[str, tuple[float, ...]]

    def probability(self, scores: Mapping[str, float]) -> float:
        """Probability that the question was trained on if half of such questions were. A missing score counts as
        uninformative."""
        from scipy.special import expit

        features = np.array([_on_scale(np.array([scores.get(d, np.nan)]), self.unseen[d])[0] for d in self.detectors])
        return float(expit(float(features @ np.array(self.weights)) + self.intercept))


def fit(scores: Mapping[str, Sequence[float]], trained: Sequence[bool]) -> CombinedScore:
    """Fit to the scores of the same questions by detector; NaN where a detector could not test a question."""
    from sklearn.linear_model import LogisticRegression

    labels = np.array(trained, dtype=bool)
    known = {name: np.asarray(values, dtype=float)[~labels] for name, values in scores.items()}
    unseen = {name: tuple(np.sort(values[np.isfinite(values)]).tolist()) for name, values in known.items()}
    usable = tuple(name for name, own in unseen.items() if len(own) > 1)
    if not usable:
        raise ValueError(
            "no detector has scores on 2 held-out questions, the fewest that set its scale; add held-out questions"
        )
    features = np.column_stack([_on_scale(np.asarray(scores[name], dtype=float), unseen[name]) for name in usable])
    model = LogisticRegression(C=PENALTY).fit(features, labels)
    return CombinedScore(
        usable,
        tuple(model.coef_[0].tolist()),
        float(model.intercept_[0]),
        {name: unseen[name] for name in usable},
    )


def cross_validated(scores: Mapping[str, Sequence[float]], trained: Sequence[bool]) -> Floats:
    """The probability of each question, predicted by a model that was fitted on the other folds."""
    from sklearn.model_selection import StratifiedKFold

    labels = np.array(trained, dtype=bool)
    table = {name: np.asarray(values, dtype=float) for name, values in scores.items()}
    probabilities = np.empty(len(labels))
    for rest, fold in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels):
        fitted = fit({name: values[rest].tolist() for name, values in table.items()}, labels[rest].tolist())
        for place in fold:
            probabilities[place] = fitted.probability({name: float(values[place]) for name, values in table.items()})
    return probabilities


def _on_scale(scores: Floats, unseen: Sequence[float]) -> Floats:
    """Normal scores of the ranks among the known-unseen; scores beyond their range are extended by the distance in
    standard deviations; 0 for NaN."""
    from scipy.special import ndtri  # the quantiles of the normal distribution

    known = np.asarray(unseen)
    below = (np.searchsorted(known, scores, side="left") + np.searchsorted(known, scores, side="right")) / 2
    ranked = ndtri((below + 0.5) / (len(known) + 1))
    spread = max(float(np.std(known)), 1e-12)
    beyond = np.clip((scores - known[-1]) / spread, 0, 5) - np.clip((known[0] - scores) / spread, 0, 5)
    placed: Floats = np.where(np.isnan(scores), 0.0, ranked + np.nan_to_num(beyond))
    return placed
