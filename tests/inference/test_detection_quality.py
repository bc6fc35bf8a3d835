from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score, roc_curve

from lm_eval_leakage.inference.detection_quality import (
    Confusion,
    Interval,
    auroc,
    bootstrap,
    threshold_at_fpr,
    tpr_at_fpr,
)
from lm_eval_leakage.results.formatting import value_in_interval

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
    assert (held_out > threshold_at_fpr(held_out, fpr)).mean() <= fpr + 1e-9


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.lists(st.booleans(), min_size=1, max_size=20))
def test_counts_give_scikit_learns_figures(trained: list[bool], held_out: list[bool]) -> None:
    found = Confusion.of(trained, held_out)
    labels, flags = [True] * len(trained) + [False] * len(held_out), [*trained, *held_out]
    assert found.recall == pytest.approx(recall_score(labels, flags))
    assert found.f1 == pytest.approx(f1_score(labels, flags))
    assert found.fpr == pytest.approx(sum(held_out) / len(held_out))
    if any(flags):
        assert found.precision == pytest.approx(precision_score(labels, flags))
    else:
        assert math.isnan(found.precision)


def test_flagging_everything_has_the_f1_of_two_thirds_that_one_epoch_stays_below() -> None:
    """Ni et al. report F1 .680 (MMLU) and .397 (CMMLU) of max-order after one epoch on 500 + 500 questions."""
    everything = Confusion.of([True] * 500, [True] * 500).f1
    assert everything == pytest.approx(2 / 3)
    assert everything > 0.397


def test_published_f1_and_a_false_positive_rate_of_max_order_by_chance_cannot_both_hold() -> None:
    """An F1 of .914 after ten epochs with every trained question flagged implies 19 % of the untrained ones."""
    implied = 2 * 500 / 0.914 - 2 * 500  # f1 = 2 TP / (2 TP + FP) at recall 1
    assert 0.15 < implied / 500 < 0.20
    assert Confusion(500, 0, round(implied), 500 - round(implied)).f1 == pytest.approx(0.914, abs=1e-3)


def test_the_bootstrap_interval_covers_at_its_level() -> None:
    rng = np.random.default_rng(0)
    truth, covered = 0.760249938906523, 0  # P(N(1, 1) > N(0, 1))
    for _ in range(200):
        interval = bootstrap(auroc, rng.normal(1, 1, 60), rng.normal(0, 1, 60), n_resamples=200, rng=rng)
        covered += interval.low <= truth <= interval.high
    assert 178 <= covered <= 199


def test_nothing_to_compare_is_undefined() -> None:
    assert math.isnan(auroc(np.array([]), np.array([1.0])))
    assert math.isnan(bootstrap(auroc, [1.0], [], rng=np.random.default_rng(0)).value)
    nothing = bootstrap(auroc, [1.0], [], rng=np.random.default_rng(0))
    assert value_in_interval(nothing) == "–"
    assert math.isnan(nothing.low)
    assert math.isnan(nothing.high)
    assert bootstrap(auroc, [1.0, 2.0], [0.0, 0.5], rng=np.random.default_rng(0)) == Interval(1.0, 1.0, 1.0)
    assert value_in_interval(Interval(0.5, 0.401, 0.625)) == "0.50 [0.40, 0.62]"
    assert math.isnan(tpr_at_fpr(np.array([]), np.array([1.0]), 0.1))
    assert math.isnan(tpr_at_fpr(np.array([1.0]), np.array([]), 0.1))
    assert math.isnan(threshold_at_fpr(np.array([]), 0.1))
