from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest

from lm_eval_leakage.stats.order_scores import OrderScores, isolation_scores, path_length_of_leaf


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
    assert path_length_of_leaf(torch.from_numpy(sizes)).tolist() == pytest.approx(_average_path_length(sizes))
