from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from lm_eval_leakage.stats.conformal import conformal_pvalues
from lm_eval_leakage.stats.known_scores import EVERY_CLASS, KnownScores
from lm_eval_leakage.stats.prevalence import (
    calibrated_lower_bound,
    exact_lower_bound,
    rogan_gladen,
    share_of,
)


def test_the_estimate_is_rogan_and_gladens() -> None:
    found = rogan_gladen(40, 100, (80, 100), (10, 100), rng=np.random.default_rng(0))
    assert found.value == pytest.approx((0.4 - 0.1) / (0.8 - 0.1))
    assert found.low < found.value < found.high


@pytest.mark.parametrize(("n_flagged", "n_tested"), [(0, 10), (3, 10), (10, 10)])
def test_for_a_test_that_never_errs_the_interval_is_jeffreys(n_flagged: int, n_tested: int) -> None:
    many = 10**9
    found = rogan_gladen(n_flagged, n_tested, (many, many), (0, many), rng=np.random.default_rng(5))
    expected = beta.ppf((0.025, 0.975), n_flagged + 0.5, n_tested - n_flagged + 0.5)
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.012)


def test_its_interval_covers_at_its_level() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        tpr, fpr = rng.binomial(100, 0.7), rng.binomial(100, 0.08)
        flagged = rng.binomial(300, 0.3 * 0.7 + 0.7 * 0.08)
        found = rogan_gladen(flagged, 300, (tpr, 100), (fpr, 100), rng=rng)
        covered += found.low <= 0.3 <= found.high
    assert binomtest(covered, 300, 0.95).pvalue > 1e-3


def test_a_test_without_power_is_uninformative() -> None:
    found = rogan_gladen(10, 100, (5, 100), (10, 100), rng=np.random.default_rng(0))
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0, 1)


def test_the_bound_is_clopper_and_pearsons() -> None:
    expected = binomtest(17, 90).proportion_ci(0.95, method="exact").low
    assert exact_lower_bound(17, 90, 0.0).low == pytest.approx(expected)
    found = exact_lower_bound(17, 90, 0.1)
    assert found.value == pytest.approx((17 / 90 - 0.1) / 0.9)
    assert found.low == pytest.approx((expected - 0.1) / 0.9)
    assert found.high == 1  # a seen question may not be flagged


@pytest.mark.parametrize("n_known", [19, 39, 99])
def test_an_estimated_rate_makes_the_bound_of_a_clean_benchmark_positive_in_one_case_of_forty(n_known) -> None:
    """Conformal p-values at 5 %, so that the rate among new unseen questions is as uncertain as in use."""
    rng = np.random.default_rng(3)
    positive, taken_as_known = 0, 0
    for _ in range(400):
        known = np.sort(rng.random(n_known))
        n_flagged = int((rng.random(300) > known[-((n_known + 1) // 20)]).sum())
        fpr = ((n_known + 1) // 20, n_known)
        positive += calibrated_lower_bound(n_flagged, 300, fpr).low > 0
        taken_as_known += exact_lower_bound(n_flagged, 300, fpr[0] / fpr[1]).low > 0
    assert binomtest(positive, 400, 0.025, alternative="greater").pvalue > 1e-3
    assert taken_as_known > 3 * 0.025 * 400  # what is mended


def test_the_bound_holds_where_every_seen_question_is_flagged() -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(400):
        false = rng.beta(5.5, 94.5)  # the rate, as five flags of 99 unseen questions leave it
        n_flagged = 40 + rng.binomial(160, false)
        wrong += calibrated_lower_bound(n_flagged, 200, (5, 99)).low > 40 / 200
    assert binomtest(wrong, 400, 0.025, alternative="greater").pvalue > 1e-3


def test_too_few_questions_give_no_share() -> None:
    for flags, tpr, fpr in (([True] * 9, (9, 10), (0, 99)), ([True] * 50, (9, 10), (0, 9))):
        found = share_of(flags, tpr, fpr)
        assert math.isnan(found.value)
        assert math.isnan(found.low)
    bound = share_of([True] * 50, (9, 9), (1, 99))  # too few seen questions for an estimate
    assert (bound.high, bound) == (1, calibrated_lower_bound(50, 50, (1, 99)))


@pytest.mark.parametrize("prevalence", [0, 0.1, 0.5, 0.9])
def test_the_interval_covers_where_classes_differ(prevalence: float) -> None:
    """Two classes whose scores differ by 1.5 standard deviations, asked and known in the same proportion."""
    rng = np.random.default_rng(5)
    classes = np.arange(300) % 2
    covered = 0
    for _ in range(100):
        unseen = {name: (rng.normal(size=60) + 1.5 * c).tolist() for c, name in enumerate("ab")}
        seen = [2 + 1.5 * c + rng.normal() for c in (0, 1) for _ in range(60)]
        known = KnownScores({EVERY_CLASS: [*unseen["a"], *unseen["b"]], **unseen}, seen, ["a"] * 60 + ["b"] * 60)
        scores = rng.normal(size=300) + 1.5 * classes + 2 * (rng.permutation(300) < prevalence * 300)
        flags = np.empty(300, dtype=bool)
        for c, name in enumerate("ab"):
            flags[classes == c] = conformal_pvalues(scores[classes == c], unseen[name]) <= 0.05
        found = share_of(flags.tolist(), *known.flagged(0.05))
        covered += found.low <= prevalence <= found.high
    assert binomtest(covered, 100, 0.95, alternative="less").pvalue > 1e-3
