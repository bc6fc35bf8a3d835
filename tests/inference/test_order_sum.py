"""The data-set test of option orders, its power, and permutation tests within questions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from itertools import combinations, permutations, product
from math import factorial, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, chi2, norm

from lm_eval_leakage.stats import order_sum as order_sum_module
from lm_eval_leakage.stats.order_power import FOUND_WITH, OrderPower, seen_at_most
from lm_eval_leakage.stats.order_sum import (
    DRAWN_ORDERS,
    SUM_DRAWS,
    adjusted_by_holm,
    as_units,
    averaged,
    averaged_controls,
    base_of,
    bases_of,
    both_tails,
    chernoff_bound,
    critical_sum,
    holm_level,
    mixture_log_evalue,
    monte_carlo_error,
    order_ratio,
    order_sum,
    orders_of,
    place_test,
    standard_scores,
    sum_test,
)


def generator(seed=0):
    return np.random.default_rng(seed)


def questions_of(n, n_orders=24, *, shift=0.0, seed=0):
    """Standardised scores of unseen questions; `shift` standard deviations are added to the published orders'."""
    drawn = generator(seed).normal(size=(n, n_orders))
    drawn[:, 0] += shift
    return [standard_scores(row) for row in drawn]


SCORES = st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), min_size=2, max_size=4)


