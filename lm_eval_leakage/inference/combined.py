"""Combined score: the probability that a question was trained on, from the scores of all detectors.

Null hypothesis: none; the probability is that of the lab, where half of the questions were trained on, and shifts with
`prior`. Limits: it is fitted on one model, benchmark and kind of exposure; on others its ranking may hold, its
probability will not. Source: logistic regression with an L2 penalty (scikit-learn); scores are put on a common scale
by their ranks among the known-unseen questions, so that their units do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from lm_eval_leakage.inference.pooling import Floats

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

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> CombinedScore:
        """From its JSON form."""
        unseen = {name: tuple(scores) for name, scores in stored["unseen"].items()}
        return cls(tuple(stored["detectors"]), tuple(stored["weights"]), stored["intercept"], unseen)

    def probability(self, scores: Mapping[str, float], prior: float = 0.5) -> float:
        """Probability that the question was trained on if a share `prior` of such questions was. A missing score
        counts as uninformative."""
        features = np.array([_on_scale(np.array([scores.get(d, np.nan)]), self.unseen[d])[0] for d in self.detectors])
        return float(expit(float(features @ np.array(self.weights)) + self.intercept + logit(prior)))


def fit(scores: Mapping[str, Sequence[float]], trained: Sequence[bool]) -> CombinedScore:
    """Fit to the scores of the same questions by detector; NaN where a detector could not test a question."""
    labels = np.array(trained, dtype=bool)
    unseen = {name: _sorted_finite(np.asarray(values, dtype=float)[~labels]) for name, values in scores.items()}
    usable = tuple(name for name, known in unseen.items() if len(known) > 1)
    if not usable:
        raise ValueError(
            "no detector has scores on 2 held-out questions, the fewest that set its scale; add held-out questions"
        )
    features = np.column_stack([_on_scale(np.asarray(scores[name], dtype=float), unseen[name]) for name in usable])
    model = _logistic().fit(features, labels)
    return CombinedScore(
        usable,
        tuple(model.coef_[0].tolist()),
        float(model.intercept_[0]),
        {name: unseen[name] for name in usable},
    )


def cross_validated(scores: Mapping[str, Sequence[float]], trained: Sequence[bool], *, seed: int = 0) -> Floats:
    """The probability of each question, predicted by a model that was fitted on the other folds."""
    from sklearn.model_selection import StratifiedKFold

    labels = np.array(trained, dtype=bool)
    table = {name: np.asarray(values, dtype=float) for name, values in scores.items()}
    n_folds = min(FOLDS, int(labels.sum()), int((~labels).sum()))
    if n_folds < 2:
        raise ValueError(f"{labels.sum()} trained and {(~labels).sum()} held-out questions; each needs at least 2")
    probabilities = np.empty(len(labels))
    for rest, fold in StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(labels, labels):
        fitted = fit({name: values[rest].tolist() for name, values in table.items()}, labels[rest].tolist())
        for place in fold:
            probabilities[place] = fitted.probability({name: float(values[place]) for name, values in table.items()})
    return probabilities


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=PENALTY)


def _on_scale(scores: Floats, unseen: Sequence[float]) -> Floats:
    """Normal scores of the ranks among the known-unseen; scores beyond their range are extended by the distance in
    standard deviations; 0 for NaN."""
    known = np.asarray(unseen)
    below = (np.searchsorted(known, scores, side="left") + np.searchsorted(known, scores, side="right")) / 2
    ranked = norm.ppf((below + 0.5) / (len(known) + 1))
    spread = max(float(np.std(known)), 1e-12)
    beyond = np.clip((scores - known[-1]) / spread, 0, 5) - np.clip((known[0] - scores) / spread, 0, 5)
    placed: Floats = np.where(np.isnan(scores), 0.0, ranked + np.nan_to_num(beyond))
    return placed


def _sorted_finite(values: Floats) -> tuple[float, ...]:
    return tuple(np.sort(values[np.isfinite(values)]).tolist())
