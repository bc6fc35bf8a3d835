"""Are flagged questions answered correctly more often than unflagged ones of the same difficulty?

Flags favour short questions, natural orders and easy subjects, so flagged questions may be easier without any
leakage. The two groups are therefore compared within strata of similar difficulty (subject, length, whether another
model answers correctly); strata are pooled by the weights of Mantel and Haenszel, which are those of a regression with
one intercept per stratum.

Null hypothesis of the p-value: within each stratum, being flagged and being answered correctly are independent.
Limits: a difference in difficulty within strata remains, since strata control only what they are made of: where an
easier question of the same stratum is also flagged more often, there is a gap without leakage, which more questions
make more certain. Strata by the answers of reference models shrink it and do not remove it (docs/validity_sets.md). A
stratum without flagged or without unflagged questions is left out. Source: Mantel and Haenszel (1959);
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
    """Accuracy on flagged minus accuracy on unflagged questions; NaN if no stratum has both.

    stderr: of the pooled difference
    pvalue: probability, by chance, of at least as many correct answers on flagged questions (one-sided, exact)
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
    """All arguments are `(n_questions,)`; questions of one stratum have equal values in `strata`."""
    compared = [stratum for stratum in _counted(flagged, right, strata) if stratum.n_flagged and stratum.n_others]
    if not compared:
        return Gap(math.nan, math.nan, math.nan, 0)
    weight = sum(s.n_flagged * s.n_others / s.n for s in compared)
    value = sum((s.right_flagged * s.n_others - s.right_others * s.n_flagged) / s.n for s in compared) / weight
    variance = sum(value * _sato_p(s) + _sato_q(s) for s in compared) / weight**2
    stderr = math.sqrt(variance) if variance > 0 else math.nan  # 0 only if a few questions all agree
    return Gap(value, stderr, _exact_pvalue(compared), sum(s.n for s in compared))


def _counted(flagged: Sequence[bool], right: Sequence[bool], strata: Sequence[Hashable]) -> list[_Stratum]:
    counts: dict[Hashable, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for flag, is_right, stratum in zip(flagged, right, strata, strict=True):
        counts[stratum][not flag] += 1
        counts[stratum][2 + (not flag)] += bool(is_right)
    return [_Stratum(*found) for found in counts.values()]


def _sato_p(s: _Stratum) -> float:
    """The first sum of Sato's estimator, which is consistent for few large strata and for many small ones."""
    between = s.n_flagged * s.n_others * (s.n_others - s.n_flagged) / 2
    return (s.n_flagged**2 * s.right_others - s.n_others**2 * s.right_flagged + between) / s.n**2


def _sato_q(s: _Stratum) -> float:
    wrong_flagged, wrong_others = s.n_flagged - s.right_flagged, s.n_others - s.right_others
    return (s.right_flagged * wrong_others + s.right_others * wrong_flagged) / (2 * s.n)


def _exact_pvalue(strata: Sequence[_Stratum]) -> float:
    """Given each stratum's numbers of flagged and of correct answers, their overlap is hypergeometric."""
    probabilities = np.ones(1)
    for s in strata:
        overlaps = np.arange(s.n_flagged + 1)
        right = s.right_flagged + s.right_others
        probabilities = np.convolve(probabilities, hypergeom.pmf(overlaps, s.n, right, s.n_flagged))
    return float(min(1.0, probabilities[sum(s.right_flagged for s in strata) :].sum()))
