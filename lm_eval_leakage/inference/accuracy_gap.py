"""Are flagged questions answered rightly more often than others that are as hard?

A flag favours short questions, natural orders and easy subjects, so that flagged questions may be easier without any
leakage. Within strata of like difficulty (subject, length, what another model answers) the two groups are compared;
strata are pooled by Mantel and Haenszel's weights, which are those of a regression with one intercept a stratum.

Null hypothesis of the p-value: within each stratum, which questions are flagged has nothing to do with which are
answered rightly. Limits: a difference of difficulty within strata stays, since they hold what they are made of. A
stratum with flagged or unflagged questions only compares nothing and is left out. Source: Mantel and Haenszel (1959);
Sato, Greenland and Robins, Biometrics 45 (1989) for the standard error; Fisher's exact test, stratified (Gart, 1970).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom


@dataclass(frozen=True)
class Gap:
    """Accuracy on flagged less accuracy on unflagged questions; NaN where no stratum has both.

    stderr: of the pooled difference
    pvalue: probability, by chance, of at least as many right answers on flagged questions (one-sided, exact)
    n_compared: questions in strata that have both
    """

    value: float
    stderr: float
    pvalue: float
    n_compared: int


@dataclass(frozen=True)
class _Stratum:
    n_flagged: int
    n_others: int
    right_flagged: int
    right_others: int

    @property
    def n(self) -> int:
        return self.n_flagged + self.n_others


def accuracy_gap(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> Gap:
    """All `(n_questions,)`; questions of one stratum have equal values in `strata`."""
    compared = [stratum for stratum in _counted(flagged, right, strata) if stratum.n_flagged and stratum.n_others]
    if not compared:
        return Gap(math.nan, math.nan, math.nan, 0)
    weight = sum(s.n_flagged * s.n_others / s.n for s in compared)
    value = sum((s.right_flagged * s.n_others - s.right_others * s.n_flagged) / s.n for s in compared) / weight
    variance = sum(value * _sato_p(s) + _sato_q(s) for s in compared) / weight**2
    stderr = math.sqrt(variance) if variance > 0 else math.nan  # 0 is what a few questions give that all agree
    return Gap(value, stderr, _exact_pvalue(compared), sum(s.n for s in compared))


def _counted(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> list[_Stratum]:
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for flag, is_right, stratum in zip(flagged, right, strata, strict=True):
        counts[stratum][not flag] += 1
        counts[stratum][2 + (not flag)] += bool(is_right)
    return [_Stratum(*found) for found in counts.values()]


def _sato_p(s: _Stratum) -> float:
    """The first sum of Sato's estimator, which holds for few large strata and for many small ones."""
    between = s.n_flagged * s.n_others * (s.n_others - s.n_flagged) / 2
    return (s.n_flagged**2 * s.right_others - s.n_others**2 * s.right_flagged + between) / s.n**2


def _sato_q(s: _Stratum) -> float:
    wrong_flagged, wrong_others = s.n_flagged - s.right_flagged, s.n_others - s.right_others
    return (s.right_flagged * wrong_others + s.right_others * wrong_flagged) / (2 * s.n)


def _exact_pvalue(strata: Sequence[_Stratum]) -> float:
    """Given each stratum's numbers of flagged and of right questions, their overlap is hypergeometric."""
    probabilities = np.ones(1)
    for s in strata:
        overlaps = np.arange(s.n_flagged + 1)
        right = s.right_flagged + s.right_others
        probabilities = np.convolve(probabilities, hypergeom.pmf(overlaps, s.n, right, s.n_flagged))
    return float(min(1.0, probabilities[sum(s.right_flagged for s in strata) :].sum()))
