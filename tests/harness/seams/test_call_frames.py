from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval.evaluator import evaluate as evaluate_of_the_harness
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_leakage import task_configs_path
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import GOOD, TASK, evaluate

LONG = GOOD | {"question": "Why " + "very " * 60 + "long?"}


def loaded(metadata):
    return TaskManager(include_path=task_configs_path(), include_defaults=False, metadata=metadata).load([TASK])


def test_evaluate_alone_checks_the_window_too(questions_file) -> None:
    lm = FakeLM(by_hash, max_length=40)
    results = evaluate_of_the_harness(lm=lm, task_dict=loaded(questions_file([LONG, GOOD])))
    assert results["results"][TASK]["skipped,max_order"] == 1


def test_a_task_finds_its_run(questions_file, tmp_path, monkeypatch) -> None:
    met = []
    monkeypatch.setattr("lm_eval_leakage.harness.tasks.task.LeakageTask.meet", lambda self, found: met.append(found))
    with pytest.raises((AttributeError, RuntimeError)):  # since the task never met the model
        evaluate(
            FakeLM(by_hash),
            questions_file([GOOD]),
            evaluation_tracker=EvaluationTracker(output_path=str(tmp_path)),
        )
    (found,) = met
    assert isinstance(found.lm, FakeLM)
    assert list(found.tasks) == [TASK]
    assert found.output_path == tmp_path
    assert found.model is None


def test_requests_built_for_no_model_are_refused(questions_file) -> None:
    (task,) = loaded(questions_file([GOOD]))["tasks"].values()
    task.build_all_requests()
    with pytest.raises(RuntimeError, match="its requests were built for another model or for none"):
        task.check_met(FakeLM(by_hash))


@pytest.mark.model  # starts an interpreter
def test_the_order_of_imports_does_not_matter(tmp_path: Path) -> None:
    script = """
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager
from tests.harness.seams.test_call_frames import FakeLM, by_hash, loaded, LONG, GOOD, TASK
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
from lm_eval_leakage.harness.seams.patching import Refusal, hide_tracebacks
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
