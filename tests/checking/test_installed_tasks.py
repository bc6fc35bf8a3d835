"""Every multiple-choice benchmark that lm_eval installs has a plan, or one sentence that says why it has none."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from lm_eval_leakage.harness.auditable import Coverage
from lm_eval_leakage.jobs.check import check
from tests.checking.conftest import NamedFake
from tests.installed_tasks import InstalledTask, coverage_of, given_rows, one_of_each_family


def planned(task: InstalledTask, rows: list[dict[str, object]], folder: Path) -> str:
    """The status of the audit of option orders in the plan of a check, or the sentence that it ends with."""
    with given_rows(task, rows):
        try:
            outcome = check(
                "fake", "pretrained=m", task.name, include_path=task.file.parent, output_path=folder, dry_run=True
            )
        except ValueError as error:
            return str(error)
    assert outcome.plan is not None
    return next(step.status for step in outcome.plan.steps if step.what == "option orders")


@pytest.mark.model  # minutes
@pytest.mark.usefixtures("only_given_tasks")
def test_a_task_of_each_family_has_a_plan_or_one_sentence(fakes: type[NamedFake], tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    statuses = []
    for task in one_of_each_family():
        rows, status, reason = coverage_of(task)
        sentence = planned(task, rows, tmp_path)
        statuses.append(status)
        assert len(f"{reason}{sentence}".splitlines()) == 1, (task.name, reason, sentence)
        is_planned = sentence in ("to run", "not possible")
        assert is_planned or sentence.startswith(f"{task.name} cannot be "), (task.name, sentence)
        assert status != Coverage.REFUSED or reason in sentence, (task.name, reason, sentence)
    assert statuses.count(Coverage.UNKNOWN) < len(statuses) / 3  # most rows are like those of the task's data set
    assert {Coverage.COVERED, Coverage.REFUSED} < {*statuses}
