"""Test by a sum over questions whether a model prefers their published versions, above all their published orders.

The same draws serve tests of whether the author drew the published orders at random (`sum_test`, `place_test`).

The scores of a question, one for each order, are standardised. T is the sum over questions of a weight of the
published order: exp(score), or the score itself. Null hypothesis: within each question every order is equally likely
to be the published one, independently of other questions. It is exact, whatever the model knows, if the author drew
the orders at random. It holds for differences of two scores if both have the same preferences for reasons other than
memory. Questions may have different numbers of orders; any subset of orders that was drawn without looking at the
scores keeps the test exact.

exp gives weight to the few questions whose published order stands out. Against a small share of seen questions it has
more power than the sum of scores, and than the number of questions whose published order is the most likely one. The
sum of scores has more power against a small effect on many questions.

If the null hypothesis is slightly wrong, a test of many questions rejects it for that reason. A tolerance t replaces
it by a weaker one: the published order of an unseen question is one with score s with a probability proportional to
exp(t s / variance of the question's scores), so that the mean score of published orders is about t. If t is unknown
and differs between benchmarks, normally and with a known standard deviation (the spread), it is drawn as well: the sum
of n scores then has n x spread as a further standard deviation, which no number of questions makes smaller.

On clean benchmarks (docs/validity.md) the mean difference between the published and a control form is 0, and its
spread beyond sampling error is `usual_spread` at most. Questions of the same kind that the model cannot have seen
measure t for one benchmark and one model. Both estimates are averaged with the inverse squares of their errors as
weights, as for a normal distribution. If a benchmark is unlike those that were tried, only the unseen questions count.
If orders were not equally likely to be published (an author may prefer one place for the right option), a question's
prior holds their probabilities.

Questions of one family (`questions.families`) are no independent evidence: one order may have been drawn for all of
them. A family is one unit. In its draws all members stand at the same quantile of their weights. Of all ways in which
the members may depend on each other, this one has the largest variance of the sum and the largest E[exp(t x sum)].
Chernoff's bound therefore holds for any of them, and the e-value takes the mean of a family's likelihood ratios
instead of their product.

The tests of the author's draws need no model and have the same null hypothesis. Each is conditional on the options, so
it is exact for any texts, with ties, repeated options and different numbers of options. Questions on which a test
cannot act contribute nothing.

Limits: a natural preference that no tolerance, spread or prior allows for looks like memory. Source: ours, after
Fisher's randomisation test with one stratum per question; Holm (1979) for several tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from lm_eval_leakage.stats.pooling import NAN, Floats, poisson_binomial_tail, smallest

USUAL_SPREAD, SPREAD_IN_SEVERAL = 0.05, 0.06  # standard deviations of a question's scores, in one layout or several
CONTRADICTION = 3.0  # standard errors from the usual spread at which a benchmark counts as unlike the clean ones
SUM_DRAWS = 9_999  # the smallest Monte Carlo p-value is 1e-4, which eight tests by Holm make 8e-4
EQUAL = 1e-9  # scores, and sums relative to their size, that differ by less are equal
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of seen questions, over which the e-value averages
RATIO_LEVEL = 0.95
EVALUE_LIMIT = 2.33  # standard deviations; 99 % of benchmarks have a smaller natural preference
MOST_ENUMERATED = 5  # options; six have 720 orders
DRAWN_ORDERS = 120  # orders of a question with more options, as many as five options have
Weigh = Callable[[Floats], Floats]  # from the scores of a question's orders to their weights
Places = NDArray[np.intp]  # orders as rows of places


@dataclass(frozen=True)
class NaturalPart:
    """The natural preference as measured on questions that the model cannot have seen.

    n: number of these questions
    means, errors: for each control form, the mean of the published orders' scores minus those in the form, and its
        standard error
    """

    n: int
    means: tuple[float, ...]
    errors: tuple[float, ...]


def usual_spread(n_layouts: int) -> float:
    """Return the spread of the natural preference between clean benchmarks, by the number of layouts of each order.

    Layouts share a natural preference but not their noise, so the preference of several layouts is larger in standard
    deviations of their combination. Measured on ten clean sets: docs/validity.md.
    """
    return USUAL_SPREAD if n_layouts == 1 else SPREAD_IN_SEVERAL


def expected_preferences(
    natural: NaturalPart | None, n_forms: int, spread: float, *, is_usual: bool
) -> list[tuple[float, float]]:
    """Return the natural preference to expect, compared with each control form: its mean, at least 0, and its
    standard deviation.

    natural: the preference on unseen questions; None if it was not measured
    spread: standard deviation between benchmarks in general
    is_usual: whether this benchmark is like those on which the spread was measured
    """
    if natural is None:
        return [(0.0, spread)] * n_forms
    measured = zip(natural.means, natural.errors, strict=True)
    return [_updated(mean, error, spread, is_usual) for mean, error in measured]


def _updated(mean: float, error: float, spread: float, is_usual: bool) -> tuple[float, float]:
    """Return mean and standard deviation of the preference after a measurement of it.

    The prior is normal with mean 0 and the spread. There is none if the benchmark is unusual, or if the measurement
    contradicts the prior.
    """
    if not is_usual or abs(mean) > CONTRADICTION * math.hypot(error, spread):
        return max(0.0, mean), error
    of_benchmarks, of_measurement = spread**-2, error**-2  # precisions
    precision = of_benchmarks + of_measurement
    return max(0.0, mean * of_measurement / precision), precision**-0.5


@dataclass(frozen=True)
class OrderSum:
    """The result of the sum test; p-value, e-value and mean are NaN if no question can be tested.

    n: number of questions with scores that differ
    n_units: number of families among them; a question without relatives is a family
    pvalue: probability, under the null hypothesis, of a sum at least as large. It is a Monte Carlo p-value, valid for
        any number of draws. If no draw is as large, it is Chernoff's upper bound if that is lower. Both together are
        valid at every level: at 1 / (SUM_DRAWS + 1) and above, only the former decides, and below, only the latter
    pvalue_error: standard error of the Monte Carlo p-value; 0 for a bound
    is_bound: whether `pvalue` is an upper bound
    log_evalue: logarithm of an e-value; its mean under the null hypothesis is 1 at most, so that e-values of
        independent questions, tested at different times, may be multiplied
    mean, mean_error: mean of the published orders' scores, in standard deviations of a question's orders, and its
        standard error
    """

    n: int
    pvalue: float = NAN
    pvalue_error: float = 0.0
    is_bound: bool = False
    log_evalue: float = NAN
    mean: float = NAN
    mean_error: float = NAN
    n_units: int = 0


def standard_scores(scores: Floats, minus: Floats | None = None) -> Floats | None:
    """Return a question's scores minus their mean, divided by their standard deviation; None if all are equal.

    scores: of the question's orders, the published one first, `(n_orders,)`
    minus: scores of the same orders whose standardised values are subtracted
    """
    centred = scores - scores.mean()
    deviation = math.sqrt(float(np.mean(centred**2)))
    if not deviation > EQUAL * max(1.0, float(np.abs(scores).max())):
        return None
    standard: Floats = centred / deviation
    if minus is None:
        return standard
    other = standard_scores(minus)
    return standard if other is None else standard - other


def averaged(answers: Sequence[float], n_layouts: int) -> tuple[float, ...]:
    """Return one log-likelihood per order, nats, from those in several layouts.

    It is the logarithm of the mean of exp(standardised value) over layouts, which gives most weight to the layout in
    which the order stands out. The result is standardised, multiplied by the layouts' mean standard deviation, and
    their mean is added. A layout in which all orders are equally likely counts as 0 for each.

    Claim: every order is treated alike, so orders that are exchangeable in each layout are exchangeable in the result.
    It detects more questions that were seen in one of the layouts than the mean of the values does (docs/validity.md).

    answers: log-likelihoods of all orders, one layout after the other, `(n_layouts * n_orders,)`
    """
    if n_layouts == 1 or not len(answers):
        return tuple(answers)
    each = np.asarray(answers, dtype=float).reshape(n_layouts, -1)
    equal = np.zeros(each.shape[1])
    standard = [standard_scores(layout) for layout in each]
    joined = standard_scores(logsumexp([equal if scores is None else scores for scores in standard], axis=0))
    values: list[float] = (each.mean() + each.std(axis=1).mean() * (equal if joined is None else joined)).tolist()
    return tuple(values)


def averaged_controls(answers: Sequence[float], n_layouts: int) -> tuple[float, ...]:
    """Return one log-likelihood per order in each control form.

    answers: log-likelihoods in the first form, which is the same in all layouts and was scored once, then in the
        second, which was scored in each layout, `((1 + n_layouts) * n_orders,)`
    """
    n_orders = len(answers) // (1 + n_layouts)
    return (*answers[:n_orders], *averaged(answers[n_orders:], n_layouts))


def version_sum(scores: Sequence[Sequence[float]]) -> OrderSum:
    """Test versions that were drawn uniformly, such as wordings or orders of questions.

    The result does not depend on the order of the questions, so a table and its log have the same p-value.

    scores: for each question or shard, the log-likelihoods of its versions, the published one first
    """
    return _version_sum(tuple(sorted(map(tuple, scores))))


@lru_cache(maxsize=16)  # several rows of the table need the same sum
def _version_sum(scores: tuple[tuple[float, ...], ...]) -> OrderSum:
    """Return the `version_sum` of sorted scores."""
    standard = (standard_scores(np.array(versions)) for versions in scores)
    return order_sum([values for values in standard if values is not None], np.random.default_rng(0))


def order_sum(
    questions: Sequence[Floats],
    rng: np.random.Generator,
    tolerance: float = 0.0,
    *,
    weigh: Weigh = np.exp,
    families: Sequence[int] | None = None,
    spread: float = 0.0,
    priors: Sequence[Floats] | None = None,
) -> OrderSum:
    """Test the published orders of all questions together.

    questions: for each question, the scores of its orders, the published one first, as `standard_scores` returns them
    tolerance: natural preference that the null hypothesis allows; 0 for exchangeable orders
    weigh: returns the weights of a question's orders from their scores
    families: the number of each question's family; None if each question is a family
    spread: standard deviation of the natural preference between benchmarks, for the plain sum of scores
    priors: for each question, how likely each of its orders was to be published; None if equally likely

    The e-value is the one by exp(score), whatever `weigh` is. It needs a single null hypothesis, so it allows for a
    natural preference at the `EVALUE_LIMIT` of its distribution.
    """
    n = len(questions)
    if not n:
        return OrderSum(0)
    deviation = spread * n
    question_weights = [weigh(scores) for scores in questions]
    observed = math.fsum(float(order_weights[0]) for order_weights in question_weights)
    numbers = range(n) if families is None else families
    question_bases = bases_of(questions, tolerance, priors)
    weights, bases = as_units(question_weights, question_bases, numbers)
    drawn = drawn_sums(weights, rng, bases if tolerance or priors or len(weights) < n else None)
    if deviation:
        drawn += rng.normal(0.0, deviation, SUM_DRAWS)
    n_as_large = int((drawn >= observed - EQUAL * max(1.0, abs(observed))).sum())
    pvalue = (1 + n_as_large) / (1 + SUM_DRAWS)
    bound = chernoff_bound(weights, observed, bases, deviation)
    is_far = not n_as_large and bound < pvalue
    published = np.array([scores[0] for scores in questions])
    at_limit = bases_of(questions, tolerance + EVALUE_LIMIT * spread, priors) if spread else question_bases
    return OrderSum(
        n,
        bound if is_far else pvalue,
        0.0 if is_far else monte_carlo_error(pvalue),
        is_far,
        mixture_log_evalue([np.exp(scores) for scores in questions], at_limit, numbers),
        float(published.mean()),
        error_of_mean(published, numbers),
        len(weights),
    )


def as_units(
    weights: Sequence[Floats], bases: Sequence[Floats], families: Sequence[int]
) -> tuple[list[Floats], list[Floats]]:
    """Return the weights and probabilities of each family, as if it were a single question.

    A weight of a family is the sum of its members' weights at the same quantile.

    weights, bases: for each question, the weights of its orders and their probabilities
    families: the number of each question's family
    """
    members: dict[int, list[int]] = {}
    for place, family in enumerate(families):
        members.setdefault(family, []).append(place)
    unit_weights, unit_bases = [], []
    for places in members.values():
        if len(places) == 1:
            unit, base = weights[places[0]], bases[places[0]]
        else:
            unit, base = _at_equal_quantiles([(weights[place], bases[place]) for place in places])
        unit_weights.append(unit)
        unit_bases.append(base)
    return unit_weights, unit_bases


def _at_equal_quantiles(members: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Return the weights and probabilities of one family from those of its members.

    The weight of a member is a step function of the probability of a larger one. The weight of the family is the sum
    of these functions, and it changes where any of them does.
    """
    ranked = []  # the weights of a member, the largest first, and the probabilities at which each ends
    for weights, base in members:
        order = np.argsort(weights)[::-1]
        ranked.append((weights[order], np.cumsum(base[order])))
    ends = np.unique(np.round(np.concatenate([np.minimum(end, 1.0) for _, end in ranked]), 12))
    middles = ends - np.diff(ends, prepend=0.0) / 2
    sums = np.zeros(len(ends))
    for weights, end in ranked:
        sums += weights[np.minimum(np.searchsorted(end, middles), len(weights) - 1)]
    return sums, np.diff(ends, prepend=0.0)


