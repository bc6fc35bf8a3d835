"""Test whether flagged questions are answered correctly more often than unflagged ones of the same difficulty.

Flags favour short questions, natural orders and easy subjects, so flagged questions may be easier without any leakage.
The two groups are therefore compared within strata of similar difficulty (subject, length, whether another model
answers correctly), pooled by the weights of Mantel and Haenszel, which are those of a regression with one intercept
per stratum. A stratum without flagged or without unflagged questions is left out.

Null hypothesis of the gap's p-value: within each stratum, being flagged and being answered correctly are independent.
Limits: questions of one stratum still differ in difficulty. If the easier ones are flagged more often, there is a gap
without leakage, and its p-value falls with the number of questions. Strata by the answers of reference models shrink
this gap and do not remove it (docs/validity/sets.md).

Source: Mantel and Haenszel (1959); Sato, Greenland and Robins, Biometrics 45 (1989) for the standard error; Fisher's
exact test, stratified (Gart, 1970).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Gap:
    """The accuracy on flagged questions minus that on unflagged ones, pooled over strata.

    All fields are NaN if no stratum has both flagged and unflagged questions.

    value: the pooled difference
    stderr: its standard error; NaN if all questions of the strata agree
    pvalue: probability, by chance, of at least as many correct answers on flagged questions (one-sided, exact)
    """

    value: float
    stderr: float
    pvalue: float


class _Stratum(NamedTuple):
    """The numbers of flagged and of other questions in a stratum, and of the right answers to each."""

    n_flagged: int
    n_others: int
    right_flagged: int
    right_others: int


def accuracy_gap(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> Gap:
    """Return the gap in accuracy between flagged and unflagged questions, pooled over strata.

    flagged, right: whether each question is flagged, and whether it is answered correctly, `(n_questions,)`
    strata: the stratum of each question, `(n_questions,)`
    """
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0, 0])  # the fields of a _Stratum
    for flag, is_right, stratum in zip(flagged, right, strata, strict=True):
        counts[stratum][0 if flag else 1] += 1
        counts[stratum][2 if flag else 3] += bool(is_right)
    all_strata = [_Stratum(*stratum_counts) for stratum_counts in counts.values()]
    compared = [stratum for stratum in all_strata if stratum.n_flagged and stratum.n_others]
    if not compared:
        return Gap(math.nan, math.nan, math.nan)
    weights, weighted_gaps = [], []
    for n_flagged, n_others, right_flagged, right_others in compared:
        weights.append(n_flagged * n_others / (n_flagged + n_others))
        weighted_gaps.append((right_flagged * n_others - right_others * n_flagged) / (n_flagged + n_others))
    weight = sum(weights)
    value = sum(weighted_gaps) / weight
    variance = sum(_sato_term(value, stratum) for stratum in compared) / weight**2
    stderr = math.sqrt(variance) if variance > 0 else math.nan  # 0 only if a few questions all agree
    return Gap(value, stderr, _exact_pvalue(compared))


def _sato_term(value: float, stratum: _Stratum) -> float:
    """Return a stratum's term of Sato's estimator of the variance.

    The estimator is consistent for few large strata and for many small ones.

    value: the pooled difference in accuracy
    """
    n_flagged, n_others, right_flagged, right_others = stratum
    n, wrong_flagged, wrong_others = n_flagged + n_others, n_flagged - right_flagged, n_others - right_others
    between = n_flagged * n_others * (n_others - n_flagged) / 2
    p = (n_flagged**2 * right_others - n_others**2 * right_flagged + between) / n**2
    return value * p + (right_flagged * wrong_others + right_others * wrong_flagged) / (2 * n)


def _exact_pvalue(strata: Sequence[_Stratum]) -> float:
    """Return the one-sided exact p-value of the number of right answers to flagged questions.

    Given the numbers of flagged questions and of right answers in a stratum, their overlap is hypergeometric, and the
    strata are independent.
    """
    from scipy.stats import hypergeom  # takes half a second

    probabilities = np.ones(1)  # of the overlap, summed over the strata so far
    for n_flagged, n_others, right_flagged, right_others in strata:
        overlaps = np.arange(n_flagged + 1)
        n_right = right_flagged + right_others
        probabilities = np.convolve(probabilities, hypergeom.pmf(overlaps, n_flagged + n_others, n_right, n_flagged))
    observed = sum(stratum.right_flagged for stratum in strata)
    return float(min(1.0, probabilities[observed:].sum()))