@given(
    st.lists(SCORES, min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([np.exp, np.positive]),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_pvalue_agrees_with_the_enumeration_of_all_published_orders(rows, seed, tolerance, weigh, has_priors):
    given_rows = [np.array(row, dtype=float).T for row in rows]
    pairs = [
        (scores_of_row, prior / prior.sum())
        for row, prior in given_rows
        if (scores_of_row := standard_scores(row)) is not None
    ]
    if not pairs:
        return
    scores = [scores_of_row for scores_of_row, _ in pairs]
    priors = [prior for _, prior in pairs] if has_priors else None
    bases = bases_of(scores, tolerance, priors)
    for scores_of_row, prior, base in zip(
        scores, priors or [1 / len(scores_of_row) + 0 * scores_of_row for scores_of_row in scores], bases, strict=True
    ):
        tilted = prior * np.exp(tolerance * scores_of_row / max(float(prior @ scores_of_row**2), 1e-9))
        assert base == pytest.approx(tilted / tilted.sum())
    weights = [weigh(scores_of_row) for scores_of_row in scores]
    total = sum(scores_of_row[0] for scores_of_row in weights)
    sums = [sum(chosen) for chosen in itertools.product(*weights)]
    probabilities = [math.prod(chosen) for chosen in itertools.product(*bases)]
    exact = sum(p for other, p in zip(sums, probabilities, strict=True) if other >= total - 1e-9 * max(1, abs(total)))
    tested = order_sum(scores, generator(seed), tolerance=tolerance, weigh=weigh, priors=priors)
    assert abs(tested.pvalue - exact) < 5 * math.sqrt(max(0.0, exact * (1 - exact)) / SUM_DRAWS) + 2 / SUM_DRAWS
    assert chernoff_bound(weights, total, bases) >= exact - 1e-9
    if not tested.is_bound:
        assert tested.pvalue_error == pytest.approx(math.sqrt(tested.pvalue * (1 - tested.pvalue) / SUM_DRAWS))


@pytest.mark.parametrize(
    ("weigh", "spread", "level"),
    [
        *((np.exp, 0.0, level) for level in (0.05, 0.01, 3e-4, 9e-5, 1e-7)),
        *((np.positive, 0.1, level) for level in (0.05, 0.01, 1e-5)),
    ],
)
def test_the_test_rejects_from_the_critical_sum_on(weigh, spread, level):
    """Of 40 questions, the published orders get likelier one by one, until the sum is critical."""
    rows = [np.sort(question) for question in questions_of(40)]
    critical = critical_sum([weigh(row) for row in rows], generator(), level, deviation=spread * len(rows))
    sums, pvalues = [], []
    for n_first in range(41):  # so many published orders are the most likely ones, the others in the middle of 24
        scores = [np.roll(row, 1 if place < n_first else 12) for place, row in enumerate(rows)]
        sums.append(math.fsum(float(weigh(score)[0]) for score in scores))
        pvalues.append(order_sum(scores, generator(), weigh=weigh, spread=spread).pvalue)
    assert sums[0] < critical < sums[-1]
    assert [pvalue <= level for pvalue in pvalues] == [total >= critical for total in sums]


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_evalue_has_mean_one_over_all_published_orders(seed):
    rows = [generator(seed + place).normal(size=size) for place, size in enumerate((2, 3, 4))]
    for tolerance in (0.0, 0.5):
        mean = 0.0
        for places in itertools.product(*(range(len(row)) for row in rows)):
            rolled = [np.roll(row, -place) for row, place in zip(rows, places, strict=True)]
            bases = [base_of(row, tolerance) for row in rolled]
            mean += math.prod(base[0] for base in bases) * math.exp(mixture_log_evalue([*map(np.exp, rolled)], bases))
        assert mean == pytest.approx(1)


def test_a_preference_that_the_control_shares_is_subtracted():
    scores = generator().normal(size=24)
    assert standard_scores(scores, 3 * scores - 7) == pytest.approx(np.zeros(24))
    assert standard_scores(scores, np.zeros(24)) == pytest.approx(standard_scores(scores))


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([1 / 2, 1 / 6, 1 / 24]))
@settings(max_examples=60, deadline=None)
def test_with_one_rate_the_ratio_has_clopper_and_pearsons_bound(n_flagged, n, rate):
    if n_flagged > n:
        return
    result = order_ratio(n_flagged, [rate] * n)
    ends = binomtest(n_flagged, n, alternative="greater").proportion_ci(0.95, method="exact")
    assert result.low == pytest.approx(ends.low / rate, abs=1e-9)
    assert result.value == pytest.approx(n_flagged / n / rate)


def test_with_different_rates_the_bound_holds_as_often_as_it_says():
    rng = generator()
    rates = np.array([1 / 24] * 60 + [1 / 6] * 20)
    missed = 0
    for _ in range(300):
        flags = rng.random(80) < 2 * rates
        missed += order_ratio(int(flags.sum()), rates.tolist()).low > 2
    assert missed <= binom.ppf(0.999, 300, 0.05)


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=4), min_size=2, max_size=5),
    st.integers(0, 99),
    st.sampled_from([0.1, 0.5]),
)
@settings(max_examples=40, deadline=None)
def test_with_a_spread_the_pvalue_agrees_with_all_published_orders_and_a_normal_preference(rows, seed, spread):
    scores = [
        question_scores for row in rows if (question_scores := standard_scores(np.array(row, dtype=float))) is not None
    ]
    if not scores:
        return
    total, deviation = sum(question_scores[0] for question_scores in scores), spread * len(scores)
    sums = [sum(chosen) for chosen in itertools.product(*scores)]
    exact = float(np.mean(norm.sf(total - np.array(sums), scale=deviation)))
    tested = order_sum(scores, generator(seed), weigh=np.positive, spread=spread)
    assert abs(tested.pvalue - exact) < 5 * math.sqrt(exact * (1 - exact) / SUM_DRAWS) + 2 / SUM_DRAWS
    bases = [base_of(question_scores, 0.0) for question_scores in scores]
    assert chernoff_bound(scores, total, bases, deviation) >= exact - 1e-9


def test_orders_that_could_not_be_published_are_never_drawn_however_far_their_scores_are_apart():
    row, prior = np.array([0.1, 0.1, -9.0, 8.8]), np.array([0.5, 0.5, 0.0, 0.0])
    assert base_of(row, 5.0, prior) == pytest.approx(prior)
    result = order_sum([row] * 30, generator(), weigh=np.positive, spread=0.05, priors=[prior] * 30)
    assert math.isfinite(result.log_evalue)
    assert (result.pvalue, result.mean) == (pytest.approx(0.5, abs=0.1), pytest.approx(0.1))


