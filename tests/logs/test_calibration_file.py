from __future__ import annotations

import json

import pytest

from lm_eval_leakage.logs.calibration_file import read_calibration, write_calibration
from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.known_scores import COPY, OWN, Calibration

WHOLE = {"calibration": 3, "model": "M", "benchmark": "b", "whose": COPY, "origin": "o", "detectors": {}}
WHOLE |= {"combined": None, "unseen": None}


def scores(unseen: object) -> dict[str, object]:
    return {"detectors": {"a": {"unseen": unseen, "seen": ()}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"calibration": 9}, "calibration: Input should be 3"),
        ({"model": 7}, "model: Input should be a valid string"),
        (scores({"all": [1, "x"]}), "detectors.a.unseen.all.1: "),
        (scores({"all": [float("nan")]}), "finite number"),
        ({"whose": "mine"}, "whose: Input should be 'own' or 'copy'"),
        ({"unseen": {"properties": {}, "digests": [1]}}, "unseen.digests.0: "),
        ({"more": 1}, "more: Extra inputs are not permitted"),
    ],
)
def test_a_field_of_another_kind_is_refused(tmp_path, change, said) -> None:
    (tmp_path / "c.json").write_text(json.dumps(WHOLE))
    assert read_calibration(str(tmp_path / "c.json")).model == "M"
    (tmp_path / "c.json").write_text(json.dumps(WHOLE | change))
    with pytest.raises(
        ValueError, match=r"is not a calibration file .*; make one with `lm-eval-leakage calibrate`"
    ) as e:
        read_calibration(str(tmp_path / "c.json"))
    assert said in str(e.value)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"results": {}}', b"[" * 100_000, b'{"calibration": 3, "model": ' + b"[" * 99_999, b"\xff\x00"],
)
def test_another_file_is_refused(tmp_path, content) -> None:
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
