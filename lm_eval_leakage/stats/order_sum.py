"""The sum test of drawn versions, of option orders above all: does a model prefer the published ones of many questions
together? And permutation tests within questions: is a published order one drawn at random?

A question's scores, one for each order, are standardised; T is the sum over questions of a weight of the published
order: exp(score), or the score itself. Null hypothesis: within each question every order is equally likely to be the
published one, independently of other questions. It is exact, whatever the model knows, where the builder drew the
orders at random, and holds for differences of two scores where both have the same preferences for reasons other than
memory. Questions may have different numbers of orders; any subset of orders that was drawn without looking at the
scores keeps the test exact. exp gives weight to the few questions whose published order stands out: against a small
share of seen questions it has more power than the sum of scores or the number of questions whose published order is
the most likely one. The sum of scores has more power against a small effect on many questions.

Where the null hypothesis may be slightly wrong, a p-value of many questions finds that, too. A tolerance t replaces it
by a weaker one: the published order of an unseen question is one with score s with a probability proportional to exp(t
s / variance of the question's scores), so that the mean score of published orders is about t. Where t is not known but
differs between benchmarks, normally and with a known standard deviation (the spread), it is drawn, too: the sum of n
scores then has n x spread as a further standard deviation, which no number of questions makes smaller. On clean
benchmarks (docs/validity.md) the mean difference between the published and a control form is 0, and their spread
beyond sampling error is `usual_spread` at most. Questions of the same kind that the model cannot have seen measure it
for one benchmark and one model; both are averaged with the inverse squares of their errors as weights, as for a normal
distribution. Where a benchmark is unlike those that were tried, the unseen questions alone count. Where not every
order was as likely to be published (a builder may like one place for the right option), a question's prior has their
probabilities.

Questions of one family (`questions.families`) are no independent evidence: one order may have been drawn for all of
them. A family is one unit, in whose draws all members are as suspicious as each other: by the quantile, each published
order takes the place among its own that the others take among theirs. Of all ways in which the members may depend on
each other, that one has the largest variance of the sum and the largest E[exp(t x sum)], so that Chernoff's bound
holds for any of them, and the e-value takes the mean of a family's likelihood ratios instead of their product.

The tests within questions have the same null hypothesis, whatever the options say. Each is conditional on the options,
so it is exact for any texts, with ties, repeated options and different numbers of options; questions on which it
cannot act contribute nothing. Limits: a preference that is natural and that no tolerance, spread or prior allows for
looks like memory. Source: ours, after Fisher's randomisation test with one stratum per question; Holm (1979) for
several tests.
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
CONTRADICTION = 3.0  # standard errors between unseen questions and the usual spread, from which a benchmark is unlike


@dataclass(frozen=True)
class NaturalPart:
    """Measured on `n` questions that the model cannot have seen.

    means, errors: of the published orders' scores minus those in each control form, with standard errors
    """

    n: int
    means: tuple[float, ...]
    errors: tuple[float, ...]


def usual_spread(n_layouts: int) -> float:
    """Of clean benchmarks whose orders are asked in so many layouts. Several share what is natural, and less of what
    is by chance, so that a natural preference is larger in the standard deviations of their combination. Measured on
    ten clean sets: docs/validity.md."""
    return USUAL_SPREAD if n_layouts == 1 else SPREAD_IN_SEVERAL


def expected(natural: NaturalPart | None, n_forms: int, spread: float, *, is_usual: bool) -> list[tuple[float, float]]:
    """Mean, at least 0, and standard deviation by each control form.

    spread: of benchmarks in general; is_usual: whether this one is like those from which it comes
    """
    if natural is None:
        return [(0.0, spread)] * n_forms
    found = zip(natural.means, natural.errors, strict=True)
    return [_updated(mean, error, spread, is_usual) for mean, error in found]


def _updated(mean: float, error: float, spread: float, is_usual: bool) -> tuple[float, float]:
    if not is_usual or abs(mean) > CONTRADICTION * math.hypot(error, spread):
        return max(0.0, mean), error
    usual, own = spread**-2, error**-2
    return max(0.0, mean * own / (usual + own)), (usual + own) ** -0.5


SUM_DRAWS = 9_999  # the smallest Monte Carlo p-value is 1e-4, which eight tests by Holm make 8e-4
EQUAL = 1e-9  # scores, and sums relative to their size, that differ by less are equal
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)  # of seen questions, over which the e-value averages
RATIO_LEVEL = 0.95
EVALUE_LIMIT = 2.33  # standard deviations; 99 % of benchmarks have a smaller natural preference
Weigh = Callable[[Floats], Floats]


@dataclass(frozen=True)
class OrderSum:
    """The test's result.

    n: number of questions with scores that differ; n_units: of families among them, a question alone being one, too
    pvalue: probability, under the null hypothesis, of a sum at least as large: a Monte Carlo p-value, valid for any
        number of draws; or, where no draw is as large and it is lower, Chernoff's upper bound of it. Both together
        are valid at every level: at 1 / (SUM_DRAWS + 1) and above, only the former decides, and below, only the latter
    pvalue_error: standard error of the Monte Carlo p-value; 0 for a bound
    is_bound: whether `pvalue` is an upper bound
    log_evalue: logarithm of an e-value; its mean under the null hypothesis is 1 at most, so that e-values of
        independent questions, asked at different times, may be multiplied
    mean: mean of the published orders' scores, in standard deviations of a question's orders, and its standard error
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


