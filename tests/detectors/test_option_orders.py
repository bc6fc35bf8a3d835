from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from lm_eval_leakage.detectors.option_orders import (
    MaxOrder,
    MaxOrderEvidence,
    OptionOrders,
    distinct_orders,
    drawn_orders,
)
from lm_eval_leakage.records import Answered, Question, UntestableQuestion
from lm_eval_leakage.stats.order_scores import OrderScores


def question(*options: str, identity: str = "q") -> Question:
    return Question(identity, "Which?", options)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6))
def test_distinct_orders_are_the_permutations_without_repetition(options: list[str]) -> None:
    readings = [tuple(options[i] for i in order) for order in distinct_orders(options)]
    assert readings == list(dict.fromkeys(permutations(options)))
    assert next(distinct_orders(options)) == tuple(range(len(options)))


@pytest.mark.parametrize(("n_options", "n_orders"), [(2, 2), (3, 6), (4, 24), (5, 120), (6, 120), (10, 120)])
def test_all_orders_up_to_five_options_and_120_beyond(n_options: int, n_orders: int) -> None:
    requests = OptionOrders().requests(question(*"abcdefghij"[:n_options]))
    assert len(requests) == len(set(requests)) == n_orders


def test_four_options_as_the_harness_shows_them() -> None:
    first, second, *_ = OptionOrders().requests(question("w", "x", "y", "z"))
    assert (first.context, first.continuation) == ("Which?", "\nA. w\nB. x\nC. y\nD. z")
    assert second.continuation == "\nA. w\nB. x\nC. z\nD. y"


def test_orders_that_read_the_same_are_scored_once() -> None:
    assert len(OptionOrders().requests(question("x", "x ", "y"))) == 3
    assert len(OptionOrders().requests(question("x", "x", "y", "z"))) == 12


@pytest.mark.parametrize(("orders", "n"), [(12, 12), (0.5, 12), (1.0, 24), (99, 24), (0.01, 2), (2, 2)])
def test_the_number_of_orders_can_be_reduced(orders: float, n: int) -> None:
    requests = OptionOrders(orders=orders).requests(question("w", "x", "y", "z"))
    assert len(set(requests)) == n
    assert requests[0] == OptionOrders().requests(question("w", "x", "y", "z"))[0]


def test_drawn_orders_differ_between_questions_and_not_between_runs() -> None:
    probe = OptionOrders(orders=5)
    first = probe.chosen_orders(question(*"abcd", identity="1"))
    assert first == probe.chosen_orders(question(*"abcd", identity="1"))
    assert first != probe.chosen_orders(question(*"abcd", identity="2"))


