from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from lm_eval_leakage.inference.combined import CombinedScore
from lm_eval_leakage.inference.known_scores import (
    COMBINED,
    EVERY_CLASS,
    Calibration,
    KnownScores,
    by_class,
    class_of,
    detector_name,
    load,
)

TOGETHER = CombinedScore(("a", "b"), (0.5, 1.5), -0.25, {"a": (0.0, 1.0), "b": (2.0, 3.0)})


def test_a_threshold_holds_on_fresh_draws() -> None:
    rng = np.random.default_rng(0)
    flagged = 0
    for _ in range(60):
        known = KnownScores({EVERY_CLASS: rng.standard_t(3, 100).tolist()}, ())
        flagged += sum(known.pvalue(score, "x") <= 0.05 for score in rng.standard_t(3, 50))
    assert binomtest(flagged, 3000, 5 / 101).pvalue > 1e-4


def test_a_class_has_its_own_threshold_where_it_has_enough_questions() -> None:
    known = KnownScores({EVERY_CLASS: [0.0] * 99, "rising": [5.0] * 19, "rare": [5.0] * 3}, ())
    assert known.pvalue(3.0, "rising") == 1
    assert known.pvalue(3.0, "rare") == 1 / 100
    assert known.pvalue(3.0, "unheard of") == 1 / 100


def test_known_rates_are_those_of_the_threshold() -> None:
    known = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, [200.0, 97.5, 3.0])
    assert known.flagged(0.05) == ((2, 3), (5, 99))
    assert KnownScores({EVERY_CLASS: [1.0]}, ()).flagged(0.05) == ((0, 0), (0, 1))


@pytest.mark.parametrize("seen", [(), (2.0,)])
def test_at_five_percent_nineteen_known_unseen_questions_are_the_fewest_that_flag_one(seen: tuple[float, ...]) -> None:
    """A p-value of 1 / 20 is reached, one of 1 / 19 is not."""
    for n_unseen, n_flagged in ((18, 0), (19, 1), (38, 1), (39, 2)):
        of_seen, of_unseen = KnownScores({EVERY_CLASS: [1.0] * n_unseen}, seen).flagged(0.05)
        assert of_unseen == (n_flagged, n_unseen)
        assert of_seen == (len(seen) * (n_flagged > 0), len(seen))


def test_every_percent_of_ninety_nine_known_unseen_questions_is_that_many() -> None:
    """0.29 * 100 is 28.999999999999996 for a computer."""
    known = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, ())
    assert [known.flagged(percent / 100)[1][0] for percent in range(1, 100)] == list(range(1, 100))


def test_scores_are_grouped_and_what_is_not_finite_is_left_out() -> None:
    classes = {"a": class_of(4, True), "b": class_of(4, False), "c": class_of(4, True)}
    grouped = by_class({"a": 1.0, "b": 2.0, "c": float("nan")}, classes)
    assert grouped == {EVERY_CLASS: [1.0, 2.0], "4 options, guarded": [1.0], "4 options, no guard": [2.0]}


def test_a_detector_is_named_by_its_parameters_and_its_reference_model() -> None:
    known = KnownScores({}, (1.0,))
    assert detector_name(known, "max_order") == "KnownScores(unseen={}, seen=(1.0,))/'max_order'"
    assert detector_name("p", "s", "gpt2") == "'p'/'s' against gpt2"


def test_what_is_saved_is_read(tmp_path) -> None:
    key = detector_name(KnownScores({}, ()), "max_order") + "/statistic"
    made = Calibration("M", "mmlu", "held out", {key: KnownScores({EVERY_CLASS: [1.0]}, [2.0])}, TOGETHER)
    made.save(tmp_path / "c.json")
    assert load(str(tmp_path / "c.json")) == made


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"is no calibration file .*; make one with `lm-eval-leakage simulate`"),
        ("[]", "is no calibration file"),
        ('{"results": {}}', "is no calibration file"),
        (json.dumps({"calibration": 9, "detectors": {}, "combined": None}), "of version 9; this package reads 1"),
    ],
)
def test_another_file_is_refused(tmp_path, content: str, message: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path / "c.json"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": 7}, "its model is 7, which is no text"),
        ({"benchmark": None}, "its benchmark is None"),
        ({"origin": ["x"]}, "its origin is"),
        ({"detectors": []}, "is no calibration file"),
        ({"detectors": {"a": {"unseen": {"all": [1, "x"]}, "seen": []}}}, "a has scores that are no finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [float("nan")]}, "seen": []}}}, "no finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [1.0]}, "seen": [True]}}}, "no finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [10**400]}, "seen": []}}}, "is no calibration file"),
        ({"detectors": {"a": {"unseen": {}, "seen": []}}}, "a has no scores of 'all' unseen questions"),
        ({"detectors": {COMBINED: {"unseen": {"all": [1.0]}, "seen": []}}}, "not how they are made"),
        ({"combined": {"detectors": ["a"], "weights": [], "intercept": 0, "unseen": {"a": [1]}}}, "one weight"),
        ({"combined": {"detectors": ["a"], "weights": [1], "intercept": 0, "unseen": {"a": []}}}, "no unseen"),
        ({"combined": {"detectors": ["a"], "weights": [1], "intercept": "0", "unseen": {"a": [1]}}}, "no finite"),
        ({"combined": {"detectors": [7], "weights": [1], "intercept": 0, "unseen": {"a": [1]}}}, "is no name"),
        ({"more": 1}, "is no calibration file"),
    ],
)
def test_a_field_of_another_kind_is_refused(tmp_path, change, said) -> None:
    whole = {"calibration": 1, "model": "M", "benchmark": "b", "origin": "o", "detectors": {}, "combined": None}
    (tmp_path / "c.json").write_text(json.dumps(whole))
    assert load(str(tmp_path / "c.json")).model == "M"
    (tmp_path / "c.json").write_text(json.dumps(whole | change))
    with pytest.raises(ValueError, match="is no calibration file") as refusal:
        load(str(tmp_path / "c.json"))
    assert said in str(refusal.value)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"calibration": 1, "model": ' + b"[" * 100_000, b"\xff\x00"])
def test_a_file_nested_too_deep_or_of_other_bytes_is_refused(tmp_path, content) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(ValueError, match="is no calibration file"):
        load(str(tmp_path / "c.json"))


def test_a_file_that_is_not_there_or_a_folder_is_said_to_be_unreadable(tmp_path) -> None:
    for place in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ValueError, match="which cannot be read"):
            load(str(place))


def test_scores_match_a_run_by_its_detectors_with_or_without_the_value_that_ranks() -> None:
    found = Calibration("M", "b", "o", {"P()/T()/statistic": KnownScores({EVERY_CLASS: [1.0]}, [])})
    assert found.unmatched(["P()/T()"]) is None
    assert found.unmatched(["x", "P()/T()/statistic"]) is None
    for run in (["P(max_orders=12)/T()"], []):
        said = str(found.unmatched(run))
        assert "'M' has scores of P()/T()/statistic, and what was run is " in said
        assert ", ".join(run) in said
    assert "has scores of Q" in str(found.unmatched(["P()/T()"], "Q"))