def averaged(answers: Sequence[float], n_layouts: int) -> tuple[float, ...]:
    """One log-likelihood per order, nats: the logarithm of the mean of exp(standardised value) over layouts, which
    gives most weight to the layout in which the order stands out; standardised, times the layouts' mean standard
    deviation and plus their mean. A layout in which all orders are as likely counts as 0 for each.

    Claim: every order is treated alike, so that orders that are exchangeable in each layout stay so together. Of
    questions that were seen in one of the layouts it finds more than the mean of the values (docs/validity.md).

    answers: of all orders in one layout after the other, `(n_layouts * n_orders,)`
    """
    if n_layouts == 1 or not len(answers):
        return tuple(answers)
    each = np.asarray(answers, dtype=float).reshape(n_layouts, -1)
    scored = [standard_scores(own) for own in each]
    values = [np.zeros(each.shape[1]) if own is None else own for own in scored]
    joined = standard_scores(logsumexp(values, axis=0))
    same = np.zeros(each.shape[1])
    found: list[float] = (each.mean() + each.std(axis=1).mean() * (same if joined is None else joined)).tolist()
    return tuple(found)


def averaged_controls(answers: Sequence[float], n_layouts: int) -> tuple[float, ...]:
    """Those of the control forms: the first is the same in all layouts and was asked once, the second in each."""
    n_orders = len(answers) // (1 + n_layouts)
    return (*answers[:n_orders], *averaged(answers[n_orders:], n_layouts))


def version_sum(scores: Sequence[Sequence[float]]) -> OrderSum:
    """The test of versions that were drawn uniformly, such as wordings and orders of questions: the same result in
    whatever order they come, so that a table and an audit of its log give one p-value.

    scores: of each question or shard, the log-likelihoods of its versions, the published one first
    """
    return _version_sum(tuple(sorted(map(tuple, scores))))


@lru_cache(maxsize=16)  # several rows need the same sum
def _version_sum(scores: tuple[tuple[float, ...], ...]) -> OrderSum:
    standard = [own for own in (standard_scores(np.array(one)) for one in scores) if own is not None]
    return order_sum(standard, np.random.default_rng(0))


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
    """Tests the published orders of all `questions` together.

    questions: of each, the scores of its orders, the published one first, as `standard_scores` returns them
    tolerance: natural preference that the null hypothesis allows; 0 for exchangeable orders
    weigh: the weights of a question's orders, from their scores
    families: of each question, the number of its family; None if each is one of its own
    spread: standard deviation of the natural preference between benchmarks, for the plain sum of scores
    priors: of each question, how likely each of its orders was to be published; None if all are as likely

    The e-value is of a preference at the `EVALUE_LIMIT` of that distribution, since it needs one null hypothesis.
    """
    n = len(questions)
    if not n:
        return OrderSum(0)
    deviation = spread * n
    of_questions = [weigh(own) for own in questions]
    found = math.fsum(float(own[0]) for own in of_questions)
    numbers = range(n) if families is None else families
    each = bases_of(questions, tolerance, priors)
    weights, bases = as_units(of_questions, each, numbers)
    drawn = drawn_sums(weights, rng, bases if tolerance or priors or len(weights) < n else None)
    if deviation:
        drawn += rng.normal(0.0, deviation, SUM_DRAWS)
    n_as_large = int((drawn >= found - EQUAL * max(1.0, abs(found))).sum())
    pvalue = (1 + n_as_large) / (1 + SUM_DRAWS)
    bound = chernoff_bound(weights, found, bases, deviation)
    is_far = not n_as_large and bound < pvalue
    published = np.array([own[0] for own in questions])
    at_limit = bases_of(questions, tolerance + EVALUE_LIMIT * spread, priors) if spread else each
    return OrderSum(
        n,
        bound if is_far else pvalue,
        0.0 if is_far else monte_carlo_error(pvalue),
        is_far,
        log_evalue([np.exp(own) for own in questions], at_limit, numbers),
        float(published.mean()),
        error_of_mean(published, numbers),
        len(weights),
    )