def test_orders_are_drawn_uniformly_among_those_that_read_differently() -> None:
    options = ["x", "x", "y", "z"]
    drawn = Counter(
        tuple(options[i] for i in drawn_orders(options, 2, rng=random.Random(seed))[1]) for seed in range(6_600)
    )
    assert len(drawn) == 11  # 12 distinct orders minus the published one
    assert chisquare(list(drawn.values())).pvalue > 0.001


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("x",), r"orders of its 1 option\(s\) read the same"), (("x", "x ", "x"), "of which 3 can change place")],
)
def test_a_question_without_two_different_options_is_untestable(options: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        OptionOrders().requests(question(*options))


def test_options_that_refer_to_others_keep_their_place() -> None:
    probe = OptionOrders(move="movable")
    above = Question("q", "Which?", ("red", "blue", "lime", "none of the above"))
    assert [order[3] for order in probe.chosen_orders(above)] == [3] * 6
    assert len(set(probe.chosen_orders(above))) == 6
    by_letter = Question("q", "Which?", ("red", "blue", "lime", "teal", "both A and C"))
    assert probe.chosen_orders(by_letter) == [(0, 1, 2, 3, 4), (0, 3, 2, 1, 4)]
    plain = Question("q", "Which?", ("red", "blue", "lime"))
    assert probe.chosen_orders(plain) == OptionOrders().chosen_orders(plain)


def test_movable_orders_are_drawn_where_there_are_too_many() -> None:
    options = (*"abcdefg", "all of the above")
    orders = OptionOrders(move="movable", max_orders=50).chosen_orders(Question("q", "Which?", options))
    assert orders[0] == tuple(range(8))
    assert len(set(orders)) == 50
    assert all(order[7] == 7 and sorted(order) == list(range(8)) for order in orders)


def test_a_question_whose_options_all_keep_their_place_is_untestable_and_says_so() -> None:
    held = Question("q", "Which?", ("red", "blue", "both A and B", "none of the above"))
    with pytest.raises(
        UntestableQuestion, match=r"orders of its 4 option\(s\) read the same, of which 0 can change place"
    ):
        OptionOrders(move="movable").chosen_orders(held)
    assert len(OptionOrders().chosen_orders(held)) == 24


ALL_ORDERS = OptionOrders()


def judge(*rows: list[float]) -> list[MaxOrderEvidence]:
    return MaxOrder()(OrderScores.from_rows(rows))


def test_definition_on_mixed_numbers_of_orders() -> None:
    first, second, third = judge([-1.0, -2.0, -4.0], [-3.0, -1.0], [-2.0, -3.0, -1.5, -5.0, -9.0])
    z = [(row[0] - np.mean(row)) / np.std(row) for row in ([-1.0, -2.0, -4.0], [-2.0, -3.0, -1.5, -5.0, -9.0])]
    assert first == MaxOrderEvidence(True, 1 / 3, 1 / 3, round(z[0], 9), margin=1.0, best_order=0, n_orders=3)
    assert second == MaxOrderEvidence(False, 1.0, 1 / 2, order_z=-2.0, margin=-2.0, best_order=1, n_orders=2)
    assert third == MaxOrderEvidence(False, 2 / 5, 1 / 5, round(z[1], 9), margin=-0.5, best_order=2, n_orders=5)


@given(st.lists(st.floats(-500, 0), min_size=2, max_size=30))
def test_the_pvalue_is_the_share_of_orders_at_least_as_high(row: list[float]) -> None:
    (evidence,) = judge(row)
    published, *others = row
    assert evidence.pvalue == pytest.approx(sum(score >= published for score in row) / len(row))
    assert evidence.flagged == all(other < published for other in others)
    assert row[evidence.best_order] == max(row)


def test_over_all_arrangements_the_null_rate_is_exact() -> None:
    arrangements = [list(order) for order in permutations([-1.0, -2.0, -3.0, -4.0])]
    verdicts = judge(*arrangements)
    assert sum(verdict.flagged for verdict in verdicts) / len(verdicts) == verdicts[0].null_rate == 1 / 4
    assert sorted({verdict.pvalue for verdict in verdicts}) == [1 / 4, 2 / 4, 3 / 4, 1]


# ---------------------------------------------------------------------- order_z, by which questions are ranked


def ranked_by(row: Sequence[float]) -> float:
    (evidence,) = MaxOrder().judge([Answered(Question("q", "Which?", ("a", "b", "c")), (), tuple(row))])
    return evidence.statistic


def test_over_all_arrangements_of_scores_it_has_mean_0_and_variance_1() -> None:
    scores = [ranked_by(row) for row in permutations([-9.0, -4.0, -3.5, -3.0, -1.0, 0.0])]
    assert np.mean(scores) == pytest.approx(0, abs=1e-8)
    assert np.var(scores) == pytest.approx(1)


def test_with_two_orders_it_is_the_margin_in_nats() -> None:
    assert ranked_by([-3.0, -5.5]) == 2.5
    assert ranked_by([-5.5, -3.0]) == -2.5


@pytest.mark.parametrize("score", [-0.1, -1e-3, -61.7])
def test_equally_likely_orders_rank_at_zero(score: float) -> None:
    assert ranked_by([score] * 6) == 0


@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(-100, 100))
def test_unit_and_level_of_log_likelihoods_do_not_change_it(seed: int, scale, shift) -> None:
    row = np.random.default_rng(seed).normal(-60, 3, 24)
    assert ranked_by((scale * row + shift).tolist()) == pytest.approx(ranked_by(row.tolist()), abs=1e-6)
