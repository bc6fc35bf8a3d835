"""`check --export` writes files beside the verdicts, also of a check that is complete, and the sentence to copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.outcome import read_looks
from tests.checking.conftest import NamedFake, checked, questions, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]
FORMATS = ["every-eval-ever", "hf-eval-results", "badge"]


@pytest.fixture
def quiz(fakes: type[NamedFake], tmp_path: Path) -> Path:
    return written(tmp_path, questions(40))


def test_a_complete_check_is_exported_without_asking_anything(
    fakes: type[NamedFake], tmp_path: Path, quiz: Path
) -> None:
    assert checked(tmp_path, quiz).exports == ()
    fakes.asked.clear()
    outcome = checked(tmp_path, quiz, export=FORMATS)
    assert fakes.asked == []
    record, badge = outcome.exports
    assert (record.suffix, badge) == (".json", tmp_path / "out" / "badge" / "m" / "quiz.svg")
    assert "none found" in badge.read_text()
    (one,) = outcome.verdicts
    details = json.loads(record.read_text())["evaluation_results"][0]["score_details"]["details"]
    assert details["leakage_citation"] == one.citation
    assert checked(tmp_path, quiz, export=FORMATS).exports == outcome.exports  # and no second record
    assert len([*(tmp_path / "out" / "every-eval-ever").rglob("*.json")]) == 1


def test_the_sentence_has_the_digest_by_which_looks_know_the_benchmark(tmp_path: Path, quiz: Path) -> None:
    (one,) = checked(tmp_path, quiz).verdicts
    (look,) = read_looks(tmp_path / "out")
    assert look.model.endswith(f" on quiz [{one.digest}]")
    assert f"on 40 questions of quiz (digest {one.digest}) by" in one.citation
    (other,) = checked(tmp_path, written(tmp_path, questions(41)[1:]), out="other").verdicts
    assert other.digest != one.digest
