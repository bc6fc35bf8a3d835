from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.stats.conformal import conformal_pvalues, from_pvalues, joint, unseen_share


def identify(scores, unseen, level=0.1):
    return from_pvalues(conformal_pvalues(scores, unseen), level)


def identify_jointly(scores, unseen, level=0.1):
    return from_pvalues(joint([conformal_pvalues(scores[model], unseen[model]) for model in scores]), level)


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
    found = identify(scores["0"], unseen["0"], 0.1) if models == 1 else identify_jointly(scores, unseen, 0.1)
    flagged = np.array(found.flagged)
    return float((flagged & ~truth).sum() / max(1, flagged.sum())), float(flagged[truth].mean())


@pytest.mark.parametrize("models", [1, 3])
def test_the_false_discovery_rate_is_at_most_its_target_on_average(models: int) -> None:
    rng = np.random.default_rng(0)
    shares, power = zip(*(false_share(rng, 60, 60, models=models) for _ in range(200)), strict=True)
    assert np.mean(shares) <= 0.1 + 2 * np.std(shares) / np.sqrt(200)
    assert np.mean(power) > 0.5


def test_the_estimate_of_the_unseen_share_is_near_the_truth_and_never_above_one() -> None:
    rng = np.random.default_rng(2)
    pvalues = [*rng.random(500).tolist(), *(rng.random(500) / 100).tolist()]
    assert unseen_share(pvalues) == pytest.approx(0.5, abs=0.06)
    assert unseen_share([0.9] * 10) == 1
    assert unseen_share([]) == 1


def test_no_pvalue_above_a_half_is_not_taken_for_a_benchmark_without_unseen_questions() -> None:
    """Storey's estimate adds one p-value above 1/2 to those observed: with n of them, 2 / n is the minimum."""
    assert unseen_share([0.01] * 10) == unseen_share([0.5] * 10) == pytest.approx(2 / 10)
    assert unseen_share([0.01] * 9 + [0.51]) == pytest.approx(4 / 10)
    assert not any(from_pvalues(np.array([0.45] * 4), 0.1).flagged)


@pytest.mark.parametrize("n_questions", [1, 2, 3])
def test_a_small_clean_benchmark_has_any_flag_at_most_at_the_target_rate(n_questions: int) -> None:
    """Every combination of p-values 1/10, 2/10, ..., 1, which are equally likely without leakage."""
    grid = [k / 10 for k in range(1, 11)]
    cases = [any(from_pvalues(np.array(pvalues), 0.1).flagged) for pvalues in product(grid, repeat=n_questions)]
    assert sum(cases) / len(cases) <= 0.1


@pytest.mark.parametrize("level", [0, 1, -0.1, True])
def test_a_level_out_of_range_is_named(level: float) -> None:
    with pytest.raises(ValueError, match=f"level is {level!r}"):
        identify([1.0], [0.0], level)
