from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks.outlier_null import GRID, N_ORDERS, draw_counts
from lm_eval_leakage.detectors.outlier import (
    FIVE_OPTIONS_DELTA,
    FOUR_OPTIONS_DELTA,
    TWO_ORDERS,
    Outlier,
    null_cdf,
)
from lm_eval_leakage.stats.order_scores import OrderScores, isolation_scores


def normal_scores(n_questions: int, n_orders: int, seed: int = 0) -> OrderScores:
    return OrderScores.from_rows(np.random.default_rng(seed).normal(size=(n_questions, n_orders)).tolist())


@pytest.mark.parametrize(
    ("n_orders", "delta"),
    [(6, FOUR_OPTIONS_DELTA), (24, FOUR_OPTIONS_DELTA), (60, FIVE_OPTIONS_DELTA), (120, FIVE_OPTIONS_DELTA)],
)
def test_the_papers_threshold_follows_the_number_of_orders(n_orders: int, delta: float) -> None:
    scores = normal_scores(400, n_orders)
    expected = (isolation_scores(scores) < delta).tolist()
    assert [evidence.flagged for evidence in Outlier()(scores)] == expected


@pytest.mark.parametrize(("n_orders", "delta"), [(24, None), (60, None), (120, None), (120, -0.2)])
def test_the_evidence_gives_the_rate_at_which_it_flags_without_leakage(n_orders: int, delta: float | None) -> None:
    n = 4_000
    found = Outlier(delta=delta)(normal_scores(n, n_orders, seed=5))
    flagged = np.mean([evidence.flagged for evidence in found])
    (null_rate,) = {evidence.null_rate for evidence in found}
    assert null_rate == pytest.approx(flagged, abs=4 * math.sqrt(0.25 / n) + 0.001)


def test_two_options_cannot_be_flagged_and_three_almost_never() -> None:
    assert null_cdf(2, FOUR_OPTIONS_DELTA) < 1e-5
    assert null_cdf(6, FOUR_OPTIONS_DELTA) < 0.03


def test_numbers_of_orders_between_tabulated_ones_are_interpolated() -> None:
    low, middle, high = (null_cdf(n, -0.25) for n in (120, 130, 144))
    assert low < middle < high
    observed = float((isolation_scores(normal_scores(20_000, 130, seed=4)) < -0.25).double().mean())
    assert middle == pytest.approx(observed, abs=0.02)


def test_the_shipped_table_is_what_its_script_draws() -> None:
    found = draw_counts(24, 20_000, rng=torch.Generator().manual_seed(1)) / 20_000
    shipped = np.array([null_cdf(24, score) for score in GRID])
    assert np.abs(found - shipped).max() < 0.02
    assert set(range(2, 121)) <= set(N_ORDERS)


@pytest.mark.parametrize("n_orders", [5, 6, 24])
def test_pvalues_are_valid_up_to_one(n_orders: int) -> None:
    """With few orders the most likely one often lies so close to the next that its score is above the grid."""
    pvalues = np.array([evidence.pvalue for evidence in Outlier()(normal_scores(4_000, n_orders, seed=8))])
    for level in (0.7, 0.8, 0.9, 0.99):
        assert np.mean(pvalues <= level) <= level + 4 * math.sqrt(level * (1 - level) / len(pvalues)) + 0.002


def test_three_orders_are_the_fewest_that_are_tested_and_the_likeliest_is_named() -> None:
    two, three, six = Outlier()(
        OrderScores.from_rows([[-1.0, -2.0], [-3.0, -1.0, -2.0], [-5.0, -4.0, -9.0, -3.0, -2.0, -7.0]])
    )
    assert two == TWO_ORDERS
    assert (three.n_orders, three.best_order) == (3, 1)
    assert (six.n_orders, six.best_order) == (6, 4)
    assert six.statistic == -six.outlier_score