def error_of_mean(published: Floats, families: Sequence[int]) -> float:
    """Return the standard error of the mean over questions, with families as clusters; NaN for one family."""
    _, unit = np.unique(np.asarray(families), return_inverse=True)
    n_units = int(unit.max()) + 1
    if n_units == 1:
        return NAN
    sums = np.bincount(unit, weights=published - published.mean())
    return float(math.sqrt(n_units / (n_units - 1) * float(sums @ sums))) / len(published)


def bases_of(questions: Sequence[Floats], tolerance: float, priors: Sequence[Floats] | None = None) -> list[Floats]:
    """Return the `base_of` each question, the probabilities of its orders under the null hypothesis."""
    priors_or_none = [None] * len(questions) if priors is None else priors
    return [base_of(scores, tolerance, prior) for scores, prior in zip(questions, priors_or_none, strict=True)]


def base_of(scores: Floats, tolerance: float, prior: Floats | None = None) -> Floats:
    """Return the probability, under the null hypothesis, that each order of a question is the published one.

    It is proportional to the order's prior times exp(tolerance x score / variance). The mean score is then about the
    tolerance, whatever the scale of the scores.
    """
    if prior is not None and not tolerance:
        return prior
    variance = max(float(np.average(scores**2, weights=prior)), EQUAL)
    tilt = tolerance / variance * scores
    if prior is not None:
        tilt = np.where(prior > 0, tilt + np.log(np.maximum(prior, 1e-300)), -np.inf)
    base: Floats = softmax(tilt)
    return base


