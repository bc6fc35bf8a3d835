from __future__ import annotations

import json
from pathlib import Path

import pytest
from lm_eval.loggers import EvaluationTracker

from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.harness.seams.results import NotSaved, remember_audits
from lm_eval_leakage.harness.table import finish, known_rows
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import GOOD, ONE, TASK, evaluate


def strict(text: str) -> object:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def saved(questions_file, tmp_path):
    """A run's tracker, results and samples, as the harness's command line saves them."""
    tracker = EvaluationTracker(output_path=str(tmp_path / "out"))
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, ONE]), evaluation_tracker=tracker)
    return tracker, results, results.pop("samples")


def test_results_and_samples_are_strict_json(saved, tmp_path) -> None:
    tracker, results, samples = saved
    tracker.save_results_aggregated(results, samples)
    tracker.save_results_samples(TASK, samples[TASK])
    (file,) = (tmp_path / "out").rglob("results_*.json")
    row = strict(file.read_text())["results"][TASK]
    assert not [key for key in row if "_stderr" in key]  # no row of one question has a standard error
    assert row["skipped,max_order"] == 1
    assert isinstance(row["skipped,max_order"], int)
    (log,) = (tmp_path / "out").rglob("samples_*.jsonl")
    for line in log.read_text().splitlines():
        strict(line)


def test_rows_of_other_tasks_keep_what_the_harness_wrote() -> None:
    other = {"acc,none": 0.5, "acc_stderr,none": "N/A"}
    ours = known_rows()["skipped"]([])
    results = {"results": {"other": {**other}, "mixed": {**other, "skipped,f": ours, "skipped_stderr,f": "N/A"}}}
    finish(results)
    assert results["results"] == {"other": other, "mixed": {**other, "skipped,f": 0}}


def test_results_that_could_not_be_saved_are_an_error_and_are_printed(saved, tmp_path, capsys) -> None:
    tracker, results, samples = saved
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / tracker.general_config_tracker.model_name_sanitized).write_text("in the way")
    with pytest.raises(NotSaved, match="the results could not be saved completely"):
        tracker.save_results_aggregated(results, samples)
    assert "|flagged_rate" in capsys.readouterr().out.replace(" ", "")


def test_other_runs_are_saved_as_ever(tmp_path) -> None:
    tracker = EvaluationTracker(output_path=str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    results = {"results": {"t": {}}, "configs": {"t": {"metadata": None}}}
    remember_audits(results)
    tracker.save_results_aggregated(results, None)
    tracker.save_results_samples("t", [])


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_an_output_path_that_cannot_be_written_ends_the_run_before_the_model_works(
    questions_file, tmp_path: Path, name: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    lm = FakeLM(by_hash)
    with pytest.raises(Refusal, match="output_path is .*, where nothing can be written"):
        evaluate(lm, questions_file([GOOD]), evaluation_tracker=EvaluationTracker(output_path=str(tmp_path / name)))
    assert not lm.asked
