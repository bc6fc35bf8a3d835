"""The isolation score by its definition and by scikit-learn, in any batch; the outlier test and its table."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest

from benchmarks.outlier_null import GRID, N_ORDERS, draw_counts
from lm_eval_leakage.detectors.outlier import (
    FIVE_OPTIONS_DELTA,
    FOUR_OPTIONS_DELTA,
    TWO_ORDERS,
    Outlier,
    null_cdf,
)
from lm_eval_leakage.stats.order_scores import OrderScores, find_device, isolation_scores


def test_rows_of_different_lengths_share_a_batch() -> None:
    scores = OrderScores.from_rows([[-1.0, -2.0], [-3.0, -4.0, -5.0]], device="cpu")
    assert scores.n_orders.tolist() == [2, 3]
    assert scores.loglikelihoods.tolist() == [[-1.0, -2.0, -math.inf], [-3.0, -4.0, -5.0]]
    assert scores.loglikelihoods.dtype == torch.float64


@pytest.mark.parametrize(("there", "expected"), [(None, "cpu"), ("cuda", "cuda"), ("xpu", "xpu"), ("mps", "cpu")])
def test_the_first_accelerator_with_float64_is_found(
    there: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert find_device().type == expected
    assert find_device("cpu").type == "cpu"


def score(row: list[float]) -> float:
    return float(isolation_scores(OrderScores.from_rows([row]))[0])


def forest_score(row: list[float], n_trees: int, seed: int = 0) -> float:
    points = np.array(row)[:, None]
    forest = IsolationForest(n_estimators=n_trees, contamination="auto", n_jobs=2, random_state=seed).fit(points)
    return float(forest.decision_function([[max(row)]])[0])


def expected_path(points: list[float], depth: int) -> float:
    """Return the path length by exact enumeration of where the next split of a node falls: no batch, no suffix
    sums."""
    lowest, highest = points[0], points[-1]
    if depth == 0 or lowest == highest:
        return c(len(points))
    kept = [(right - left, points[i + 1 :]) for i, (left, right) in enumerate(pairwise(points)) if right > left]
    return 1 + sum(width * expected_path(rest, depth - 1) for width, rest in kept) / (highest - lowest)


def c(size: int) -> float:
    if size <= 2:
        return float(size - 1)
    return 2 * (math.log(size - 1) + np.euler_gamma) - 2 * (size - 1) / size


def draws(n_orders: int, seed: int) -> list[float]:
    return np.random.default_rng(seed).normal(-60, 3, n_orders).tolist()


@given(st.lists(st.integers(-40, 0).map(float), min_size=2, max_size=12))
def test_the_recursion_equals_the_enumeration_of_all_splits(row: list[float]) -> None:
    depth = math.ceil(math.log2(len(row)))
    expected = 0.5 - 2 ** (-expected_path(sorted(row), depth) / c(len(row)))
    assert score(row) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n_orders", "n_trees", "within"), [(24, 1_200, 0.007), (120, 500, 0.012)])
def test_many_trees_of_scikit_learn_agree(n_orders: int, n_trees: int, within: float) -> None:
    row = draws(n_orders, seed=n_orders)
    assert score(row) == pytest.approx(forest_score(row, n_trees), abs=within)


@pytest.mark.parametrize("size", [1, 3, 8, 50])
def test_a_row_scores_the_same_to_the_last_digit_in_any_batch(size: int) -> None:
    """A process of several judges its questions in other batches than a process alone."""
    rows = [draws(n, seed=i) for i, n in enumerate([24] * 100 + [6, 120] * 20)]
    whole = OrderScores.from_rows(rows, "cpu")
    parts = [OrderScores.from_rows(rows[at : at + size], "cpu") for at in range(0, len(rows), size)]
    assert torch.equal(torch.cat([*map(isolation_scores, parts)]), isolation_scores(whole))
    for at, part in enumerate(parts):
        standardised = part.standardised()
        assert torch.equal(standardised, whole.standardised()[at * size : (at + 1) * size, : standardised.shape[1]])


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
    verdicts = Outlier(delta=delta)(normal_scores(n, n_orders, seed=5))
    flagged = np.mean([evidence.flagged for evidence in verdicts])
    (null_rate,) = {evidence.null_rate for evidence in verdicts}
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
    drawn = draw_counts(24, 20_000, rng=torch.Generator().manual_seed(1)) / 20_000
    shipped = np.array([null_cdf(24, score) for score in GRID])
    assert np.abs(drawn - shipped).max() < 0.02
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