def equal_bases(weights: Sequence[Floats]) -> list[Floats]:
    """Return equal probabilities for the orders of each question."""
    return [np.full(len(orders), 1 / len(orders)) for orders in weights]


def drawn_sums(weights: Sequence[Floats], rng: np.random.Generator, bases: Sequence[Floats] | None = None) -> Floats:
    """Return `SUM_DRAWS` sums of one drawn weight per question.

    Weights are drawn uniformly unless `bases` has their probabilities.
    """
    sums = np.zeros(SUM_DRAWS)
    for place, orders in enumerate(weights):
        if bases is None:
            sums += orders[
                rng.integers(len(orders), size=SUM_DRAWS, dtype=np.uint8 if len(orders) < 256 else np.int64)
            ]
        else:
            ends = np.cumsum(bases[place])[:-1]  # not the last, which may round to less than 1
            sums += orders[np.searchsorted(ends, rng.random(SUM_DRAWS), side="right")]
    return sums


def critical_sum(
    weights: Sequence[Floats],
    rng: np.random.Generator,
    level: float,
    bases: Sequence[Floats] | None = None,
    deviation: float = 0.0,
) -> float:
    """Return the smallest sum at which the test rejects at `level`.

    Like the test's p-value, it comes from draws if these are enough for the level, else from Chernoff's bound.

    bases: for each question, the probabilities of its orders; None if they are equal
    deviation: standard deviation of a normal addition to the sum, see `spread`
    """
    if level * (1 + SUM_DRAWS) >= 1:
        drawn = drawn_sums(weights, rng, bases) + rng.normal(0.0, deviation, SUM_DRAWS)
        return float(np.quantile(drawn, 1 - level, method="higher"))
    bases = bases or equal_bases(weights)
    low = math.fsum(float(base @ orders) for orders, base in zip(weights, bases, strict=True))
    high = math.fsum(float(orders.max()) for orders in weights)
    return smallest(lambda total: chernoff_bound(weights, total, bases, deviation) <= level, low, high)


