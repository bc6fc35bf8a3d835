"""What hits say that have a known probability by chance: guesses at draws that nobody but the author could know.

Null hypothesis: question i is hit with probability `rates[i]` at most, independently of the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from lm_eval_leakage.inference.order_sum import log_evalue
from lm_eval_leakage.inference.pooling import NAN, poisson_binomial_tail

SEEN_LEVEL = 0.05  # error of the lower bound on the number of seen questions


def hits_pvalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Probability of at least so many hits by chance: the exact Poisson-binomial tail; 1 without questions."""
    return poisson_binomial_tail(sum(hits), rates) if rates else 1.0


def hits_log_evalue(hits: Sequence[bool], rates: Sequence[float]) -> float:
    """Logarithm of an e-value against "a share of the questions is hit for certain", averaged over shares; the mean of
    the e-value by chance is 1 at most. NaN without questions."""
    if not rates:
        return NAN
    hit_or_not = [np.array([1.0, 0.0] if hit else [0.0, 1.0]) for hit in hits]
    by_chance = [np.array([rate, 1 - rate]) for rate in rates]
    with np.errstate(divide="ignore"):  # one miss, and not all questions are hit for certain
        return log_evalue(hit_or_not, by_chance)


def fewest_seen(n_hits: int, rates: Sequence[float], level: float = SEEN_LEVEL) -> int:
    """The smallest number m of seen questions with P(m + hits by chance on the others >= n_hits) > level: a lower
    confidence bound of 1 - level on their number, whichever were seen and whatever is hit of them.

    The probability is the highest if the m questions with the lowest rates were seen, and if all of them are hit.
    """
    highest_first = sorted(rates, reverse=True)

    def is_plausible(n_seen: int) -> bool:
        others = highest_first[: len(rates) - n_seen]
        return n_seen >= n_hits or poisson_binomial_tail(n_hits - n_seen, others) > level

    return bisect_left(range(n_hits + 1), True, key=is_plausible)
