from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from sklearn.metrics import f1_score, precision_score, recall_score, roc_auc_score, roc_curve

from lm_eval_leakage.results.formatting import value_in_interval
from lm_eval_leakage.stats.combined import (
    FOLDS,
    CombinedScore,
    Confusion,
    Interval,
    auroc,
    auroc_interval,
    cross_validated,
    fit,
    tpr_at_fpr,
    tpr_interval,
)

TRAINED = [True] * 100 + [False] * 100


def scores(seed: int, gains: dict[str, float]) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    shift = np.array(TRAINED, dtype=float)
    return {name: (rng.normal(size=200) + gain * shift).tolist() for name, gain in gains.items()}


def auroc_of(values) -> float:
    labels, values = np.array(TRAINED), np.asarray(values)
    return auroc(values[labels], values[~labels])


def test_independent_detectors_together_beat_each_alone() -> None:
    """Two unit shifts make one of sqrt 2: AUROC Phi(sqrt 2 / sqrt 2) = .84 against Phi(1 / sqrt 2) = .76."""
    found = [auroc_of(cross_validated(scores(seed, {"a": 1.0, "b": 1.0}), TRAINED)) for seed in range(6)]
    alone = [auroc_of(scores(seed, {"a": 1.0, "b": 1.0})["a"]) for seed in range(6)]
    assert np.mean(found) == pytest.approx(0.84, abs=0.03)
    assert np.mean(alone) == pytest.approx(0.76, abs=0.03)


def test_uninformative_scores_are_at_chance_on_questions_not_fitted_on() -> None:
    """A model fitted on the questions that it judges finds a pattern in 25 useless scores: its AUROC is .72."""
    noise = {f"noise {i}": 0.0 for i in range(25)}
    found = [auroc_of(cross_validated(scores(seed, noise), TRAINED)) for seed in range(2)]
    assert np.mean(found) == pytest.approx(0.5, abs=0.1)


def test_a_questions_score_does_not_affect_the_model_that_judges_its_fold() -> None:
    """Another score of one question changes the models of the other nine folds, and never that of its own."""
    own = scores(5, {"a": 1.0})
    before = cross_validated(own, TRAINED)
    for place in (0, 150):
        other = [value + 0.7 * (i == place) for i, value in enumerate(own["a"])]
        same = np.flatnonzero(cross_validated({"a": other}, TRAINED) == before)
        assert place not in same
        assert len(same) == len(TRAINED) // FOLDS - 1
        assert abs(np.array(TRAINED)[same].sum() - (~np.array(TRAINED)[same]).sum()) == 1


def weight_of_evidence(score: float, unseen: tuple[float, ...]) -> float:
    """What one detector adds to the log odds, per unit of its weight."""
    probability = CombinedScore(("a",), (1.0,), 0.0, {"a": unseen}).probability({"a": score})
    return math.log(probability / (1 - probability))


def test_equal_scores_share_the_middle_of_their_ranks() -> None:
    """A score tied with unseen ones is as much above them as below: on a symmetric scale its evidence is symmetric."""
    unseen = (-2.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0)
    assert weight_of_evidence(0.0, unseen) == pytest.approx(0, abs=1e-12)
    for score in (0.5, 1.0, 1.5, 2.0, 3.0):
        assert weight_of_evidence(-score, unseen) == pytest.approx(-weight_of_evidence(score, unseen))
    # Below 1.0 are 6 scores and half of the 2 equal ones.
    assert weight_of_evidence(1.0, unseen) == pytest.approx(norm.ppf((7 + 0.5) / 10))


def test_beyond_all_unseen_scores_distance_counts_in_their_spread_up_to_five() -> None:
    unseen = (10.0, 20.0, 40.0, 50.0)  # mean 30, population variance (400 + 100 + 100 + 400) / 4 = 250
    spread = math.sqrt(250)
    last_rank = norm.ppf(4.5 / 5)
    for distance, counted in ((0.5, 0.5), (2.0, 2.0), (5.0, 5.0), (9.0, 5.0)):
        assert weight_of_evidence(50 + distance * spread, unseen) == pytest.approx(last_rank + counted)
        assert weight_of_evidence(10 - distance * spread, unseen) == pytest.approx(-last_rank - counted)


def test_a_detectors_unit_does_not_matter() -> None:
    own = scores(0, {"a": 1.0, "b": 0.5})
    other = {"a": [1e4 * value - 7 for value in own["a"]], "b": own["b"]}
    assert cross_validated(other, TRAINED) == pytest.approx(cross_validated(own, TRAINED), abs=1e-6)


