"""Tests whether flagged questions are answered correctly more often than unflagged ones of the same difficulty.

Flags favour short questions, natural orders and easy subjects, so flagged questions may be easier without any leakage.
The two groups are therefore compared within strata of similar difficulty (subject, length, whether another model
answers correctly), pooled by the weights of Mantel and Haenszel, which are those of a regression with one intercept
per stratum. Null hypothesis of the gap's p-value: within each stratum, being flagged and being answered correctly are
independent. Limits: a difference in difficulty within strata remains: where an easier question of the same stratum is
also flagged more often, there is a gap without leakage, which more questions make more certain. Strata by the answers
of reference models shrink it and do not remove it (docs/validity/sets.md). A stratum without flagged or without
unflagged questions is left out. Source: Mantel and Haenszel (1959); Sato, Greenland and Robins, Biometrics 45 (1989)
for the standard error; Fisher's exact test, stratified (Gart, 1970).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Gap:
    """The accuracy on flagged questions minus that on unflagged ones; all fields are NaN if no stratum has both.

    value: the pooled difference
    stderr: its standard error
    pvalue: probability, by chance, of at least as many correct answers on flagged questions (one-sided, exact)
    """

    value: float
    stderr: float
    pvalue: float


def accuracy_gap(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> Gap:
    """Return the gap in accuracy between flagged and unflagged questions, pooled over strata.

    flagged, right: whether each question is flagged, and whether it is answered correctly, `(n_questions,)`
    strata: the stratum of each question, `(n_questions,)`
    """
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for flag, is_right, stratum in zip(flagged, right, strata, strict=True):
        counts[stratum][not flag] += 1
        counts[stratum][2 + (not flag)] += bool(is_right)
    compared = [tuple(stratum_counts) for stratum_counts in counts.values() if stratum_counts[0] and stratum_counts[1]]
    if not compared:
        return Gap(math.nan, math.nan, math.nan)
    weight = sum(n_flagged * n_others / (n_flagged + n_others) for n_flagged, n_others, _, _ in compared)
    gains = (
        (right_flagged * n_others - right_others * n_flagged) / (n_flagged + n_others)
        for n_flagged, n_others, right_flagged, right_others in compared
    )
    value = sum(gains) / weight
    variance = sum(_sato(value, *stratum_counts) for stratum_counts in compared) / weight**2
    stderr = math.sqrt(variance) if variance > 0 else math.nan  # 0 only if a few questions all agree
    return Gap(value, stderr, _exact_pvalue(compared))


def _sato(value: float, n_flagged: int, n_others: int, right_flagged: int, right_others: int) -> float:
    """Return a stratum's part of Sato's estimator of the variance, which is consistent for few large strata and for
    many small ones."""
    n, wrong_flagged, wrong_others = n_flagged + n_others, n_flagged - right_flagged, n_others - right_others
    between = n_flagged * n_others * (n_others - n_flagged) / 2
    p = (n_flagged**2 * right_others - n_others**2 * right_flagged + between) / n**2
    return value * p + (right_flagged * wrong_others + right_others * wrong_flagged) / (2 * n)


def _exact_pvalue(strata: Sequence[tuple[int, ...]]) -> float:
    """Return the one-sided exact p-value. Given the numbers of flagged questions and of correct answers in each
    stratum, their overlap is hypergeometric."""
    from scipy.stats import hypergeom  # takes half a second

    probabilities = np.ones(1)
    for n_flagged, n_others, right_flagged, right_others in strata:
        overlaps = np.arange(n_flagged + 1)
        right = right_flagged + right_others
        probabilities = np.convolve(probabilities, hypergeom.pmf(overlaps, n_flagged + n_others, right, n_flagged))
    return float(min(1.0, probabilities[sum(counts[2] for counts in strata) :].sum()))