def test_the_tolerance_is_a_mean_score_whatever_the_scale_of_differences():
    for scale in (1.0, 0.2):
        bases = [(base_of(scale * question, 0.05), scale * question) for question in questions_of(300)]
        assert np.mean([base @ row for base, row in bases]) == pytest.approx(0.05, rel=0.05)
    assert base_of(np.zeros(6), 0.1) == pytest.approx(np.full(6, 1 / 6))


@pytest.mark.parametrize("rows", [[[0, 1, 5], [0, 0, 1]], [[0, 0, 9], [0, 1, 1], [2, 1]]])
def test_over_all_keys_no_level_is_reached_more_often_than_it_says(rows, monkeypatch):
    """Every published version of every question, each with its own draws: few, so that the bound decides often."""
    monkeypatch.setattr(order_sum_module, "SUM_DRAWS", 9)
    scores = [standard_scores(np.array(row, dtype=float)) for row in rows]
    keys = list(itertools.product(*(range(len(score)) for score in scores)))
    pvalues = [
        order_sum([np.roll(score, -at) for score, at in zip(scores, key, strict=True)], generator([seed, *key])).pvalue
        for key in keys
        for seed in range(8)
    ]
    for level in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
        n_rejected = sum(pvalue <= level + 1e-12 for pvalue in pvalues)
        assert binomtest(n_rejected, len(pvalues), level, alternative="greater").pvalue > 0.001


def test_the_bound_replaces_only_the_lowest_monte_carlo_pvalue():
    results = [order_sum(questions_of(40, 6, shift=shift), generator()) for shift in (0.0, 0.5, 0.8, 1.0, 1.5, 9.0)]
    assert {result.is_bound for result in results} == {False, True}
    assert results[-1].pvalue < 1e-20  # a far tail does not end at the number of draws
    for result in results:
        assert result.pvalue < 1 / (SUM_DRAWS + 1) if result.is_bound else result.pvalue >= 1 / (SUM_DRAWS + 1)


# ---------------------------------------------------------------------- families


@pytest.mark.parametrize("tolerance", [0.0, 0.3])
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(2, 4), min_size=2, max_size=3))
def test_of_all_ways_to_depend_the_units_have_the_largest_moments(tolerance, seed, sizes) -> None:
    """Against a joint distribution with the same margins: independence, and one drawn at random."""
    scores = [question for size in sizes for question in questions_of(1, size, seed=seed + size)]
    weights, bases = [np.exp(score) for score in scores], [base_of(score, tolerance) for score in scores]
    (unit,), (base,) = as_units(weights, bases, [0] * len(sizes))
    means = sum(float(weight @ base) for weight, base in zip(weights, bases, strict=True))
    assert float(base.sum()) == pytest.approx(1)
    assert float(unit @ base) == pytest.approx(means)
    joint = bases[0]
    for base_of_next in bases[1:]:
        joint = np.multiply.outer(joint, base_of_next)
    rng = np.random.default_rng(seed)
    for _ in range(20):  # moves mass around a rectangle, which keeps every margin
        axis = rng.integers(len(sizes) - 1)
        moved = np.moveaxis(joint, [axis, axis + 1], [0, 1])
        (a, b), (c, d) = rng.permutation(sizes[axis])[:2], rng.permutation(sizes[axis + 1])[:2]
        most = np.minimum(moved[a, c], moved[b, d]) * rng.random()
        moved[a, c], moved[b, d] = moved[a, c] - most, moved[b, d] - most
        moved[a, d], moved[b, c] = moved[a, d] + most, moved[b, c] + most
    sums = sum(np.meshgrid(*weights, indexing="ij"))
    for t in (0.1, 1.0):
        assert float(base @ np.exp(t * unit)) >= float((joint * np.exp(t * sums)).sum()) * (1 - 1e-9)
    assert float(base @ unit**2) >= float((joint * sums**2).sum()) * (1 - 1e-9)


