"""The combination of a sealed benchmark's tests, and the bound on the number of seen questions, by enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lm_eval_leakage.stats.sealed import (
    ORDER_DRAW,
    PLACE_DRAW,
    TOP_SIXTH,
    WORDING_DRAW,
    Hits,
    SealedTest,
    best_bound,
    fisher,
    hits_of,
    needed_alone,
    together,
)


def of_draw(draw: str, pvalue: float = 0.5, log_evalue: float = 0.0, name: str = "") -> SealedTest:
    return SealedTest(name or draw or "shown", draw, n=40, pvalue=pvalue, log_evalue=log_evalue)


# ---------------------------------------------------------------------- the combination


@given(st.floats(1e-12, 1), st.floats(1e-12, 1))
def test_two_pvalues_are_combined_as_fishers_closed_form_says(one, other):
    product = one * other
    assert fisher([one]) == pytest.approx(one)
    assert fisher([one, other]) == pytest.approx(product * (1 - math.log(product)))


def test_a_pvalue_that_underflows_to_0_is_combined_as_the_smallest_number():
    assert fisher([0.0]) < 1e-300
    assert 0 <= fisher([0.0, 0.5]) < 1e-290


@given(st.floats(1e-9, 0.2), st.integers(1, 4))
def test_one_test_alone_reaches_the_level_where_the_others_are_at_a_half(level, n_tests):
    assert fisher([needed_alone(level, n_tests), *[0.5] * (n_tests - 1)]) == pytest.approx(level, rel=1e-6)


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
        of_draw(ORDER_DRAW, 0.03, 2.0),
        of_draw(ORDER_DRAW, 1e-9, 20.0, name="chat"),
        of_draw(PLACE_DRAW, 0.5, math.nan),
        of_draw("", 1e-9, 30.0),
    ]
    found = together(tests)
    assert found.names == (WORDING_DRAW, ORDER_DRAW, PLACE_DRAW)
    assert found.pvalue == pytest.approx(fisher([0.02, 0.03, 0.5]))
    assert found.log_evalue == pytest.approx(3.0)


def test_the_chat_counts_where_no_orders_were_scored():
    not_run = SealedTest("option orders", ORDER_DRAW, reason="3 questions; at least 20 are needed")
    found = together([not_run, of_draw(ORDER_DRAW, 0.004, name="chat")])
    assert (found.names, found.pvalue) == (("chat",), pytest.approx(0.004))


def test_without_a_test_there_is_no_pvalue():
    found = together([SealedTest("option orders", ORDER_DRAW), of_draw("", 0.001)])
    assert found.names == ()
    assert math.isnan(found.pvalue)
    assert math.isnan(found.log_evalue)


# ---------------------------------------------------------------------- hits


@given(st.lists(st.integers(-2, 2), min_size=2, max_size=12), st.sampled_from([0.0, TOP_SIXTH, 0.5]))
def test_an_unseen_question_is_a_hit_at_most_as_often_as_its_null_rate_says_with_any_ties(scores, top):
    """Over every version that might have been published."""
    hits = [hits_of("rule", [[scores[at], *scores[:at], *scores[at + 1 :]]], top) for at in range(len(scores))]
    (rate,) = hits[0].null_rates
    assert sum(own.n_hits for own in hits) / len(scores) <= rate + 1e-12


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
