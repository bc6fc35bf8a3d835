"""Which questions can be kept as clean for several models at once, at a target rate of contaminated ones among them?

Null hypothesis of a question's p-value: it was seen by at least one model. For each model, the question is compared
with those that this model is known to have seen; the highest p-value over the models is valid whichever of them has
seen the question, and however the models' scores depend on each other.

How many questions were seen is estimated where the p-values are high, since few clean questions have such: the count
above a threshold, over the share of a uniform distribution that is above it, is an envelope of the null from its right
tail (p-values of questions that several models have seen are higher still). The threshold goes down from 1 for as long
as that lowers the estimate, so that it depends only on p-values above it. Benjamini-Hochberg on the p-values times the
estimated share then controls the expected rate of contaminated questions among the kept.

Limits: the questions that a model has seen must be exchangeable with those that it is known to have seen. If it saw
them less often than those, they look unseen and are kept; no rule that reads scores can prevent that. Scores of unseen
questions cannot replace them: they tell how many questions were flagged by mistake, never how many were missed.
Source: joint envelope conformal selection, Zeng, Wei and Liu (arXiv 2605.21543), known to us by its abstract, so that
the details are ours; Storey, Taylor and Siegmund (2004); for conformal p-values, Bates et al. (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.inference.conformal import conformal_pvalues
from lm_eval_leakage.inference.false_discoveries import CONFIDENCE, false_bound
from lm_eval_leakage.inference.pooling import Floats

FEWEST_SEEN = 19  # known-seen questions of a model; with fewer, no p-value reaches 5 %
THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


@dataclass(frozen=True)
class KeptQuestions:
    """kept: whether each question is in the set
    pvalues: of each question, that some model has seen it
    seen_share: estimated share of questions that some model has seen, an upper estimate
    most_seen: at most how many of the kept were seen by some model, with probability CONFIDENCE
    target_rate: expected rate of those among the kept, at most
    """

    kept: tuple[bool, ...]
    pvalues: tuple[float, ...]
    seen_share: float
    most_seen: int
    target_rate: float

    @property
    def n_kept(self) -> int:
        return sum(self.kept)


def keep(by_model: Sequence[Floats], n_seen: Sequence[int], target_rate: float) -> KeptQuestions:
    """The largest set that is clean for all models at the target rate; empty if the scores are too weak for one.

    by_model: `seen_pvalues` of the same questions by each model
    n_seen: number of known-seen questions of each model
    """
    check_target_rate(target_rate)
    pvalues: Floats = np.max(by_model, axis=0)
    share = seen_share(pvalues)
    kept = _kept(pvalues, share, target_rate)
    level = (1 - CONFIDENCE) / len(by_model)
    most_seen = sum(false_bound(own, n, level).among(own[kept]) for own, n in zip(by_model, n_seen, strict=True))
    most_seen = min(most_seen, int(kept.sum()))
    return KeptQuestions(tuple(kept.tolist()), tuple(pvalues.tolist()), share, most_seen, target_rate)


def check_target_rate(target_rate: float) -> None:
    if isinstance(target_rate, bool) or not 0 < target_rate < 1:
        raise ValueError(
            f"target_rate is {target_rate!r}; the target rate of contaminated questions among the kept must be above "
            "0 and below 1, such as 0.1"
        )


def seen_pvalues(scores: Floats | Sequence[float], seen: Sequence[float]) -> Floats:
    """(1 + known-seen questions that score at least as low) / (1 + known-seen questions), for each score."""
    if len(seen) < FEWEST_SEEN:
        raise ValueError(
            f"there are {len(seen)} known-seen scores; with fewer than {FEWEST_SEEN} no p-value reaches 5 %, so add "
            "known-seen questions"
        )
    return conformal_pvalues((-np.asarray(scores, dtype=float)).tolist(), (-np.asarray(seen, dtype=float)).tolist())


def seen_share(pvalues: Floats) -> float:
    """Upper estimate of the share of questions that some model has seen, from the highest p-values."""
    if not len(pvalues):
        return 1.0
    lowest = np.inf
    for threshold in THRESHOLDS:
        estimate = float((1 + (pvalues > threshold).sum()) / (len(pvalues) * (1 - threshold)))
        if estimate >= lowest:
            break  # this threshold is the chosen one: what is below it has not been looked at
        lowest = estimate
    return min(1.0, estimate)


def _kept(pvalues: Floats, share: float, target_rate: float) -> np.ndarray:
    ascending = np.sort(pvalues)
    expected_seen = ascending * share * len(pvalues)
    fitting = np.flatnonzero(expected_seen <= target_rate * np.arange(1, len(pvalues) + 1) + 1e-9)
    most = ascending[fitting[-1]] if len(fitting) else -1.0
    return np.asarray(pvalues <= most)
