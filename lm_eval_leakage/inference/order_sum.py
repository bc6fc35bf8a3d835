"""The data-set test of option orders: does a model prefer the published orders of many questions together?

A question's scores, one for each order, are standardised; T is the sum over questions of a weight of the published
order: exp(score), or the score itself. Null hypothesis: within each question every order is equally likely to be the
published one, independently of other questions. It is exact, whatever the model knows, where the builder drew the
orders at random, and holds for differences of two scores where both have the same preferences for reasons other than
memory. Questions may have different numbers of orders; any subset of orders that was drawn without looking at the
scores keeps the test exact.

Where the null hypothesis may be slightly wrong, a p-value of many questions finds that, too. A tolerance t replaces it
by a weaker one: the published order of an unseen question is one with score s with a probability proportional to
exp(t s / variance of the question's scores), so that the mean score of published orders is about t.

exp gives weight to the few questions whose published order stands out: against a small share of seen questions it has
more power than the sum of scores or the number of questions whose published order is the most likely one. The sum of
scores has more power against a small effect on many questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from scipy.stats import beta

from lm_eval_leakage.inference.pooling import NAN, Floats, poisson_binomial_tail

SUM_DRAWS = 9_999  # the smallest Monte Carlo p-value is 1e-4
EQUAL = 1e-9  # scores, and sums relative to their size, that differ by less are equal
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of seen questions, over which the e-value averages
RATIO_LEVEL = 0.95
Weigh = Callable[[Floats], Floats]


@dataclass(frozen=True)
class OrderSum:
    """The test's result.

    n: number of questions with scores that differ
    pvalue: probability, under the null hypothesis, of a sum at least as large: a Monte Carlo p-value, valid for any
        number of draws; or, where no draw is as large and it is lower, Chernoff's upper bound of it. Both together
        are valid at every level: at 1 / (SUM_DRAWS + 1) and above, only the former decides, and below, only the latter
    pvalue_error: standard error of the Monte Carlo p-value; 0 for a bound
    is_bound: whether `pvalue` is an upper bound
    log_evalue: logarithm of an e-value; its mean under the null hypothesis is 1 at most, so that e-values of
        independent questions, asked at different times, may be multiplied
    mean: mean of the published orders' scores, in standard deviations of a question's orders, and its standard error
    critical: the sum from which the test rejects at its level, up to the error of the draws
    """

    n: int
    pvalue: float = NAN
    pvalue_error: float = 0.0
    is_bound: bool = False
    log_evalue: float = NAN
    mean: float = NAN
    mean_error: float = NAN
    critical: float = NAN


def standard_scores(scores: Floats, minus: Floats | None = None) -> Floats | None:
    """The scores of one question's orders, `(n_orders,)`, the published one first, minus their mean and divided by
    their standard deviation; None if all are equal.

    minus: scores of the same orders whose standardised values are subtracted
    """
    centred = scores - scores.mean()
    deviation = math.sqrt(float(np.mean(centred**2)))
    if not deviation > EQUAL * max(1.0, float(np.abs(scores).max())):
        return None
    own: Floats = centred / deviation
    if minus is None:
        return own
    other = standard_scores(minus)
    return own if other is None else own - other


def order_sum(
    questions: Sequence[Floats],
    rng: np.random.Generator,
    level: float = 0.01,
    tolerance: float = 0.0,
    *,
    weigh: Weigh = np.exp,
) -> OrderSum:
    """Tests the published orders of all `questions` together.

    questions: of each, the scores of its orders, the published one first, as `standard_scores` returns them
    level: of `critical`
    tolerance: natural preference that the null hypothesis allows; 0 for exchangeable orders
    weigh: the weights of a question's orders, from their scores
    """
    n = len(questions)
    if not n:
        return OrderSum(0)
    weights, bases = [weigh(own) for own in questions], [base_of(own, tolerance) for own in questions]
    found = math.fsum(float(own[0]) for own in weights)
    drawn = drawn_sums(weights, rng, bases if tolerance else None)
    n_as_large = int((drawn >= found - EQUAL * max(1.0, abs(found))).sum())
    pvalue = (1 + n_as_large) / (1 + SUM_DRAWS)
    bound = chernoff_bound(weights, found, bases)
    is_far = not n_as_large and bound < pvalue
    published = np.array([own[0] for own in questions])
    return OrderSum(
        n,
        bound if is_far else pvalue,
        0.0 if is_far else math.sqrt(pvalue * (1 - pvalue) / SUM_DRAWS),
        is_far,
        log_evalue([np.exp(own) for own in questions], bases),
        float(published.mean()),
        float(published.std(ddof=1)) / math.sqrt(n) if n > 1 else NAN,
        float(np.quantile(drawn, 1 - level, method="higher")),
    )


def base_of(scores: Floats, tolerance: float) -> Floats:
    """Probability, under the null hypothesis, that each order of a question is the published one: proportional to
    exp(tolerance x score / variance), whose mean score is about the tolerance, whatever the scores' scale."""
    variance = max(float(np.mean(scores**2)), EQUAL)
    base: Floats = softmax(tolerance / variance * scores)
    return base