def chernoff_bound(weights: Sequence[Floats], total: float, bases: Sequence[Floats], deviation: float = 0.0) -> float:
    """Return Chernoff's upper bound of P(sum >= total), which holds for any number of questions.

    It is the least of E[exp(t (sum - total))] over t > 0.

    deviation: standard deviation of a normal addition to the sum, see `spread`
    """
    from scipy.optimize import minimize_scalar

    by_size: dict[int, list[tuple[Floats, Floats]]] = {}  # so that questions with as many orders are one array
    for orders, base in zip(weights, bases, strict=True):
        by_size.setdefault(len(orders), []).append((orders, base))
    rows = [np.array(pairs).transpose(1, 0, 2) for pairs in by_size.values()]

    def log_bound(log_t: float) -> float:
        t = math.exp(log_t)
        log_moments = (float(logsumexp(t * orders, axis=1, b=base).sum()) for orders, base in rows)
        return math.fsum(log_moments) + (t * deviation) ** 2 / 2 - t * total

    best = minimize_scalar(log_bound, bounds=(-15.0, 5.0), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(min(0.0, float(best.fun))))


def mixture_log_evalue(
    weights: Sequence[Floats], bases: Sequence[Floats], families: Sequence[int] | None = None
) -> float:
    """Return the logarithm of an e-value: the mean over `SHARES` of a likelihood ratio against the null hypothesis.

    The alternative is that this share of the questions was seen, and that the published order of a seen one has a
    probability proportional to its weight. A family counts as one question whose ratio is the mean of its members'.

    weights, bases: for each question, the weights of its orders, the published one first, and their probabilities
    families: the number of each question's family; None if each question is a family
    """
    ratios = np.array([orders[0] / float(base @ orders) for orders, base in zip(weights, bases, strict=True)])
    if families is not None:
        _, unit = np.unique(np.asarray(families), return_inverse=True)
        ratios = np.bincount(unit, weights=ratios) / np.bincount(unit)
    of_shares = [float(np.log1p(share * (ratios - 1)).sum()) for share in SHARES]
    return float(logsumexp(of_shares)) - math.log(len(SHARES))


