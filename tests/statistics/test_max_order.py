from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, permutation_test

from lm_eval_leakage.statistics.max_order import MaxOrder, MaxOrderEvidence
from lm_eval_leakage.statistics.orders import OrderScores


def judge(*rows: list[float]) -> list[MaxOrderEvidence]:
    return MaxOrder()(OrderScores.from_rows(rows))


def test_definition_on_mixed_numbers_of_orders() -> None:
    first, second, third = judge([-1.0, -2.0, -4.0], [-3.0, -1.0], [-2.0, -3.0, -1.5, -5.0, -9.0])
    assert first == MaxOrderEvidence(True, 1 / 3, 1 / 3, margin=1.0, best_order=0, n_orders=3)
    assert second == MaxOrderEvidence(False, 1.0, 1 / 2, margin=-2.0, best_order=1, n_orders=2)
    assert third == MaxOrderEvidence(False, 2 / 5, 1 / 5, margin=-0.5, best_order=2, n_orders=5)


def test_a_tie_counts_against_leakage() -> None:
    (tied,) = judge([-1.0, -1.0, -2.0])
    assert (tied.flagged, tied.pvalue, tied.margin) == (False, pytest.approx(2 / 3), 0.0)


def test_three_options_cannot_be_flagged_at_five_percent() -> None:
    (best,) = judge([0.0, -1.0, -2.0, -3.0, -4.0, -5.0])
    assert best.flagged
    assert best.pvalue == pytest.approx(1 / 6)


@given(st.lists(st.floats(-500, 0), min_size=2, max_size=30))
def test_the_pvalue_is_the_share_of_orders_at_least_as_high(row: list[float]) -> None:
    (evidence,) = judge(row)
    published, *others = row
    assert evidence.pvalue == pytest.approx(sum(score >= published for score in row) / len(row))
    assert evidence.flagged == all(other < published for other in others)
    assert row[evidence.best_order] == max(row)


def test_the_pvalue_is_scipys_permutation_test_of_the_published_score() -> None:
    row = [-3.0, -7.0, -1.0, -5.0]
    exact = permutation_test((row,), lambda x: x[0], permutation_type="pairings", alternative="greater")
    (evidence,) = judge(row)
    assert exact.pvalue == pytest.approx(evidence.pvalue, abs=1e-12)


def test_over_all_arrangements_the_null_rate_is_exact() -> None:
    arrangements = [list(order) for order in permutations([-1.0, -2.0, -3.0, -4.0])]
    verdicts = judge(*arrangements)
    assert sum(verdict.flagged for verdict in verdicts) / len(verdicts) == verdicts[0].null_rate == 1 / 4
    assert sorted({verdict.pvalue for verdict in verdicts}) == [1 / 4, 2 / 4, 3 / 4, 1]


def test_pvalues_of_exchangeable_orders_are_uniform() -> None:
    rows = np.random.default_rng(0).normal(size=(3_000, 120)).tolist()
    assert kstest([verdict.pvalue for verdict in judge(*rows)], "uniform").pvalue > 0.001


def test_a_question_gets_the_same_evidence_alone_and_in_a_batch() -> None:
    row = [-4.0, -2.0, -3.0]
    assert judge(row) == judge([-1.0] * 24, row, [-2.0, -1.0])[1:2]
    assert not math.isnan(judge(row)[0].margin)


def test_among_equally_likely_orders_the_published_one_is_reported_as_best() -> None:
    (tied,) = judge([-1.0, -1.0, -2.0])
    assert (tied.flagged, tied.margin, tied.best_order) == (False, 0.0, 0)