def test_a_unit_adds_what_stands_at_the_same_quantile() -> None:
    weights, bases = [np.array([1.0, 3.0]), np.array([10.0, 40.0, 20.0])], [np.full(2, 1 / 2), np.full(3, 1 / 3)]
    (unit,), (base,) = as_units(weights, bases, [7, 7])
    assert unit == pytest.approx([43, 23, 21, 11])
    assert base == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3])


def test_copies_of_a_question_in_a_family_are_one_unit() -> None:
    """The p-value of equal questions is that of one, and the error of the mean that of n families."""
    scores = questions_of(25, 6, shift=0.5)
    once, three = (order_sum(scores * n, generator(), families=[*range(25)] * n) for n in (1, 3))
    assert (three.n, three.n_units) == (75, 25)
    assert three.pvalue == pytest.approx(once.pvalue, abs=0.01)  # other draws
    assert three.log_evalue == pytest.approx(once.log_evalue)
    assert three.mean_error == pytest.approx(once.mean_error)


def test_the_evalue_of_a_family_has_mean_one_whatever_its_members_share() -> None:
    scores = [questions_of(1, 6, seed=n)[0] for n in range(2)]
    bases, total = [np.full(6, 1 / 6)] * 2, 0.0
    for at in range(6):
        rolled = [np.exp(np.roll(score, -at)) for score in scores]
        total += math.exp(mixture_log_evalue(rolled, bases, [0, 0])) / 6
    assert total == pytest.approx(1)


# ---------------------------------------------------------------------- power

SEEN = (0.5, 0.2, 0.1, 0.08, 0.06, 0.06)  # of sixths of the orders, the most likely ones first
UNSEEN = (1.0,) * 6


def scores_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [standard_scores(rng.normal(size=size)) for size in sizes]


LEVEL = 0.01


def detectable_share(weights, ranks):
    ((_, share),) = OrderPower(weights, ranks={1: ranks}).detectable(LEVEL)
    return share


def weights_of(sizes, seed=0):
    return [np.exp(score) for score in scores_of(sizes, seed)]


def rejection_rate(share, weights, ranks, n_runs=2000):
    """Return how often the test rejects if each question was seen with probability `share`."""
    rng, critical = np.random.default_rng(1), critical_sum(weights, generator(), LEVEL)
    sums = np.zeros(n_runs)
    for weight in weights:
        ordered, width = np.sort(weight)[::-1], len(weight) // len(ranks)
        assert width * len(ranks) == len(weight)
        seen = ordered[rng.choice(len(ranks), n_runs, p=ranks) * width + rng.integers(width, size=n_runs)]
        sums += np.where(rng.random(n_runs) < share, seen, rng.choice(weight, n_runs))
    return float((sums >= critical).mean())


@pytest.mark.parametrize("sizes", [[24] * 200, [24, 120] * 60, [6] * 400], ids=["24", "24 and 120", "6"])
def test_at_the_share_that_it_returns_the_test_rejects_with_the_stated_probability(sizes) -> None:
    weights = weights_of(sizes)
    share = detectable_share(weights, SEEN)
    assert 0 < share < 1
    error = math.sqrt(FOUND_WITH * (1 - FOUND_WITH) / 2000)
    normal_error = 0.02  # the sum of so many questions is not quite normal
    assert abs(rejection_rate(share, weights, SEEN) - FOUND_WITH) < 4 * error + normal_error
    assert rejection_rate(share / 2, weights, SEEN) < FOUND_WITH - 0.1


@given(st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=25)
def test_of_better_remembered_questions_a_smaller_share_is_found(seed: int, mixed: float) -> None:
    weights = weights_of([24] * 60, seed)
    weaker = tuple(mixed * seen + (1 - mixed) / len(SEEN) for seen in SEEN)
    strong, weak = (detectable_share(weights, ranks) for ranks in (SEEN, weaker))
    assert 0 < strong <= 1
    assert math.isnan(weak) or weak >= strong - 1e-9