def monte_carlo_error(pvalue: float) -> float:
    """Return the standard error of a p-value from `SUM_DRAWS` draws."""
    return math.sqrt(pvalue * (1 - pvalue) / SUM_DRAWS)


# ---------------------------------------------------------------------- how many are flagged


@dataclass(frozen=True)
class OrderRatio:
    """The ratio of questions whose published order is the most likely one to the number that is expected by chance.

    n: number of questions
    value: the ratio
    low: one-sided 95 % confidence bound, which a natural preference would have to reach to explain the flags
    """

    n: int
    value: float = NAN
    low: float = NAN


def order_ratio(n_flagged: int, null_rates: Sequence[float]) -> OrderRatio:
    """Return the ratio for the number of questions whose published order is the most likely one.

    null_rates: each question's probability of that by chance

    The bound is Clopper and Pearson's, for different rates by the Poisson-binomial tail: the smallest ratio r for
    which so many flags have a probability of 5 %, if question i is flagged with probability min(1, r x rate i).
    """
    low, high = 0.0, 1 / min(null_rates)
    for _ in range(40 if n_flagged else 0):
        middle = (low + high) / 2
        tail = poisson_binomial_tail(n_flagged, [min(1.0, middle * rate) for rate in null_rates])
        low, high = (middle, high) if tail < 1 - RATIO_LEVEL else (low, middle)
    return OrderRatio(len(null_rates), n_flagged / math.fsum(null_rates), low)


