"""The tests of a sealed benchmark, alone and together, and how many questions were seen, by enumeration."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from lm_eval_leakage.stats.order_sum import SHARES
from lm_eval_leakage.stats.sealed import (
    ORDER_DRAW,
    PLACE_DRAW,
    TOP_SIXTH,
    WORDING_DRAW,
    Hits,
    SealedTest,
    best_bound,
    combined_test,
    fewest_seen,
    fisher,
    hits_log_evalue,
    hits_of,
    hits_pvalue,
    of_hits,
)


def of_draw(draw: str, pvalue: float = 0.5, log_evalue: float = 0.0, name: str = "") -> SealedTest:
    return SealedTest(name or draw or "shown", draw, n=40, pvalue=pvalue, log_evalue=log_evalue)


# ---------------------------------------------------------------------- the combination


@given(st.floats(1e-12, 1), st.floats(1e-12, 1))
def test_two_pvalues_are_combined_as_fishers_closed_form_says(pvalue, other):
    product = pvalue * other
    assert fisher([pvalue]) == pytest.approx(pvalue)
    assert fisher([pvalue, other]) == pytest.approx(product * (1 - math.log(product)))


def test_a_pvalue_that_underflows_to_0_is_combined_as_the_smallest_number():
    assert fisher([0.0]) < 1e-300
    assert 0 <= fisher([0.0, 0.5]) < 1e-290


@pytest.mark.parametrize("level", [0.01, 0.05, 0.3])
def test_pvalues_that_are_valid_given_the_ones_before_are_rejected_at_most_as_often_as_asked(level):
    """The second one depends on the first: of few orders if the first is small, so that it is coarse."""
    grids = {True: 4, False: 20}
    exact = sum(
        1 / 20 / grids[first <= 5]
        for first in range(1, 21)
        for second in range(1, grids[first <= 5] + 1)
        if fisher([first / 20, second / grids[first <= 5]]) <= level
    )
    assert exact <= level


def test_one_test_of_each_draw_counts_and_a_test_of_no_draw_is_only_shown():
    tests = [
        of_draw(WORDING_DRAW, 0.02, 1.0),
        SealedTest("not run", ORDER_DRAW, reason="3 questions; at least 20 are needed"),
        of_draw(ORDER_DRAW, 0.03, 2.0),
        of_draw(ORDER_DRAW, 1e-9, 20.0, name="chat"),
        of_draw(PLACE_DRAW, 0.5, math.nan),
        of_draw("", 1e-9, 30.0),
    ]
    combined = combined_test(tests)
    assert combined.names == (WORDING_DRAW, ORDER_DRAW, PLACE_DRAW)
    assert combined.pvalue == pytest.approx(fisher([0.02, 0.03, 0.5]))
    assert combined.log_evalue == pytest.approx(3.0)


def test_without_a_test_there_is_no_pvalue():
    combined = combined_test([SealedTest("option orders", ORDER_DRAW), of_draw("", 0.001)])
    assert combined.names == ()
    assert math.isnan(combined.pvalue)
    assert math.isnan(combined.log_evalue)


# ---------------------------------------------------------------------- hits


@given(st.lists(st.integers(-2, 2), min_size=2, max_size=12), st.sampled_from([0.0, TOP_SIXTH, 0.5]))
def test_an_unseen_question_is_a_hit_at_most_as_often_as_its_null_rate_says_with_any_ties(scores, top):
    """Over every version that might have been published."""
    hits = [hits_of("rule", [[scores[at], *scores[:at], *scores[at + 1 :]]], top) for at in range(len(scores))]
    (rate,) = hits[0].null_rates
    assert sum(hit.n_hits for hit in hits) / len(scores) <= rate + 1e-12


def test_the_first_sixth_of_24_orders_are_four_and_of_two_the_first():
    rule = hits_of("rule", [range(24), [1.0, 0.0]], TOP_SIXTH)
    assert rule.null_rates == (4 / 24, 1 / 2)
    assert rule.n_hits == 1


# ---------------------------------------------------------------------- the bound


def test_several_rules_share_the_error_so_that_the_best_of_their_bounds_holds_as_often_as_one():
    rng = np.random.default_rng(3)
    n, n_seen, runs = 60, 15, 400
    missed = 0
    for _ in range(runs):
        scores = rng.normal(size=(n, 24))
        scores[:n_seen, 0] += 4
        rules = [hits_of("first", scores.tolist()), hits_of("sixth", scores.tolist(), TOP_SIXTH)]
        missed += best_bound(rules, 0.1).n_seen > n_seen
    assert binomtest(missed, runs, 0.1, alternative="greater").pvalue > 0.001


def test_faint_memory_of_many_questions_is_bounded_by_the_first_sixth_and_firm_memory_of_few_by_the_first():
    faint = [Hits("first", 40, (1 / 24,) * 200), Hits("sixth", 106, (1 / 6,) * 200)]
    firm = [Hits("first", 72, (1 / 24,) * 1000), Hits("sixth", 192, (1 / 6,) * 1000)]
    assert best_bound(faint).rule == "sixth"
    assert best_bound(faint).n_seen > 60
    assert best_bound(firm).rule == "first"
    assert (best_bound(firm).n, best_bound(firm).level) == (1000, 0.05)


def test_without_hits_in_excess_nothing_is_bounded():
    assert best_bound([]).n_seen == 0
    assert best_bound([Hits("first", 0, (1 / 24,) * 50), Hits("none", 0, ())]).n_seen == 0


RATES = [1 / 2, 1 / 3, 1 / 3, 1 / 4, 1 / 5]


def probability(hits: tuple[bool, ...], rates: list[float]) -> float:
    return math.prod(rate if hit else 1 - rate for hit, rate in zip(hits, rates, strict=True))


def outcomes(n: int) -> list[tuple[bool, ...]]:
    return list(product([False, True], repeat=n))


def test_equal_rates_give_the_binomial_tail_and_no_questions_give_1() -> None:
    hits = [True] * 14 + [False] * 6
    assert hits_pvalue(hits, [0.5] * 20) == pytest.approx(binomtest(14, 20, 0.5, alternative="greater").pvalue)
    assert hits_pvalue([], []) == 1
    assert math.isnan(hits_log_evalue([], []))


def test_the_mean_of_the_e_value_by_chance_is_1_and_less_if_hits_are_rarer() -> None:
    evalues = {hits: math.exp(hits_log_evalue(hits, RATES)) for hits in outcomes(5)}
    assert math.fsum(probability(hits, RATES) * evalue for hits, evalue in evalues.items()) == pytest.approx(1)
    rarer = [0.9 * rate for rate in RATES]
    assert math.fsum(probability(hits, rarer) * evalue for hits, evalue in evalues.items()) < 1


def test_the_e_value_is_the_mean_over_shares_of_the_likelihood_ratio() -> None:
    hits, rates = [True, False, True], [1 / 2, 1 / 2, 1 / 4]
    ratios = [(1 + s * (2 - 1)) * (1 - s) * (1 + s * (4 - 1)) for s in SHARES]
    assert hits_log_evalue(hits, rates) == pytest.approx(math.log(np.mean(ratios)))


@settings(max_examples=30)
@given(st.sets(st.integers(0, 4)))
def test_the_lower_bound_is_above_the_number_of_seen_questions_in_at_most_1_of_20(seen: set[int]) -> None:
    """Whichever questions were seen, if all of them are hit."""
    too_high = math.fsum(
        probability(hits, [float(place in seen) or rate for place, rate in enumerate(RATES)])
        for hits in outcomes(5)
        if fewest_seen(sum(hits), RATES) > len(seen)
    )
    assert too_high <= 0.05


def test_the_lower_bound_is_the_smallest_plausible_number_by_search_over_all_subsets() -> None:
    def plausible(n_hits: int, n_seen: int) -> bool:
        tails = []
        for seen in combinations(range(5), n_seen):
            rates = [1.0 if place in seen else rate for place, rate in enumerate(RATES)]
            tails.append(math.fsum(probability(hits, rates) for hits in outcomes(5) if sum(hits) >= n_hits))
        return max(tails) > 0.05

    for n_hits in range(6):
        assert fewest_seen(n_hits, RATES) == next(m for m in range(6) if plausible(n_hits, m))


def test_the_lower_bound_of_many_equal_rates_is_found_by_the_binomial() -> None:
    n, n_hits = 200, 130
    expected = next(m for m in range(n) if binom.sf(n_hits - m - 1, n - m, 0.5) > 0.05)
    assert fewest_seen(n_hits, [0.5] * n) == expected
    assert fewest_seen(100, [0.5] * n) == 0
    assert fewest_seen(0, []) == 0


RIGHT = (2, 3, 2)  # equally right options of three questions
KEYS = list(product(*(range(n) for n in RIGHT)))


def ceiling(hits: list[bool]) -> SealedTest:
    return of_hits(SealedTest("ceiling"), hits, [1 / n for n in RIGHT], "")


@pytest.mark.parametrize("knows", [0, 1])
def test_a_model_is_rejected_by_no_more_keys_than_the_level_says(knows: int) -> None:
    """It answers one right option of each question, in any way; or none that is below `knows`."""
    for answered in KEYS:
        results = [
            ceiling([answer == drawn and answer >= knows for answer, drawn in zip(answered, key, strict=True)])
            for key in KEYS
        ]
        for level in {result.pvalue for result in results}:
            assert sum(result.pvalue <= level for result in results) <= level * len(results) + 1e-9
        assert sum(math.exp(result.log_evalue) for result in results) <= len(results) + 1e-9
        if not knows:
            assert sum(result.effect for result in results) == pytest.approx(0)
            deviation = math.sqrt(sum(result.effect**2 for result in results) / len(results))
            assert deviation == pytest.approx(results[0].effect_error)