def drawn_sums(weights: Sequence[Floats], rng: np.random.Generator, bases: Sequence[Floats] | None = None) -> Floats:
    """`SUM_DRAWS` sums of one drawn weight per question; uniformly without `bases`."""
    sums = np.zeros(SUM_DRAWS)
    for place, own in enumerate(weights):
        if bases is None:
            sums += own[rng.integers(len(own), size=SUM_DRAWS, dtype=np.uint8 if len(own) < 256 else np.int64)]
        else:
            ends = np.cumsum(bases[place])[:-1]  # not the last, which may round to less than 1
            sums += own[np.searchsorted(ends, rng.random(SUM_DRAWS), side="right")]
    return sums


def critical_sum(weights: Sequence[Floats], rng: np.random.Generator, level: float) -> float:
    """The smallest sum at which the test of equally likely orders rejects at `level`: by the draws where they are
    enough to tell, else by Chernoff's bound, as its p-value is."""
    if level * (1 + SUM_DRAWS) >= 1:
        return float(np.quantile(drawn_sums(weights, rng), 1 - level, method="higher"))
    bases = [base_of(own, 0.0) for own in weights]
    low, high = (math.fsum(float(found(own)) for own in weights) for found in (np.mean, np.max))
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if chernoff_bound(weights, middle, bases) <= level else (middle, high)
    return high


def chernoff_bound(weights: Sequence[Floats], found: float, bases: Sequence[Floats]) -> float:
    """An upper bound of P(sum >= found) for any number of questions: the least over t of E[exp(t (sum - found))]."""
    by_size: dict[int, list[tuple[Floats, Floats]]] = {}
    for own, base in zip(weights, bases, strict=True):
        by_size.setdefault(len(own), []).append((own, base))
    rows = [np.array(pairs).transpose(1, 0, 2) for pairs in by_size.values()]

    def log_bound(log_t: float) -> float:
        t = math.exp(log_t)
        moments = (float(logsumexp(t * own, axis=1, b=base).sum()) for own, base in rows)
        return math.fsum(moments) - t * found

    best = minimize_scalar(log_bound, bounds=(-15.0, 5.0), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(min(0.0, float(best.fun))))


def log_evalue(weights: Sequence[Floats], bases: Sequence[Floats]) -> float:
    """Logarithm of the mean, over `SHARES`, of the likelihood ratio of "this share of the questions was seen, and the
    published order of a seen one has a probability proportional to its weight" against the null hypothesis."""
    ratios = np.array([own[0] / float(base @ own) for own, base in zip(weights, bases, strict=True)])
    of_shares = [float(np.log1p(share * (ratios - 1)).sum()) for share in SHARES]
    return float(logsumexp(of_shares)) - math.log(len(SHARES))


# ---------------------------------------------------------------------- without a null hypothesis


@dataclass(frozen=True)
class OrderRatio:
    """How many times as often as by chance the published order is the most likely one.

    low: one-sided 95 % confidence bound: what natural preference alone would have to reach to explain the flags
    """

    n: int
    value: float = NAN
    low: float = NAN


def order_ratio(n_flagged: int, null_rates: Sequence[float]) -> OrderRatio:
    """From the number of questions whose published order is the most likely one, and each question's probability of
    that by chance.

    The bound is Clopper and Pearson's, for different rates by the Poisson-binomial tail: the smallest ratio r for
    which so many flags have a probability of 5 %, if question i is flagged with probability min(1, r x rate i).
    """
    n = len(null_rates)
    if not n:
        return OrderRatio(0)
    return OrderRatio(n, n_flagged / math.fsum(null_rates), _lowest_ratio(n_flagged, null_rates))


def _lowest_ratio(n_flagged: int, null_rates: Sequence[float]) -> float:
    if n_flagged == 0:
        return 0.0
    low, high = 0.0, 1 / min(null_rates)
    if len(set(null_rates)) == 1:
        return float(_clopper_pearson(n_flagged, len(null_rates)) / null_rates[0])
    for _ in range(40):
        middle = (low + high) / 2
        tail = poisson_binomial_tail(n_flagged, [min(1.0, middle * rate) for rate in null_rates])
        low, high = (middle, high) if tail < 1 - RATIO_LEVEL else (low, middle)
    return low


def _clopper_pearson(n_flagged: int, n: int) -> float:
    return float(beta.ppf(1 - RATIO_LEVEL, n_flagged, n - n_flagged + 1))