def test_probabilities_are_those_of_the_lab() -> None:
    fitted = fit(scores(1, {"a": 2.0}), TRAINED)
    assert fitted.probability({"a": 4.0}) > 0.8 > 0.2 > fitted.probability({"a": -3.0})


def test_a_question_that_a_detector_could_not_test_is_judged_by_the_others() -> None:
    own = scores(3, {"a": 1.0, "b": 1.0})
    own["a"][5] = float("nan")
    assert np.isfinite(cross_validated(own, TRAINED)).all()
    fitted = fit(own, TRAINED)
    assert fitted.probability({"b": 3.0}) > fitted.probability({"b": -3.0})


def test_a_detector_without_known_unseen_scores_is_left_out() -> None:
    own = {"a": scores(4, {"a": 1.0})["a"], "never": [float("nan")] * 200}
    assert fit(own, TRAINED).detectors == ("a",)


def test_a_scale_needs_two_held_out_questions() -> None:
    with pytest.raises(ValueError, match="no detector has scores on 2 held-out questions"):
        fit({"a": [1.0, 2.0, float("nan"), 4.0]}, [True, True, False, False])


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
    found = Confusion.of(trained, held_out)
    labels, flags = [True] * len(trained) + [False] * len(held_out), [*trained, *held_out]
    assert found.recall == pytest.approx(recall_score(labels, flags))
    assert found.f1 == pytest.approx(f1_score(labels, flags))
    assert found.fpr == pytest.approx(sum(held_out) / len(held_out))
    if any(flags):
        assert found.precision == pytest.approx(precision_score(labels, flags))
    else:
        assert math.isnan(found.precision)


def drawn(rng, true: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores of n trained and n held-out questions with this AUROC."""
    return rng.normal(2**0.5 * norm.ppf(true), 1, n), rng.normal(0, 1, n)


@pytest.mark.parametrize("true", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("n", [10, 20])
def test_the_interval_of_an_auroc_covers_it_with_twenty_questions_of_each_half(true, n) -> None:
    rng = np.random.default_rng(0)
    found = [auroc_interval(*drawn(rng, true, n)) for _ in range(300)]
    covered = sum(one.low <= true <= one.high for one in found)
    assert binomtest(covered, 300, 0.95, alternative="less").pvalue > 1e-3
    assert np.mean([one.high - one.low for one in found]) < 0.5


@pytest.mark.parametrize("true", [0.7, 0.97])
@pytest.mark.parametrize("n", [20, 100])
def test_the_interval_of_a_tpr_covers_it_although_its_threshold_is_estimated(true, n) -> None:
    rng = np.random.default_rng(1)
    tpr = norm.sf(norm.isf(0.05) - 2**0.5 * norm.ppf(true))
    covered = 0
    for _ in range(200):
        found = tpr_interval(*drawn(rng, true, n), 0.05, rng=rng)
        covered += found.low <= tpr <= found.high
    assert binomtest(covered, 200, 0.95, alternative="less").pvalue > 1e-3


@given(st.lists(st.integers(0, 6), min_size=10, max_size=30), st.lists(st.integers(0, 6), min_size=10, max_size=30))
def test_the_ends_of_an_auroc_are_around_it_and_mirrored_if_the_halves_are_exchanged(own, others) -> None:
    found, mirrored = auroc_interval(own, others), auroc_interval(others, own)
    assert 0 <= found.low <= found.value + 1e-6
    assert found.value - 1e-6 <= found.high <= 1
    assert found.low == pytest.approx(1 - mirrored.high, abs=1e-6)
    assert found.low < found.high


def test_perfect_separation_of_ten_and_ten_is_not_certain() -> None:
    found = auroc_interval([1.0] * 10, [0.0] * 10)
    assert (found.value, found.high) == (1, 1)
    assert 0.6 < found.low < 0.9
    assert auroc_interval([0.0] * 10, [1.0] * 10).high == pytest.approx(1 - found.low)


def test_nothing_to_compare_is_undefined() -> None:
    assert math.isnan(auroc(np.array([]), np.array([1.0])))
    nothing = auroc_interval([1.0], [])
    assert math.isnan(nothing.value)
    assert value_in_interval(nothing) == "–"
    assert value_in_interval(Interval(0.5, 0.401, 0.625)) == "0.50 [0.40, 0.62]"
    assert math.isnan(tpr_at_fpr(np.array([]), np.array([1.0]), 0.1))
    assert math.isnan(tpr_at_fpr(np.array([1.0]), np.array([]), 0.1))
