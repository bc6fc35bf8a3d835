"""Scores of orders in batches, and the isolation score by its definition and by scikit-learn."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest

from lm_eval_leakage.detectors.option_orders import MaxOrder
from lm_eval_leakage.records import Answered, Question
from lm_eval_leakage.stats.order_scores import OrderScores, find_device, isolation_scores, path_length_of_leaf


def test_rows_of_different_lengths_share_a_batch() -> None:
    scores = OrderScores.from_rows([[-1.0, -2.0], [-3.0, -4.0, -5.0]], device="cpu")
    assert scores.n_orders.tolist() == [2, 3]
    assert scores.loglikelihoods.tolist() == [[-1.0, -2.0, -math.inf], [-3.0, -4.0, -5.0]]
    assert scores.loglikelihoods.dtype == torch.float64


def test_one_order_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 orders; at least 2"):
        OrderScores.from_rows([[-1.0, -2.0], [-1.0]])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="row 1 holds a log-likelihood that is not finite"):
        OrderScores.from_rows([[-1.0, -2.0], [value, -1.0]])


def test_scores_are_computed_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, on_cpu = [], OrderScores.from_rows

    def noted(rows, device="nowhere"):
        asked.append(device)
        return on_cpu(rows, "cpu")

    monkeypatch.setattr(OrderScores, "from_rows", noted)
    question = Answered(Question("q", "Which?", ("a", "b")), (), (-1.0, -2.0))
    MaxOrder().judge([question], "meta")
    MaxOrder().judge([question])
    assert asked == ["meta", "auto"]


@pytest.mark.parametrize(("there", "found"), [(None, "cpu"), ("cuda", "cuda"), ("xpu", "xpu"), ("mps", "cpu")])
def test_the_first_accelerator_with_float64_is_found(
    there: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = None if there is None else torch.device(there)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: device is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert find_device().type == found
    assert find_device("cpu").type == "cpu"


@pytest.mark.parametrize("size", [1, 3, 8])
def test_standardised_scores_are_the_same_to_the_last_digit_in_any_batch(size: int) -> None:
    rng = np.random.default_rng(1)
    rows = [rng.normal(-60, 3, n).tolist() for n in [24] * 30 + [6, 120] * 5]
    together = OrderScores.from_rows(rows, "cpu").standardised()
    for at in range(0, len(rows), size):
        part = OrderScores.from_rows(rows[at : at + size], "cpu").standardised()
        assert torch.equal(part, together[at : at + size, : part.shape[1]])


def score(row: list[float]) -> float:
    return float(isolation_scores(OrderScores.from_rows([row]))[0])


def forest_score(row: list[float], n_trees: int, seed: int = 0) -> float:
    points = np.array(row)[:, None]
    forest = IsolationForest(n_estimators=n_trees, contamination="auto", n_jobs=2, random_state=seed).fit(points)
    return float(forest.decision_function([[max(row)]])[0])


def expected_path(points: list[float], depth: int) -> float:
    """The definition, by exact enumeration of where the next split of a node falls: no batch, no suffix sums."""
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


@given(
    st.lists(st.integers(-400, 0), min_size=2, max_size=24, unique=True),
    st.floats(0.1, 10),
    st.floats(-100, 100),
    st.randoms(),
)
def test_the_score_ignores_shift_scale_and_the_order_of_the_orders(row, scale, shift, random) -> None:
    moved = [scale * x + shift for x in row]
    random.shuffle(moved)
    assert score(moved) == pytest.approx(score([float(x) for x in row]), abs=1e-9)


@given(st.lists(st.floats(-400, 0), min_size=3, max_size=24, unique=True), st.floats(0.5, 100))
def test_a_maximum_further_out_has_a_lower_score(row: list[float], further: float) -> None:
    *rest, second, first = sorted(row)
    assume(first - second > 1e-3)
    assert score([*rest, second, first + further]) < score([*rest, second, first]) + 1e-12


@pytest.mark.parametrize("size", [1, 3, 8, 50])
def test_a_row_scores_the_same_to_the_last_digit_in_any_batch(size: int) -> None:
    """Shards of a run judge their questions in other batches than the whole run."""
    rows = [draws(n, seed=i) for i, n in enumerate([24] * 100 + [6, 120] * 20)]
    together = isolation_scores(OrderScores.from_rows(rows)).tolist()
    parts = [isolation_scores(OrderScores.from_rows(rows[at : at + size])) for at in range(0, len(rows), size)]
    assert torch.cat(parts).tolist() == together


def test_leaf_path_lengths_are_scikit_learns() -> None:
    from sklearn.ensemble._iforest import _average_path_length

    sizes = np.arange(1, 300)
    assert [path_length_of_leaf(int(size)) for size in sizes] == pytest.approx(_average_path_length(sizes))
