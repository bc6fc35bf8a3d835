from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from lm_eval_leakage.stats.combined import FOLDS, CombinedScore, auroc, cross_validated, fit

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


def test_probabilities_are_those_of_the_lab_and_move_with_the_prior() -> None:
    own = scores(1, {"a": 2.0})
    fitted = fit(own, TRAINED)
    high, low = fitted.probability({"a": 4.0}), fitted.probability({"a": -3.0})
    assert high > 0.8 > 0.2 > low
    odds = high / (1 - high)
    rare = fitted.probability({"a": 4.0}, prior=0.1)
    assert rare / (1 - rare) == pytest.approx(odds / 9)


def test_a_question_that_a_detector_could_not_test_is_judged_by_the_others() -> None:
    own = scores(3, {"a": 1.0, "b": 1.0})
    own["a"][5] = float("nan")
    assert np.isfinite(cross_validated(own, TRAINED)).all()
    fitted = fit(own, TRAINED)
    assert fitted.probability({"b": 3.0}) > fitted.probability({"b": -3.0})


def test_a_detector_without_known_unseen_scores_is_left_out() -> None:
    own = {"a": scores(4, {"a": 1.0})["a"], "never": [float("nan")] * 200}
    assert fit(own, TRAINED).detectors == ("a",)


def test_a_scale_needs_two_held_out_questions_in_every_fit() -> None:
    with pytest.raises(ValueError, match="no detector has scores on 2 held-out questions"):
        cross_validated({"a": [1.0, 2.0, 3.0, 4.0]}, [True, True, False, False])
    with pytest.raises(ValueError, match="no detector has scores on 2 held-out questions"):
        fit({"a": [1.0, 2.0, float("nan"), 4.0]}, [True, True, False, False])