def as_units(
    weights: Sequence[Floats], bases: Sequence[Floats], families: Sequence[int]
) -> tuple[list[Floats], list[Floats]]:
    """The weights and probabilities of each family as of one question: the sums of its members' weights where all of
    them stand at the same quantile of their own."""
    members: dict[int, list[int]] = {}
    for place, family in enumerate(families):
        members.setdefault(family, []).append(place)
    units = [
        (weights[own[0]], bases[own[0]]) if len(own) == 1 else _together([(weights[i], bases[i]) for i in own])
        for own in members.values()
    ]
    return [unit[0] for unit in units], [unit[1] for unit in units]


def _together(members: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    ranked = [(own[order], np.cumsum(base[order])) for own, base in members for order in [np.argsort(own)[::-1]]]
    ends = np.unique(np.round(np.concatenate([np.minimum(end, 1.0) for _, end in ranked]), 12))
    middles = ends - np.diff(ends, prepend=0.0) / 2
    sums = np.zeros(len(ends))
    for own, end in ranked:
        sums += own[np.minimum(np.searchsorted(end, middles), len(own) - 1)]
    return sums, np.diff(ends, prepend=0.0)


def error_of_mean(published: Floats, families: Sequence[int]) -> float:
    """Of the mean over questions, with families as the clusters; NaN for one family."""
    _, unit = np.unique(np.asarray(families), return_inverse=True)
    n_units = int(unit.max()) + 1
    if n_units == 1:
        return NAN
    sums = np.bincount(unit, weights=published - published.mean())
    return float(math.sqrt(n_units / (n_units - 1) * float(sums @ sums))) / len(published)


def bases_of(questions: Sequence[Floats], tolerance: float, priors: Sequence[Floats] | None = None) -> list[Floats]:
    given = [None] * len(questions) if priors is None else priors
    return [base_of(own, tolerance, prior) for own, prior in zip(questions, given, strict=True)]


def base_of(scores: Floats, tolerance: float, prior: Floats | None = None) -> Floats:
    """Probability, under the null hypothesis, that each order of a question is the published one: proportional to its
    prior times exp(tolerance x score / variance), whose mean score is about the tolerance, whatever the scores' scale.
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
    return [np.full(len(own), 1 / len(own)) for own in weights]


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


def critical_sum(
    weights: Sequence[Floats],
    rng: np.random.Generator,
    level: float,
    bases: Sequence[Floats] | None = None,
    deviation: float = 0.0,
) -> float:
    """The smallest sum at which the test of equally likely orders, or of those with the probabilities `bases`, rejects
    at `level`: by the draws where they are enough to tell, else by Chernoff's bound, as its p-value is.

    deviation: standard deviation of a normal addition to the sum, see `spread`
    """
    if level * (1 + SUM_DRAWS) >= 1:
        drawn = drawn_sums(weights, rng, bases) + rng.normal(0.0, deviation, SUM_DRAWS)
        return float(np.quantile(drawn, 1 - level, method="higher"))
    bases = bases or equal_bases(weights)
    low = math.fsum(float(base @ own) for own, base in zip(weights, bases, strict=True))
    high = math.fsum(float(own.max()) for own in weights)
    return smallest(lambda found: chernoff_bound(weights, found, bases, deviation) <= level, low, high)


def chernoff_bound(weights: Sequence[Floats], found: float, bases: Sequence[Floats], deviation: float = 0.0) -> float:
    """An upper bound of P(sum >= found) for any number of questions: the least over t of E[exp(t (sum - found))].

    deviation: standard deviation of a normal addition to the sum, see `spread`
    """
    from scipy.optimize import minimize_scalar

    by_size: dict[int, list[tuple[Floats, Floats]]] = {}
    for own, base in zip(weights, bases, strict=True):
        by_size.setdefault(len(own), []).append((own, base))
    rows = [np.array(pairs).transpose(1, 0, 2) for pairs in by_size.values()]

    def log_bound(log_t: float) -> float:
        t = math.exp(log_t)
        moments = (float(logsumexp(t * own, axis=1, b=base).sum()) for own, base in rows)
        return math.fsum(moments) + (t * deviation) ** 2 / 2 - t * found

    best = minimize_scalar(log_bound, bounds=(-15.0, 5.0), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(min(0.0, float(best.fun))))


def log_evalue(weights: Sequence[Floats], bases: Sequence[Floats], families: Sequence[int] | None = None) -> float:
    """Logarithm of the mean, over `SHARES`, of the likelihood ratio of "this share of the questions was seen, and the
    published order of a seen one has a probability proportional to its weight" against the null hypothesis. A family
    counts as one question whose ratio is the mean of its members'."""
    ratios = np.array([own[0] / float(base @ own) for own, base in zip(weights, bases, strict=True)])
    if families is not None:
        _, unit = np.unique(np.asarray(families), return_inverse=True)
        ratios = np.bincount(unit, weights=ratios) / np.bincount(unit)
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
    low, high = 0.0, 1 / min(null_rates)
    for _ in range(40 if n_flagged else 0):
        middle = (low + high) / 2
        tail = poisson_binomial_tail(n_flagged, [min(1.0, middle * rate) for rate in null_rates])
        low, high = (middle, high) if tail < 1 - RATIO_LEVEL else (low, middle)
    return OrderRatio(len(null_rates), n_flagged / math.fsum(null_rates), low)


Places = NDArray[np.intp]
MOST_ENUMERATED = 5  # options; beyond, there are 720 orders or more
DRAWN_ORDERS = 120  # of a question with more options, as many as five options have


def orders_of(n_options: int, rng: np.random.Generator) -> Places:
    """Orders as rows of places, the published one first: all of them up to `MOST_ENUMERATED` options, and beyond as
    many drawn at random.

    Given these orders as a set, each is equally likely to be the published one, so tests are exact with drawn orders,
    too; they only lose some power.
    """
    if n_options <= MOST_ENUMERATED:
        return np.array(list(permutations(range(n_options))), dtype=np.intp)
    drawn = [rng.permutation(n_options) for _ in range(DRAWN_ORDERS)]
    return np.array([np.arange(n_options), *drawn], dtype=np.intp)


def sum_test(values: Sequence[Floats], rng: np.random.Generator) -> tuple[float, float]:
    """z and two-sided p-value of the sum of the published orders' values.

    values: per question, the standardised value of each order, the published one first

    Under the null hypothesis each question's value is one of its own values, drawn uniformly; so are the draws with
    which the sum is compared. The sum over sqrt(number of questions), z, has mean 0 and variance 1.
    """
    published = math.fsum(float(own[0]) for own in values)
    at_least = np.abs(drawn_sums(values, rng)) >= abs(published) - EQUAL * max(1.0, abs(published))
    return published / math.sqrt(len(values)), float(1 + at_least.sum()) / (1 + SUM_DRAWS)


def both_tails(n_found: int, rates: Sequence[float]) -> float:
    """Twice the smaller tail: for a property that orders may have too often or too rarely."""
    below = poisson_binomial_tail(len(rates) - n_found, [1 - rate for rate in rates])
    return min(1.0, 2 * min(poisson_binomial_tail(n_found, rates), below))


def place_test(places: Sequence[tuple[int, int]], rng: np.random.Generator) -> tuple[float, int, float]:
    """Chi-square of the right options' places, its degrees of freedom, and its Monte Carlo p-value.

    places: per question, the place of the right option and the number of options

    Places are counted separately for each number of options, and the chi-squares are added. One-sided: a builder who
    balances the places on purpose gets more even ones than chance, which favours no order of a question.
    """
    found, drawn, freedom = 0.0, np.zeros(SUM_DRAWS), 0
    for n_options in sorted({n for _, n in places}):
        counts = np.bincount([place for place, n in places if n == n_options], minlength=n_options)
        expected = counts.sum() / n_options
        found += float(((counts - expected) ** 2).sum() / expected)
        simulated = rng.multinomial(counts.sum(), np.full(n_options, 1 / n_options), size=SUM_DRAWS)
        drawn += ((simulated - expected) ** 2).sum(axis=1) / expected
        freedom += n_options - 1
    at_least = drawn >= found - EQUAL * max(1.0, found)
    return found, freedom, float(1 + at_least.sum()) / (1 + SUM_DRAWS)


def monte_carlo_error(pvalue: float) -> float:
    """Standard error of a p-value from `SUM_DRAWS` draws."""
    return math.sqrt(pvalue * (1 - pvalue) / SUM_DRAWS)


def adjusted_by_holm(pvalues: Sequence[float]) -> list[float]:
    """Each p-value adjusted for the number of them: the chance that any true null hypothesis of the family has an
    adjusted one of at most x is at most x, however the tests depend on each other."""
    adjusted, largest = [math.nan] * len(pvalues), 0.0
    for rank, place in enumerate(sorted(range(len(pvalues)), key=pvalues.__getitem__)):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[place]))
        adjusted[place] = largest
    return adjusted


def holm_level(pvalues: Sequence[float], level: float) -> float:
    """What Holm's method compares with: it rejects those of the p-values that are at most this, with a probability of
    any false rejection of at most `level`. Another p-value than those that it rejects would have been rejected, too,
    from here on."""
    for rank, pvalue in enumerate(sorted(pvalues)):
        if pvalue > level / (len(pvalues) - rank):
            return level / (len(pvalues) - rank)
    return level
