from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import betabinom, binomtest

from lm_eval_leakage.stats.conformal import (
    ComparedClass,
    KeptQuestions,
    check_target_rate,
    conformal_pvalues,
    false_bound,
    from_pvalues,
    joint,
    keep,
    most_false,
    null_envelope,
    seen_pvalues,
    seen_share,
    unseen_share,
)


def test_a_pvalue_counts_the_unseen_that_score_as_high_and_the_question_itself() -> None:
    assert conformal_pvalues([5.0, 2.0, 0.0], [1.0, 2.0, 3.0]).tolist() == [1 / 4, 3 / 4, 1.0]


def test_pvalues_are_exact_under_exchangeability() -> None:
    """Over all orders of six distinct scores, each p-value k/6 is equally frequent."""
    counts: dict[float, int] = {}
    for order in permutations(range(6)):
        (pvalue,) = conformal_pvalues(order[:1], order[1:])
        counts[pvalue] = counts.get(pvalue, 0) + 1
    assert sorted(counts) == pytest.approx([k / 6 for k in range(1, 7)])
    assert len(set(counts.values())) == 1


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=25), st.floats(0.01, 0.5))
def test_the_rule_is_benjamini_and_hochbergs(pvalues: list[float], level: float) -> None:
    """Applied to the estimated number of unseen questions."""
    found = from_pvalues(np.array(pvalues), level)
    n = len(pvalues) * unseen_share(pvalues)
    passing = [k for k, p in enumerate(sorted(pvalues), 1) if p <= level * k / n]
    threshold = sorted(pvalues)[passing[-1] - 1] if passing else -1.0
    close = [abs(p * n / k - level) < 1e-9 for k, p in enumerate(sorted(pvalues), 1)]
    if not any(close):
        assert found.flagged == tuple(p <= threshold for p in pvalues)


def false_share(rng: np.random.Generator, n_seen: int, n_clean: int, *, models: int = 1) -> tuple[float, float]:
    truth = np.array([True] * n_seen + [False] * n_clean)
    shift = np.where(truth, 2.5, 0.0)
    scores = {str(m): (rng.normal(size=len(truth)) + shift).tolist() for m in range(models)}
    unseen = {str(m): rng.normal(size=150).tolist() for m in range(models)}
    found = from_pvalues(joint([conformal_pvalues(scores[model], unseen[model]) for model in scores]), 0.1)
    flagged = np.array(found.flagged)
    return float((flagged & ~truth).sum() / max(1, flagged.sum())), float(flagged[truth].mean())


@pytest.mark.parametrize("models", [1, 3])
def test_the_false_discovery_rate_is_at_most_its_target_on_average(models: int) -> None:
    rng = np.random.default_rng(0)
    shares, power = zip(*(false_share(rng, 60, 60, models=models) for _ in range(200)), strict=True)
    assert np.mean(shares) <= 0.1 + 2 * np.std(shares) / np.sqrt(200)
    assert np.mean(power) > 0.5


def test_the_estimate_of_the_unseen_share_is_storeys_and_never_above_one() -> None:
    """Storey's estimate adds one p-value above 1/2 to those observed: with n of them, 2 / n is the minimum."""
    assert unseen_share([0.01] * 10) == unseen_share([0.5] * 10) == pytest.approx(2 / 10)
    assert unseen_share([0.01] * 9 + [0.51]) == pytest.approx(4 / 10)
    assert not any(from_pvalues(np.array([0.45] * 4), 0.1).flagged)
    assert unseen_share([0.9] * 10) == unseen_share([]) == 1


@pytest.mark.parametrize("n_questions", [1, 2, 3])
def test_a_small_clean_benchmark_has_any_flag_at_most_at_the_target_rate(n_questions: int) -> None:
    """Every combination of p-values 1/10, 2/10, ..., 1, which are equally likely without leakage."""
    grid = [k / 10 for k in range(1, 11)]
    cases = [any(from_pvalues(np.array(pvalues), 0.1).flagged) for pvalues in product(grid, repeat=n_questions)]
    assert sum(cases) / len(cases) <= 0.1


@pytest.mark.parametrize("level", [0, 1, -0.1, True])
def test_a_level_out_of_range_is_named(level: float) -> None:
    with pytest.raises(ValueError, match=f"level is {level!r}"):
        from_pvalues(np.array([0.5]), level)


# ---------------------------------------------------------------------- false discoveries


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


# ---------------------------------------------------------------------- kept questions

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


@pytest.mark.parametrize(("shift", "correlation"), [(2.7, 0.0), (2.7, 0.6), (1.5, 0.0), (3.5, 0.0), (0.0, 0.0)])
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


@given(st.lists(st.integers(1, 40), min_size=1, max_size=40))
def test_the_set_is_that_of_benjamini_and_hochberg_on_the_rescaled_pvalues(ranks) -> None:
    pvalues = np.array(ranks) / 40
    found = keep([pvalues], [39], 0.2)
    assert 0 <= found.most_seen <= found.n_kept
    n_seen = seen_share(pvalues) * len(pvalues)
    passing = [k for k, p in enumerate(sorted(pvalues), 1) if p * n_seen <= 0.2 * k + 1e-9]
    assert found.n_kept >= (passing[-1] if passing else 0)
    assert sum(p <= sorted(pvalues)[passing[-1] - 1] for p in pvalues) == found.n_kept if passing else not found.n_kept


def test_a_pvalue_of_having_been_seen_counts_the_seen_that_score_as_low() -> None:
    seen = [float(i) for i in range(19)]
    assert seen_pvalues([-1.0, 0.0, 9.0, 30.0], seen).tolist() == [1 / 20, 2 / 20, 11 / 20, 1.0]
    mirrored = conformal_pvalues([1.0, 0.0], [-value for value in seen])
    assert seen_pvalues([-1.0, 0.0], seen).tolist() == mirrored.tolist()


@pytest.mark.parametrize("rate", [0, 1, 1.5, -0.1, True])
def test_a_target_rate_out_of_range_is_named(rate) -> None:
    with pytest.raises(ValueError, match=f"^target_rate is {rate!r}; the target rate of contaminated questions"):
        check_target_rate(rate)
