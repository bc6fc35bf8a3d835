from __future__ import annotations

import json

import pytest

from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import COMBINED, COPY, EVERY_CLASS, OWN, Calibration, KnownScores

TOGETHER = CombinedScore(("a", "b"), (0.5, 1.5), -0.25, {"a": (0.0, 1.0), "b": (2.0, 3.0)})


def test_what_is_saved_is_read(tmp_path) -> None:
    made = Calibration(
        "M", "mmlu", COPY, "held out", {"max_order": KnownScores({EVERY_CLASS: [1.0]}, [2.0])}, TOGETHER
    )
    write_calibration(tmp_path / "c.json", made)
    assert read_calibration(str(tmp_path / "c.json")) == made


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"is not a calibration file .*; make one with `lm-eval-leakage calibrate`"),
        ("[]", "is not a calibration file"),
        ('{"results": {}}', "is not a calibration file"),
        (
            json.dumps({"calibration": 9, "detectors": {}, "combined": None}),
            "version 9; this package reads 3",
        ),
    ],
)
def test_another_file_is_refused(tmp_path, content: str, message: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_calibration(str(tmp_path / "c.json"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": 7}, "its model is 7, which is not a text"),
        ({"benchmark": None}, "its benchmark is None"),
        ({"origin": ["x"]}, "its origin is"),
        ({"detectors": []}, "is not a calibration file"),
        ({"detectors": {"a": {"unseen": {"all": [1, "x"]}, "seen": []}}}, "a has scores that are not finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [float("nan")]}, "seen": []}}}, "not finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [1.0]}, "seen": [True]}}}, "not finite numbers"),
        ({"detectors": {"a": {"unseen": {"all": [10**400]}, "seen": []}}}, "is not a calibration file"),
        ({"detectors": {"a": {"unseen": {}, "seen": []}}}, "a has no scores of 'all' unseen questions"),
        ({"detectors": {COMBINED: {"unseen": {"all": [1.0]}, "seen": []}}}, "not how they are computed"),
        ({"combined": {"detectors": ["a"], "weights": [], "intercept": 0, "unseen": {"a": [1]}}}, "one weight"),
        ({"combined": {"detectors": ["a"], "weights": [1], "intercept": 0, "unseen": {"a": []}}}, "no unseen"),
        ({"combined": {"detectors": ["a"], "weights": [1], "intercept": "0", "unseen": {"a": [1]}}}, "not finite"),
        ({"combined": {"detectors": [7], "weights": [1], "intercept": 0, "unseen": {"a": [1]}}}, "is not a text"),
        ({"whose": "mine"}, "its scores are of 'mine', which is neither 'own' nor 'copy'"),
        (
            {"unseen": {"properties": {"length": ["x"]}, "digests": []}},
            "a property of its unseen questions is not finite",
        ),
        ({"unseen": {"properties": {}, "digests": [1]}}, "a digest of its unseen questions is not a text"),
        ({"more": 1}, "is not a calibration file"),
    ],
)
def test_a_field_of_another_kind_is_refused(tmp_path, change, said) -> None:
    whole = {"calibration": 3, "model": "M", "benchmark": "b", "whose": COPY, "origin": "o", "detectors": {}}
    whole |= {"combined": None, "unseen": None}
    (tmp_path / "c.json").write_text(json.dumps(whole))
    assert read_calibration(str(tmp_path / "c.json")).model == "M"
    (tmp_path / "c.json").write_text(json.dumps(whole | change))
    with pytest.raises(ValueError, match="is not a calibration file") as refusal:
        read_calibration(str(tmp_path / "c.json"))
    assert said in str(refusal.value)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"calibration": 1, "model": ' + b"[" * 100_000, b"\xff\x00"])
def test_a_file_nested_too_deep_or_of_other_bytes_is_refused(tmp_path, content) -> None:
    (tmp_path / "c.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a calibration file"):
        read_calibration(str(tmp_path / "c.json"))


def test_a_file_that_is_not_there_or_a_folder_is_said_to_be_unreadable(tmp_path) -> None:
    for place in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ValueError, match="which cannot be read"):
            read_calibration(str(place))


def test_stems_of_private_questions_are_not_written(tmp_path) -> None:
    unseen = Described({"number of options": (4.0,)}, {"ab12": "A private question?"})
    write_calibration(tmp_path / "c.json", Calibration("M", "mmlu", OWN, "private", {}, None, unseen))
    assert "private question" not in (tmp_path / "c.json").read_text()
    assert read_calibration(str(tmp_path / "c.json")).unseen == Described(unseen.properties, {"ab12": ""})
