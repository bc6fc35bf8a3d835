"""The settings that make a reported accuracy are those of its run: examples, and the system instruction."""

from __future__ import annotations

from pathlib import Path

import pytest
from lm_eval import simple_evaluate

from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.jobs.steps import StepStatus
from tests.checking.conftest import GivenTasksOnly, NamedFake, checked, questions, statuses, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]
SHOTS = 2


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder with `quiz`, whose examples are other questions, and which leaves their number to the harness."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    write_task(written(tmp_path, questions(30)), folder, "quiz")
    examples = written(folder, questions(10, seed=8), "examples.jsonl")
    file, data_files = folder / "quiz.yaml", "\n  data_files:\n"
    assert data_files in file.read_text()
    text = file.read_text().replace("num_fewshot: 0\n", "fewshot_split: train\n")
    file.write_text(text.replace(data_files, f"{data_files}    train: {examples}\n"))
    return folder


def test_the_accuracy_is_that_of_the_harness_with_as_many_examples_and_audits_have_none(
    fakes: type[NamedFake], tmp_path: Path, tasks: Path
) -> None:
    given = {"tasks": "quiz", "include_path": tasks, "questions": "all"}
    outcome = checked(tmp_path, num_fewshot=SHOTS, **given)
    contexts = [context for context, continuation in fakes.requests if len(continuation) == 2]
    assert {context.count("Which of") for context in contexts if "Answer:" in context} >= {1 + SHOTS}
    orders = [context for context, continuation in fakes.requests if continuation.startswith(" first ")]
    assert {context.count("Which of") for context in orders} <= {0, 1}
    manager = GivenTasksOnly(include_path=str(tasks))
    results = simple_evaluate(
        model="fake", model_args="pretrained=m", tasks=["quiz"], num_fewshot=SHOTS, task_manager=manager
    )
    assert outcome.verdicts[0].accuracy == results["results"]["quiz"]["acc,none"]
    without = checked(tmp_path, dry_run=True, **given)
    assert (statuses(without)["accuracy"], statuses(without)["option orders"]) == (StepStatus.TO_RUN, StepStatus.THERE)
    again = checked(tmp_path, dry_run=True, num_fewshot=SHOTS, **given)
    assert not again.plan.to_run


def test_another_system_instruction_is_another_model(tmp_path: Path) -> None:
    written(tmp_path, questions(30))
    checked(tmp_path, system_instruction="Be brief.")
    assert not checked(tmp_path, system_instruction="Be brief.", dry_run=True).plan.to_run
    assert statuses(checked(tmp_path, dry_run=True))["accuracy"] == StepStatus.TO_RUN
