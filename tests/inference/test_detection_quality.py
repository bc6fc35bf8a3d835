from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score, roc_curve

from lm_eval_leakage.results.formatting import value_in_interval
from lm_eval_leakage.stats.detection_quality import (
    Confusion,
    Interval,
    auroc,
    auroc_interval,
    tpr_at_fpr,
    tpr_interval,
)

halves = st.tuples(
    st.lists(st.integers(0, 6), min_size=1, max_size=30), st.lists(st.integers(0, 6), min_size=1, max_size=30)
)


def arrays(pair) -> tuple[np.ndarray, np.ndarray]:
    return np.array(pair[0], dtype=float), np.array(pair[1], dtype=float)


@given(halves)
def test_auroc_is_scikit_learns_with_ties(pair) -> None:
    trained, held_out = arrays(pair)
    labels = [1] * len(trained) + [0] * len(held_out)
    assert auroc(trained, held_out) == pytest.approx(roc_auc_score(labels, [*trained, *held_out]))


@given(halves, st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.5]))
def test_tpr_is_the_best_that_scikit_learns_curve_has_within_the_fpr(pair, fpr: float) -> None:
    trained, held_out = arrays(pair)
    labels = [1] * len(trained) + [0] * len(held_out)
    false, true, _ = roc_curve(labels, [*trained, *held_out], drop_intermediate=False)
    assert tpr_at_fpr(trained, held_out, fpr) == pytest.approx(true[false <= fpr + 1e-9].max())


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.lists(st.booleans(), min_size=1, max_size=20))
def test_counts_give_scikit_learns_figures(trained: list[bool], held_out: list[bool]) -> None:
    confusion = Confusion.of(trained, held_out)
    labels, flags = [True] * len(trained) + [False] * len(held_out), [*trained, *held_out]
    assert confusion.recall == pytest.approx(recall_score(labels, flags))
    assert confusion.f1 == pytest.approx(f1_score(labels, flags))
    assert confusion.fpr == pytest.approx(sum(held_out) / len(held_out))
    if any(flags):
        assert confusion.precision == pytest.approx(precision_score(labels, flags))
    else:
        assert math.isnan(confusion.precision)


def drawn(rng, true: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of n trained and n held-out questions with this AUROC."""
    return rng.normal(2**0.5 * norm.ppf(true), 1, n), rng.normal(0, 1, n)


@pytest.mark.parametrize("true", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("n", [10, 20])
def test_the_interval_of_an_auroc_covers_it_with_twenty_questions_of_each_half(true, n) -> None:
    rng = np.random.default_rng(0)
    intervals = [auroc_interval(*drawn(rng, true, n)) for _ in range(300)]
    covered = sum(interval.low <= true <= interval.high for interval in intervals)
    assert binomtest(covered, 300, 0.95, alternative="less").pvalue > 1e-3
    assert np.mean([interval.high - interval.low for interval in intervals]) < 0.5


@pytest.mark.parametrize("true", [0.7, 0.97])
@pytest.mark.parametrize("n", [20, 100])
def test_the_interval_of_a_tpr_covers_it_although_its_threshold_is_estimated(true, n) -> None:
    rng = np.random.default_rng(1)
    tpr = norm.sf(norm.isf(0.05) - 2**0.5 * norm.ppf(true))
    covered = 0
    for _ in range(200):
        interval = tpr_interval(*drawn(rng, true, n), 0.05, rng=rng)
        covered += interval.low <= tpr <= interval.high
    assert binomtest(covered, 200, 0.95, alternative="less").pvalue > 1e-3


@given(st.lists(st.integers(0, 6), min_size=10, max_size=30), st.lists(st.integers(0, 6), min_size=10, max_size=30))
def test_the_ends_of_an_auroc_are_around_it_and_mirrored_if_the_halves_are_exchanged(scores, others) -> None:
    interval, mirrored = auroc_interval(scores, others), auroc_interval(others, scores)
    assert 0 <= interval.low <= interval.value + 1e-6
    assert interval.value - 1e-6 <= interval.high <= 1
    assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-6)
    assert interval.low < interval.high


def test_perfect_separation_of_ten_and_ten_is_not_certain() -> None:
    interval = auroc_interval([1.0] * 10, [0.0] * 10)
    assert (interval.value, interval.high) == (1, 1)
    assert 0.6 < interval.low < 0.9
    assert auroc_interval([0.0] * 10, [1.0] * 10).high == pytest.approx(1 - interval.low)


def test_nothing_to_compare_is_undefined() -> None:
    assert math.isnan(auroc(np.array([]), np.array([1.0])))
    nothing = auroc_interval([1.0], [])
    assert math.isnan(nothing.value)
    assert value_in_interval(nothing) == "–"
    assert value_in_interval(Interval(0.5, 0.401, 0.625)) == "0.50 [0.40, 0.62]"
    assert math.isnan(tpr_at_fpr(np.array([]), np.array([1.0]), 0.1))
    assert math.isnan(tpr_at_fpr(np.array([1.0]), np.array([]), 0.1))
