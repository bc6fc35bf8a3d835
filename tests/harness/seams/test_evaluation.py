"""A task finds its run, and a run whose files could not be saved ends with an error."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval.evaluator import evaluate as evaluate_of_the_harness
from lm_eval.loggers import EvaluationTracker

from lm_eval_leakage.harness.seams import run_files, run_results
from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.harness.seams.run_files import NotSaved, remember_audits
from lm_eval_leakage.harness.table import registered_rows
from lm_eval_leakage.harness.tasks.finished_results import finish
from lm_eval_leakage.harness.tasks.task import LeakageTask
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import GOOD, ONE, TASK, evaluate, manager

LONG = GOOD | {"question": "Why " + "very " * 60 + "long?"}


def loaded(metadata):
    return manager(metadata).load([TASK])


def test_evaluate_alone_checks_the_window_too(questions_file) -> None:
    lm = FakeLM(by_hash, max_length=40)
    results = evaluate_of_the_harness(lm=lm, task_dict=loaded(questions_file([LONG, GOOD])))
    assert results["results"][TASK]["skipped,max_order"] == 1


def test_a_task_finds_its_run(questions_file, tmp_path, monkeypatch) -> None:
    met, meet = [], LeakageTask.meet
    monkeypatch.setattr(LeakageTask, "meet", lambda self, evaluation: meet(self, evaluation) or met.append(evaluation))
    evaluate(FakeLM(by_hash), questions_file([GOOD]), evaluation_tracker=EvaluationTracker(output_path=str(tmp_path)))
    (evaluation,) = met
    assert isinstance(evaluation.lm, FakeLM)
    assert list(evaluation.tasks) == [TASK]
    assert evaluation.output_path == tmp_path
    assert evaluation.model is None


@pytest.mark.model  # starts an interpreter
def test_the_order_of_imports_does_not_matter(tmp_path: Path) -> None:
    script = """
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from tests.harness.seams.test_evaluation import FakeLM, by_hash, loaded, LONG, GOOD, TASK
import json, sys
file = sys.argv[1]
with open(file, "w") as rows:
    rows.write(json.dumps(LONG) + "\\n" + json.dumps(GOOD) + "\\n")
lm = FakeLM(by_hash, max_length=40)
print(evaluate(lm=lm, task_dict=loaded({"data_files": file}))["results"][TASK]["skipped,max_order"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "rows.jsonl")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "1"


@pytest.mark.model
def test_ctrl_c_leaves_no_traceback_and_keeps_what_was_answered(tmp_path: Path) -> None:
    script = """
import sys
from lm_eval_leakage.harness.seams.refusals import Refusal, hide_tracebacks
hide_tracebacks()
hide_tracebacks()
raise {"c": KeyboardInterrupt(), "r": Refusal("one sentence"), "e": ValueError("another")}[sys.argv[1]]
"""
    ends = {}
    for kind in "cre":
        done = subprocess.run([sys.executable, "-c", script, kind], capture_output=True, text=True, check=False)
        ends[kind] = (done.returncode, done.stderr)
    assert ends["c"] == (130, "interrupted\n")
    assert ends["r"] == (2, "error: one sentence\n")
    assert ends["e"][0] == 2
    said, _, file = ends["e"][1].strip().removesuffix(")").partition(" (traceback: ")
    assert said == "error: ValueError: another"
    assert "Traceback" in Path(file).read_text()
    Path(file).unlink()


@pytest.fixture
def saved(questions_file, tmp_path):
    """A run's tracker, results and samples, as the harness's command line saves them."""
    tracker = EvaluationTracker(output_path=str(tmp_path / "out"))
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, ONE]), evaluation_tracker=tracker)
    return tracker, results, results.pop("samples")


def test_rows_of_other_tasks_keep_what_the_harness_wrote() -> None:
    other = {"acc,none": 0.5, "acc_stderr,none": "N/A"}
    ours = registered_rows()["skipped"]([])
    results = {"results": {"other": {**other}, "mixed": {**other, "skipped,f": ours, "skipped_stderr,f": "N/A"}}}
    finish(results)
    assert results["results"] == {"other": other, "mixed": {**other, "skipped,f": 0}}


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_results_that_could_not_be_saved_are_an_error_and_are_printed_whatever_is_logged(
    saved, level: int, tmp_path, capsys, caplog: pytest.LogCaptureFixture
) -> None:
    tracker, results, samples = saved
    caplog.set_level(level, logger=run_files.TRACKER)
    remember_audits(results)
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
    assert not lm.requests


def test_what_was_for_the_next_results_alone_is_over_even_if_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_registered", "_of_next"):
        monkeypatch.setattr(run_results, name, [])
    assembled = run_results._finished(lambda self: {})
    run_results.on_results(lambda results: results.update(always=True))
    run_results.on_next_results(lambda results: results.pop("missing"))
    with pytest.raises(KeyError, match="missing"):
        assembled(None)
    assert assembled(None) == {"always": True}