# ---------------------------------------------------------------------- did the author draw the orders?


def orders_of(n_options: int, rng: np.random.Generator) -> Places:
    """Return the orders with which the published one is compared, as rows of places, the published one first.

    These are all orders of up to `MOST_ENUMERATED` options; of more options, `DRAWN_ORDERS` drawn at random.

    Given these orders as a set, each is equally likely to be the published one. Tests are therefore exact with drawn
    orders, and only lose some power.
    """
    if n_options <= MOST_ENUMERATED:
        return np.array(list(permutations(range(n_options))), dtype=np.intp)
    drawn = [rng.permutation(n_options) for _ in range(DRAWN_ORDERS)]
    return np.array([np.arange(n_options), *drawn], dtype=np.intp)


def sum_test(values: Sequence[Floats], rng: np.random.Generator) -> tuple[float, float]:
    """Return z and the two-sided p-value of the sum of the published orders' values, such as a measure of sortedness.

    values: per question, the standardised value of each order, the published one first

    Under the null hypothesis the published value of each question is drawn uniformly from the values of its orders.
    The sum is compared with such draws. z, the sum over sqrt(number of questions), has mean 0 and variance 1.
    """
    published = math.fsum(float(orders[0]) for orders in values)
    at_least = np.abs(drawn_sums(values, rng)) >= abs(published) - EQUAL * max(1.0, abs(published))
    return published / math.sqrt(len(values)), float(1 + at_least.sum()) / (1 + SUM_DRAWS)


def both_tails(n_with: int, rates: Sequence[float]) -> float:
    """Return twice the smaller tail, for a property that orders may have too often or too rarely.

    n_with: number of orders with the property
    rates: the probability of the property for each order
    """
    below = poisson_binomial_tail(len(rates) - n_with, [1 - rate for rate in rates])
    return min(1.0, 2 * min(poisson_binomial_tail(n_with, rates), below))


def place_test(places: Sequence[tuple[int, int]], rng: np.random.Generator) -> tuple[float, int, float]:
    """Return the chi-square of the right options' places, its degrees of freedom, and its Monte Carlo p-value.

    places: per question, the place of the right option and the number of options

    Places are counted separately for each number of options, and the chi-squares are added. The test is one-sided: an
    author who balances the places on purpose gets more even ones than chance, which favours no order of a question.
    """
    chi_square, drawn, freedom = 0.0, np.zeros(SUM_DRAWS), 0
    for n_options in sorted({n for _, n in places}):
        counts = np.bincount([place for place, n in places if n == n_options], minlength=n_options)
        expected = counts.sum() / n_options
        chi_square += float(((counts - expected) ** 2).sum() / expected)
        simulated = rng.multinomial(counts.sum(), np.full(n_options, 1 / n_options), size=SUM_DRAWS)
        drawn += ((simulated - expected) ** 2).sum(axis=1) / expected
        freedom += n_options - 1
    at_least = drawn >= chi_square - EQUAL * max(1.0, chi_square)
    return chi_square, freedom, float(1 + at_least.sum()) / (1 + SUM_DRAWS)


# ---------------------------------------------------------------------- several tests


def adjusted_by_holm(pvalues: Sequence[float]) -> list[float]:
    """Return each p-value adjusted for the number of tests, by Holm's method.

    The probability that any true null hypothesis has an adjusted p-value of at most x is at most x, however the tests
    depend on each other.
    """
    adjusted, largest = [math.nan] * len(pvalues), 0.0
    for rank, place in enumerate(sorted(range(len(pvalues)), key=pvalues.__getitem__)):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[place]))
        adjusted[place] = largest
    return adjusted


def holm_level(pvalues: Sequence[float], level: float) -> float:
    """Return the threshold of Holm's method, which rejects all p-values up to it.

    The probability of any false rejection is at most `level`. A p-value above the threshold would have been rejected
    if it had been at most the threshold.
    """
    for rank, pvalue in enumerate(sorted(pvalues)):
        if pvalue > level / (len(pvalues) - rank):
            return level / (len(pvalues) - rank)
    return level
