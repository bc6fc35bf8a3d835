"""From verdicts on questions to a verdict on the data set: rates with their errors, pooled p-values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom


def rate_and_stderr(flags: Sequence[bool]) -> tuple[float, float]:
    """Share of true `flags` and its standard error (sample standard deviation over sqrt n).

    NaN where it is undefined: no flag for the rate, fewer than two for the error.
    """
    n = len(flags)
    rate = sum(flags) / n if n else math.nan
    return rate, math.sqrt(rate * (1 - rate) / (n - 1)) if n > 1 else math.nan


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error (sample standard deviation over sqrt n); NaN where undefined."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    return mean, float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def poisson_binomial_tail(n_flagged: int, null_rates: Sequence[float]) -> float:
    """P(at least `n_flagged` flags) when question i is flagged independently with probability null_rates[i].

    Exact: questions of one rate follow a binomial distribution, whose probabilities are convolved directly
    (all terms are positive, so small tails keep their relative precision). Null hypothesis: no question is
    leaked, and each statistic's own null rate holds.
    """
    if not null_rates:
        return math.nan
    counts = np.ones(1)
    for rate, n_questions in sorted(Counter(null_rates).items()):
        # by its logarithm, since scipy's pmf overflows on rates near the smallest float
        binomial = np.exp(binom.logpmf(np.arange(n_questions + 1), n_questions, rate))
        counts = np.convolve(counts, binomial)
    return float(min(1.0, counts[n_flagged:].sum()))
