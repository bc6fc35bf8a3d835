from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

from lm_eval_leakage.stats.conformal import (
    ComparedClass,
    conformal_pvalues,
    false_bound,
    joint,
    most_false,
    null_envelope,
)


def arrangements(n_null: int, n_known: int):
    """P-values of the exchangeable questions for every, equally likely, order of distinct scores."""
    for places in combinations(range(n_null + n_known), n_null):
        yield np.array([(1 + place - rank) / (n_known + 1) for rank, place in enumerate(places)])


def alone(pvalues: np.ndarray, n_known: int, confidence: float = 0.95) -> np.ndarray:
    return most_false(pvalues, [ComparedClass(np.arange(len(pvalues)), pvalues, n_known)], confidence)


def fails(pvalues: np.ndarray, is_null: np.ndarray, bound: np.ndarray) -> bool:
    return any(is_null[pvalues <= own].sum() > most for own, most in zip(pvalues, bound, strict=True))


@pytest.mark.parametrize(("n_null", "n_known"), [(1, 3), (2, 6), (4, 5), (5, 7), (7, 4)])
@pytest.mark.parametrize("n_seen", [0, 2])
def test_over_all_orders_of_a_few_questions_the_bound_fails_no_more_often_than_asked(n_null, n_known, n_seen) -> None:
    found = []
    for null in arrangements(n_null, n_known):
        pvalues = np.array([*null, *[1 / (n_known + 1)] * n_seen])
        is_null = np.arange(len(pvalues)) < n_null
        found.append(fails(pvalues, is_null, alone(pvalues, n_known, 0.7)))
    assert np.mean(found) <= 0.3


def test_over_all_orders_the_bound_can_fail() -> None:
    """Five exchangeable questions, seven known scores: a bound that never failed would be looser than asked."""
    everything = np.ones(5, dtype=bool)
    assert any(fails(null, everything, alone(null, 7, 0.7)) for null in arrangements(5, 7))


def simulated(rng, n: int, n_known: int, share_seen: float, shift: float) -> tuple[np.ndarray, np.ndarray]:
    seen = np.arange(n) < share_seen * n
    return conformal_pvalues(rng.normal(size=n) + shift * seen, rng.normal(size=n_known)), ~seen


@pytest.mark.parametrize(
    ("n", "n_known", "share_seen", "shift"), [(60, 40, 0, 0), (60, 40, 0.5, 2), (200, 50, 0.1, 3), (25, 120, 0.4, 1)]
)
def test_the_bound_holds_at_every_cut_at_once(n, n_known, share_seen, shift) -> None:
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(150):
        pvalues, is_null = simulated(rng, n, n_known, share_seen, shift)
        failed += fails(pvalues, is_null, alone(pvalues, n_known))
    assert binomtest(failed, 150, 0.05, alternative="greater").pvalue > 1e-3


def test_a_question_that_is_compared_by_class_or_by_model_counts_in_one_comparison() -> None:
    rng = np.random.default_rng(1)
    failed = 0
    for _ in range(120):
        kinds = [rng.permutation(80)[:40], np.arange(80)]  # two models; the first was asked 40 of the questions
        seen = np.arange(80) < 30
        parts = [
            ComparedClass(own, conformal_pvalues(rng.normal(size=len(own)) + 2 * seen[own], rng.normal(size=60)), 60)
            for own in kinds
        ]
        lowest = np.ones((2, 80))
        for model, part in enumerate(parts):
            lowest[model, part.questions] = part.pvalues
        pvalues = joint(lowest)
        failed += fails(pvalues, ~seen, most_false(pvalues, parts))
    assert binomtest(failed, 120, 0.05, alternative="greater").pvalue > 1e-3


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.sampled_from([0.5, 0.9, 0.95]))
def test_a_longer_list_holds_at_most_one_more_mistake_per_question(ranks, confidence) -> None:
    pvalues = np.array(ranks) / 20
    bound = alone(pvalues, 19, confidence)
    order = np.argsort(pvalues, kind="stable")
    for own, most in zip(pvalues, bound, strict=True):
        assert 0 <= most <= (pvalues <= own).sum()
    assert (np.diff(bound[order]) >= 0).all()


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_the_bound_of_any_subset_is_no_greater_than_that_of_a_set_around_it(ranks) -> None:
    pvalues = np.array(ranks) / 20
    bound = false_bound(pvalues, 19, 0.1)
    assert bound.among(pvalues[::2]) <= bound.among(pvalues) <= min(len(pvalues), bound.n_null)
    assert bound.among(np.array([])) == 0


def test_the_envelope_is_near_the_exact_quantiles_of_the_urn() -> None:
    """At one rank the count is beta-binomial; simultaneity over all ranks costs something on top."""
    ranks = np.floor(20 * false_bound(np.ones(30), 19, 0.05).thresholds)
    exact = betabinom.ppf(0.95, 30, ranks, 20 - ranks)
    envelope = null_envelope(30, 19, 0.05)
    assert (envelope >= exact).mean() > 0.9
    assert (envelope <= exact + 9).all()


def test_nothing_can_be_said_with_certainty() -> None:
    pvalues = np.full(10, 1 / 20)
    assert alone(pvalues, 19, 0.9999).tolist() == [10] * 10  # fewer draws than the level needs
