from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from lm_eval_leakage.stats.conformal import KeptQuestions, conformal_pvalues, keep, seen_pvalues, seen_share

N_QUESTIONS, N_KNOWN = 300, 100


def benchmark(rng, *, shift: float, correlation: float = 0.0, n_models: int = 3):
    """Scores of questions of which each model has seen a fifth; scores of different models may be correlated."""
    seen = rng.random((n_models, N_QUESTIONS)) < 0.2
    common = rng.normal(size=N_QUESTIONS)
    noise = rng.normal(size=seen.shape)
    scores = correlation**0.5 * common + (1 - correlation) ** 0.5 * noise + shift * seen
    known = rng.normal(size=(n_models, N_KNOWN)) + shift
    return scores, known, seen.any(axis=0)


def kept_of(scores, known, target_rate: float) -> KeptQuestions:
    by_model = [seen_pvalues(own, known_seen.tolist()) for own, known_seen in zip(scores, known, strict=True)]
    return keep(by_model, [N_KNOWN] * len(by_model), target_rate)


@pytest.mark.parametrize(("shift", "correlation"), [(2.7, 0.0), (2.7, 0.6), (1.5, 0.0), (3.5, 0.0)])
def test_the_rate_of_seen_questions_among_the_kept_is_at_most_its_target_on_average(shift, correlation) -> None:
    rng = np.random.default_rng(0)
    rates, exceeded = [], 0
    for _ in range(40):
        scores, known, seen = benchmark(rng, shift=shift, correlation=correlation)
        found = kept_of(scores, known, 0.1)
        n_wrong = int((np.array(found.kept) & seen).sum())
        rates.append(n_wrong / max(1, found.n_kept))
        exceeded += n_wrong > found.most_seen
    assert np.mean(rates) <= 0.1 + 2 * np.std(rates) / 40**0.5
    assert binomtest(exceeded, 40, 0.05, alternative="greater").pvalue > 1e-3


def test_what_one_model_has_seen_is_not_kept_however_clean_it_is_for_the_others() -> None:
    scores, known, _ = benchmark(np.random.default_rng(2), shift=5.0)
    scores = scores.copy()
    scores[:, :30] = 0.0
    scores[1, :30] = 5.0
    kept = np.array(kept_of(scores, known, 0.1).kept)
    assert kept[:30].mean() < 0.2


def test_scores_that_tell_nothing_keep_nothing() -> None:
    rng = np.random.default_rng(3)
    kept = [kept_of(*benchmark(rng, shift=0.0)[:2], 0.1).n_kept for _ in range(30)]
    assert np.mean(np.array(kept) > 0) < 0.15


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_a_lower_target_keeps_a_part_of_what_a_higher_one_keeps(ranks, one, other) -> None:
    pvalues = np.array(ranks) / 40
    strict, lax = (keep([pvalues], [39], rate) for rate in sorted((one, other)))
    assert all(not kept or also for kept, also in zip(strict.kept, lax.kept, strict=True))
    highest = max((p for p, kept in zip(pvalues, lax.kept, strict=True) if kept), default=0)
    assert all(kept == (p <= highest) for p, kept in zip(pvalues, lax.kept, strict=True))
    assert 0 <= lax.most_seen <= lax.n_kept


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_the_set_is_that_of_benjamini_and_hochberg_on_the_rescaled_pvalues(ranks) -> None:
    pvalues = np.array(ranks) / 40
    found = keep([pvalues], [39], 0.2)
    n_seen = found.seen_share * len(pvalues)
    passing = [k for k, p in enumerate(sorted(pvalues), 1) if p * n_seen <= 0.2 * k + 1e-9]
    assert found.n_kept >= (passing[-1] if passing else 0)
    assert sum(p <= sorted(pvalues)[passing[-1] - 1] for p in pvalues) == found.n_kept if passing else not found.n_kept


def test_the_estimate_of_the_seen_share_is_not_below_the_truth_on_average() -> None:
    rng = np.random.default_rng(4)
    estimates, truths = [], []
    for _ in range(40):
        scores, known, seen = benchmark(rng, shift=3.0)
        estimates.append(kept_of(scores, known, 0.1).seen_share)
        truths.append(seen.mean())
    assert np.mean(truths) < np.mean(estimates) < np.mean(truths) + 0.15
    assert seen_share(np.array([])) == 1


def test_a_pvalue_of_having_been_seen_counts_the_seen_that_score_as_low() -> None:
    seen = [float(i) for i in range(19)]
    assert seen_pvalues([-1.0, 0.0, 9.0, 30.0], seen).tolist() == [1 / 20, 2 / 20, 11 / 20, 1.0]
    mirrored = conformal_pvalues([1.0, 0.0], [-value for value in seen])
    assert seen_pvalues([-1.0, 0.0], seen).tolist() == mirrored.tolist()


@pytest.mark.parametrize("rate", [0, 1, 1.5, -0.1, True])
def test_a_target_rate_out_of_range_is_named(rate) -> None:
    with pytest.raises(ValueError, match=f"^target_rate is {rate!r}; the target rate of contaminated questions"):
        keep([np.array([0.5])], [19], rate)


def test_a_few_known_seen_scores_are_too_few() -> None:
    with pytest.raises(ValueError, match="^there are 3 known-seen scores; with fewer than 19 no p-value reaches 5 %"):
        seen_pvalues([1.0], [1.0, 2.0, 3.0])
