"""Which questions has the model seen, at a target false discovery rate?

Null hypothesis of a question's p-value: it is exchangeable with the known-unseen questions, so that its score is as
likely as any of theirs to be the highest. Limits: questions that differ in style, length or topic from the
known-unseen ones violate it, which `inference.exchangeability` tests but cannot rule out. Source: conformal
p-values with Benjamini-Hochberg as in PTDI (arXiv 2510.09717), scaled by Storey's estimate of the unseen share; for
several models jointly, Bonferroni over models (compare arXiv 2605.21543).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import false_discovery_control

from lm_eval_leakage.inference.pooling import Floats

FEWEST_TO_NAME = 10  # questions; a set is not chosen from fewer
STOREY = 0.5  # Storey's lambda: p-values above it are taken to be those of unseen questions


@dataclass(frozen=True)
class Identified:
    """flagged: whether each question is in the set, in which at most a share `level` is expected to be unseen
    pvalues: conformal p-value of each question
    unseen_share: estimated share of unseen questions, 1 if it is not estimated
    level: the target false discovery rate
    """

    flagged: tuple[bool, ...]
    pvalues: tuple[float, ...]
    unseen_share: float
    level: float


def conformal_pvalues(scores: Sequence[float], unseen: Sequence[float]) -> Floats:
    """(1 + known-unseen questions that score at least as high) / (1 + known-unseen questions), for each score."""
    if not len(unseen):
        raise ValueError("there are no known-unseen questions; a conformal p-value needs at least one")
    ordered = np.sort(np.asarray(unseen, dtype=float))
    at_least_as_high = len(ordered) - np.searchsorted(ordered, np.asarray(scores, dtype=float), side="left")
    pvalues: Floats = (1 + at_least_as_high) / (1 + len(ordered))
    return pvalues


def unseen_share(pvalues: Sequence[float]) -> float:
    """Storey's estimate, biased upwards: only unseen questions have p-values above 1/2, and half of them do."""
    above = sum(pvalue > STOREY for pvalue in pvalues)
    return min(1.0, (1 + above) / (len(pvalues) * (1 - STOREY))) if len(pvalues) else 1.0


def joint(pvalues: Sequence[Sequence[float] | Floats]) -> Floats:
    """Of each question, the smallest p-value over the models times their number (Bonferroni), which is valid however
    the models depend on each other.

    pvalues: `(n_models, n_questions)`
    """
    each = np.asarray(pvalues, dtype=float)
    least: Floats = np.minimum(1.0, len(each) * each.min(axis=0))
    return least


def from_pvalues(pvalues: Floats, level: float, *, estimate_share: bool = True) -> Identified:
    """The questions that stand out from the known-unseen ones, by the Benjamini-Hochberg procedure.

    level: target false discovery rate, the expected share of unseen questions among the flagged
    estimate_share: False controls the rate without estimating how many questions are unseen, and flags fewer
    """
    if isinstance(level, bool) or not 0 < level < 1:
        raise ValueError(f"level is {level!r}; the target false discovery rate must be above 0 and below 1")
    share = unseen_share(pvalues.tolist()) if estimate_share else 1.0
    adjusted = false_discovery_control(pvalues) * share if len(pvalues) else pvalues
    return Identified(tuple((adjusted <= level).tolist()), tuple(pvalues.tolist()), share, level)