@pytest.mark.parametrize(("n", "ranks"), [(300, UNSEEN), (1, SEEN), (3, SEEN)], ids=["no memory", "1", "3"])
def test_it_is_undefined_where_not_even_a_benchmark_seen_as_a_whole_is_found(n: int, ranks) -> None:
    weights = weights_of([24] * n)
    assert math.isnan(detectable_share(weights, ranks))
    if n > 1:
        assert rejection_rate(1.0, weights, [rank / sum(ranks) for rank in ranks]) < FOUND_WITH


@pytest.mark.parametrize("n_orders", [2, 3, 4, 5])
def test_fewer_orders_than_parts_are_as_those_drawn_from_the_parts_by_enumeration(n_orders: int) -> None:
    places = np.zeros(n_orders)
    for rank, share in enumerate(SEEN):
        draws = list(combinations([other for other in range(len(SEEN)) if other != rank], n_orders - 1))
        for drawn in draws:
            places[sum(other < rank for other in drawn)] += share / len(draws) / sum(SEEN)
    weights = weights_of([n_orders] * 200)
    share = detectable_share(weights, SEEN)
    assert share == pytest.approx(detectable_share(weights, tuple(places)))
    assert abs(rejection_rate(share, weights, places) - FOUND_WITH) < 0.06


def test_more_orders_than_parts_are_neighbours_in_a_part() -> None:
    weights = weights_of([12] * 200)
    halved = tuple(share / 2 for share in SEEN for _ in range(2))
    assert detectable_share(weights, SEEN) == pytest.approx(detectable_share(weights, halved))


# ---------------------------------------------------------------------- how many may have been seen


def as_published(row, seen, rng):
    """The weights of a question with another published order: a drawn one, or one that was drawn by its rank."""
    ordered, width = np.sort(row)[::-1], len(row) // len(SEEN)
    place = rng.choice(len(SEEN), p=SEEN) * width + rng.integers(width) if seen else rng.integers(len(row))
    return np.roll(ordered, -place)


def bound(power, error):
    ((_, share),) = power.at_most(error)
    return share


@pytest.mark.parametrize("weigh", [np.exp, np.positive])
@pytest.mark.parametrize("share", [0.35, 0.6])
def test_the_bound_is_below_the_share_of_seen_questions_as_seldom_as_stated(share: float, weigh) -> None:
    rng, n_runs, error = np.random.default_rng(0), 400, 0.1
    weights = [weigh(score) for score in scores_of([12] * 60)]
    bounds = []
    for _ in range(n_runs):
        drawn_rows = [as_published(weight, rng.random() < share, rng) for weight in weights]
        bounds.append(bound(OrderPower(drawn_rows, ranks={1: SEEN}), error))
    n_missed = sum(bound < share for bound in bounds)
    assert error / 3 < n_missed / n_runs < error + 3 * math.sqrt(error * (1 - error) / n_runs)


@pytest.mark.parametrize(("n", "share"), [(20, 0.9), (20, 0.5), (60, 0.5)])
def test_of_few_questions_with_two_orders_too_whose_sums_take_few_values(n: int, share: float) -> None:
    rng, n_runs, error, likeliest = np.random.default_rng(0), 600, 0.05, np.exp([1.0, -1.0])
    n_missed = 0
    for _ in range(n_runs):
        is_first = rng.random(n) < np.where(rng.random(n) < share, 0.85, 0.5)
        weights = [likeliest if first else likeliest[::-1] for first in is_first]
        n_missed += bound(OrderPower(weights, ranks={1: (85, 15)}), error) < share
    assert n_missed / n_runs < error + 3 * math.sqrt(error * (1 - error) / n_runs)


