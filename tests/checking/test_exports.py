"""`check --export` writes files beside the verdicts, also of a check that is complete, and the sentence to copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.outcome import read_looks
from tests.checking.conftest import NamedFake, checked, questions, written
from tests.cli.conftest import typed  # noqa: F401 (a fixture)

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
    left_out = (
        "hf-eval-results leaves out m on quiz: its questions are not of a data set that the hub names OWNER/NAME"
    )
    assert left_out in outcome.problems
    assert checked(tmp_path, quiz, export=FORMATS).exports == outcome.exports  # and no second record
    assert len([*(tmp_path / "out" / "every-eval-ever").rglob("*.json")]) == 1


def test_the_sentence_has_the_digest_by_which_looks_know_the_benchmark(tmp_path: Path, quiz: Path) -> None:
    (one,) = checked(tmp_path, quiz).verdicts
    (look,) = read_looks(tmp_path / "out")
    assert look.model.endswith(f" on quiz [{one.digest}]")
    assert f"on 40 questions of quiz (digest {one.digest}) by" in one.citation
    (other,) = checked(tmp_path, written(tmp_path, questions(41)[1:]), out="other").verdicts
    assert other.digest != one.digest


def test_the_command_prints_sentences_and_where_exports_are(
    fakes: type[NamedFake],
    tmp_path: Path,
    quiz: Path,
    typed: Any,  # noqa: F811
) -> None:
    given = ["--model", "fake", "--model_args", "pretrained=m", "--tasks", str(quiz), "--output_path", str(tmp_path)]
    code, out, err = typed("check", *given, "--export", "badge", "--export", "hf-eval-results")
    assert code == 0
    (record,) = json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]
    assert f"\nto copy: {record['citation']}\n" in out
    assert f"exported: 1 file in {tmp_path / 'badge'}\n" in err
    assert f"exported: 0 files in {tmp_path / 'hf-eval-results'}\n" in err
    assert "note: hf-eval-results leaves out m on quiz: " in err
    _, out, _ = typed("check", *given, "--quiet")
    assert "to copy" not in out
