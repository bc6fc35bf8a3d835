"""Checks of benchmarks without options, whose rows exchange their names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lm_eval_leakage.jobs.driver import check
from tests.checking.conftest import NamedFake, checked, statuses, written
from tests.fakes import by_hash
from tests.harness.test_filler_audit import fond_of_rows
from tests.word_problems import word_problems, write_generating_task

pytestmark = pytest.mark.usefixtures("only_given_tasks", "fakes")
ROWS = word_problems(120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    write_generating_task(tmp_path / "tasks", "sums", ROWS)
    return tmp_path


def of_task(folder: Path, **given):
    return checked(folder, "sums", include_path=str(folder / "tasks"), **given)


def test_a_task_that_generates_its_answers_is_checked_by_its_names(fakes: type[NamedFake], folder: Path) -> None:
    outcome = of_task(folder)
    assert statuses(outcome) == {"accuracy": "not needed", "exchanged names": "to run"}
    (verdict,) = outcome.verdicts
    assert (verdict.basis, verdict.n, verdict.verdict) == ("fillers", 120, "none found")
    assert "names of other rows" in verdict.sentence
    assert "The published" not in verdict.summary
    page = (folder / "out" / "leakage.html").read_text(encoding="utf-8")
    assert "published names" in page
    asked = [text for context, text in fakes.asked]
    assert len(asked) > 120 * 15


def test_memory_of_the_rows_is_evidence_and_fails_the_command(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(fond_of_rows(ROWS))
    outcome = of_task(folder, fail_on="evidence")
    (verdict,) = outcome.verdicts
    assert verdict.verdict == "strong evidence"
    assert "prefers the published names to the names of other rows" in verdict.sentence
    assert len(outcome.failed) == 1
    saved = json.loads((folder / "out" / "verdicts.json").read_text(encoding="utf-8"))
    assert saved["verdicts"][0]["pvalue"] == verdict.pvalue < 1e-4


def test_the_same_check_again_asks_nothing_and_another_sample_is_a_second_look(fakes, folder: Path) -> None:
    first = of_task(folder, questions=60)
    fakes.asked.clear()
    again = of_task(folder, questions=60)
    assert (fakes.asked, again.verdicts) == ([], first.verdicts)
    assert [verdict.look for verdict in of_task(folder, questions=90).verdicts] == [2]
    assert (first.verdicts[0].look, first.verdicts[0].n) == (1, 60)


def test_a_file_of_texts_without_options_is_a_benchmark(fakes: type[NamedFake], tmp_path: Path) -> None:
    file = written(tmp_path, [*ROWS, {"question": "A robe takes 2 bolts of fibre."}], "stories.jsonl")
    outcome = checked(tmp_path, file)
    (verdict,) = outcome.verdicts
    assert (verdict.task, verdict.basis, verdict.n, verdict.verdict) == ("stories", "fillers", 120, "none found")
    assert "which answers to them are right" in next(
        step.note for step in outcome.plan.steps if step.what == "accuracy"
    )
    named = [{"tale": row["question"]} for row in ROWS]
    other = checked(tmp_path, written(tmp_path, named, "tales.jsonl"), fields="question=tale")
    assert other.verdicts[0].verdict == "none found"


def test_a_file_without_names_says_why(tmp_path: Path) -> None:
    rows = [{"question": f"A robe takes {n} bolts of blue fibre."} for n in range(30)]
    with pytest.raises(ValueError, match="no question can be read"):
        checked(tmp_path, written(tmp_path, rows, "robes.jsonl"))


def test_too_few_rows_have_no_verdict(fakes: type[NamedFake], folder: Path) -> None:
    (verdict,) = of_task(folder, questions=12).verdicts
    assert (verdict.verdict, verdict.n) == ("cannot be told", 12)
    assert "Only 12 of 12 questions can be tested" in verdict.summary


def test_the_reference_is_asked_the_same_names(fakes: type[NamedFake], folder: Path) -> None:
    fakes.score = staticmethod(lambda context, text: fond_of_rows(ROWS)(context, text) + by_hash(text, context) / 9)
    outcome = of_task(folder, reference="pretrained=other")
    assert statuses(outcome)["reference: exchanged names"] == "to run"
    assert "evidence" not in outcome.verdicts[0].verdict, "both models prefer the published names"


def test_the_plan_counts_tokens_and_says_how_many_rows_are_needed(folder: Path) -> None:
    outcome = check(
        model="fake",
        model_args="pretrained=m",
        tasks="sums",
        include_path=str(folder / "tasks"),
        output_path=folder / "out",
        dry_run=True,
    )
    (step,) = (step for step in outcome.plan.steps if step.what == "exchanged names")
    assert step.n_questions == 120
    assert step.n_requests > 120 * 15
    assert "needed to find 25 % seen 3 times" in step.note or "no number of questions is enough" in step.note