@given(st.integers(0, 1000), st.floats(0.001, 0.4), st.floats(0, 0.3))
@settings(max_examples=25)
def test_at_the_bound_so_small_a_sum_has_the_stated_probability(seed: int, error: float, spread: float) -> None:
    """Recomputed from the ranks, with a natural addition to the sum."""
    rng, n = np.random.default_rng(seed), 150
    weights = [as_published(score, False, rng) for score in scores_of([6] * n, seed)]
    share = bound(OrderPower(weights, ranks={1: SEEN}, deviation=spread * n), error)
    if math.isnan(share):
        return
    chances = [share * np.array(SEEN) + (1 - share) / 6] * n
    means = [chance @ np.sort(weight)[::-1] for chance, weight in zip(chances, weights, strict=True)]
    squares = [chance @ np.sort(weight)[::-1] ** 2 for chance, weight in zip(chances, weights, strict=True)]
    deviation = math.sqrt(sum(squares) - sum(mean**2 for mean in means) + (spread * n) ** 2)
    total = max(sum(weight[0] for weight in weights), sum(weight.mean() for weight in weights))
    half_step = min(abs(np.diff(np.sort(weight))).min() for weight in weights) / 2
    assert norm.cdf(total + half_step, sum(means), deviation) == pytest.approx(error, rel=1e-3)


def test_of_several_bounds_the_smallest_counts_each_with_its_part_of_the_error() -> None:
    rng = np.random.default_rng(0)
    weights = [as_published(score, False, rng) for score in scores_of([12] * 100)]
    sharp, vague, useless = (OrderPower(weights, ranks={1: ranks}) for ranks in (SEEN, (4, 2, 1, 1, 1, 1), UNSEEN))
    assert bound(sharp, 0.01) < bound(vague, 0.01)
    assert seen_at_most([vague, sharp, useless], 0.03) == sharp.at_most(0.01)
    assert math.isnan(dict(seen_at_most([useless], 0.05))[1])
    assert seen_at_most([], 0.05) == ()
    assert bound(sharp, 0.01) < bound(replace(sharp, deviation=10.0), 0.01)


def test_a_preference_for_other_orders_bounds_no_more_than_none() -> None:
    """It is natural, and says nothing of memory."""
    least, less, most = (
        [np.roll(np.sort(score), -place) for score in scores_of([12] * 100)]
        for place in (0, 1, 11)  # published
    )
    shares = [bound(OrderPower(weights, ranks={1: SEEN}), 0.05) for weights in (least, less, most)]
    assert 0 < shares[0] == shares[1] < 1
    assert math.isnan(shares[2])


# ---------------------------------------------------------------------- within questions


@pytest.mark.parametrize("n_options", [1, 2, 3, 4, 5])
def test_up_to_five_options_every_order_is_listed_once_and_the_published_one_first(n_options) -> None:
    orders = orders_of(n_options, generator())
    assert tuple(orders[0]) == tuple(range(n_options))
    assert len({*map(tuple, orders)}) == len(orders) == factorial(n_options)


def test_of_more_options_some_orders_are_drawn() -> None:
    orders = orders_of(7, generator())
    assert orders.shape == (1 + DRAWN_ORDERS, 7)
    assert tuple(orders[0]) == tuple(range(7))
    assert all(sorted(order) == list(range(7)) for order in orders)


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e9 / 7])
def test_equal_values_cannot_be_standardised(value) -> None:
    assert standard_scores(np.full(6, value)) is None
    assert standard_scores(np.full(6, value) + np.array([0, 0, 0, 0, 0, 1e-12 * value])) is None


def test_the_pvalue_of_a_sum_is_that_of_all_combinations() -> None:
    lengths = [(1, 2, 4), (1, 5, 6), (7, 2, 3), (0, 0, 1)]
    values = [
        standard_scores(np.array([numbers[b] + 2 * numbers[c] for _, b, c in permutations(range(3))]))
        for numbers in lengths
    ]
    published = sum(numbers[0] for numbers in values)
    sums = np.array([sum(chosen) for chosen in product(*values)])
    exact = np.mean(abs(sums) >= abs(published) - 1e-9)
    z, pvalue = sum_test(values, generator())
    assert z == pytest.approx(published / sqrt(4))
    assert pvalue == pytest.approx(exact, abs=4 * monte_carlo_error(exact) + 1 / SUM_DRAWS)


def test_ties_with_the_published_sum_count_against_it() -> None:
    _, pvalue = sum_test([np.array([1.0, -1.0])] * 2, generator())
    assert pvalue == pytest.approx(0.5, abs=0.03)  # both or neither: 2 of 4
    assert sum_test([np.array([1.0, -1.0])], generator())[1] == 1.0


def test_places_have_the_chi_square_of_arithmetic_and_its_distribution() -> None:
    places = [(place, 4) for place, n in enumerate((30, 20, 25, 25)) for _ in range(n)]
    places += [(place, 2) for place, n in enumerate((60, 40)) for _ in range(n)]
    result, freedom, pvalue = place_test(places, generator())
    assert (result, freedom) == (pytest.approx((25 + 25) / 25 + (100 + 100) / 50), 4)
    assert pvalue == pytest.approx(chi2.sf(6, 4), abs=0.02)


@pytest.mark.parametrize("n_found", [0, 3, 5, 10])
def test_tails_of_equal_rates_are_binomial(n_found) -> None:
    above, below = binom.sf(n_found - 1, 10, 0.3), binom.cdf(n_found, 10, 0.3)
    assert both_tails(n_found, [0.3] * 10) == pytest.approx(min(1, 2 * min(above, below)))


def test_holm_multiplies_the_smallest_by_the_number_and_never_decreases() -> None:
    assert adjusted_by_holm([0.01, 0.04, 0.03, 0.9]) == pytest.approx([0.04, 0.09, 0.09, 0.9])
    assert adjusted_by_holm([0.5, 0.5]) == [1.0, 1.0]
    assert adjusted_by_holm([]) == []


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_level_of_holms_method_rejects_what_the_adjusted_pvalues_reject(n) -> None:
    """And another p-value in the place of one that is not rejected would be, at this level and not above."""
    rng = np.random.default_rng(n)
    for pvalues in rng.beta(0.3, 1, (300, n)):
        level = holm_level(list(pvalues), 0.1)
        rejected = [adjusted <= 0.1 for adjusted in adjusted_by_holm(list(pvalues))]
        assert [pvalue <= level for pvalue in pvalues] == rejected
        for place in [place for place in range(n) if not rejected[place]]:
            for changed, expected in ((level * 0.999, True), (level * 1.001, False)):
                others = [*pvalues[:place], changed, *pvalues[place + 1 :]]
                assert (adjusted_by_holm(others)[place] <= 0.1) == expected


LAYOUTS = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=n, max_size=n), min_size=2, max_size=6)
)


@given(LAYOUTS, st.randoms(use_true_random=False))
def test_an_order_counts_by_the_mean_of_exp_score_over_layouts_and_all_orders_are_treated_alike(rows, rng) -> None:
    each = np.array(rows, dtype=float).T  # layouts by orders
    means = np.array(averaged(each.ravel().tolist(), len(each)))
    if len(each) == 1:
        assert means.tolist() == each[0].tolist()
        return
    by_hand = [(row - row.mean()) / row.std() if row.std() else 0 * row for row in each]
    joined = np.log(np.mean(np.exp(by_hand), axis=0))
    size = joined.std() if joined.std() > 1e-9 else 1
    assert means == pytest.approx(each.mean() + each.std(axis=1).mean() * (joined - joined.mean()) / size)
    order = rng.sample(range(each.shape[1]), each.shape[1])
    assert averaged(each[:, order].ravel().tolist(), len(each)) == pytest.approx(means[order])


def test_the_same_answers_in_each_layout_are_those_of_one() -> None:
    answers = [-3.0, -1.0, -2.5, -7.0]
    assert averaged(answers * 3, 3) == pytest.approx(answers)
    assert averaged_controls([*answers, *[1.0, 2.0, 4.0, 8.0] * 2], 2) == pytest.approx([*answers, 1, 2, 4, 8])
    assert averaged((), 3) == averaged_controls((), 3) == ()
    assert all(math.isnan(mean) for mean in averaged([1.0, math.nan, 2.0, 3.0], 2))
