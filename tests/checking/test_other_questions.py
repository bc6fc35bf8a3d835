"""The command that a run and an audit of other questions get runs as it is printed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from lm_eval_leakage.harness.named_model import NamedModel, one_loaded_model
from lm_eval_leakage.harness.saved_run import run_saved
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.logs.runs import find_runs
from tests.checking.conftest import NamedFake, OptionOrders, Typed, questions
from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.written_tasks import LETTERED, write_task

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]

DOCS = questions(100)
RUN, AUDITED = range(40), range(50, 90)


@pytest.fixture
def folder(fakes: type[NamedFake], tmp_path: Path) -> Path:
    """The first rows of a contaminated benchmark were run, others audited."""
    fakes.score = OptionOrders(DOCS, memory=(4.0, 0.0))
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks", "quiz", DOCS, **LETTERED)
    shelf, who = TaskShelf([str(tmp_path / "tasks")]), NamedModel("fake", {"pretrained": "m"})
    for name, rows, place in (("quiz", RUN, "runs"), ("quiz_leakage_perm", AUDITED, "audits")):
        with one_loaded_model() as kept:
            run_saved(who, shelf.load(name, {}), {name: rows}, tmp_path / place, kept)
    return tmp_path


def test_it_audits_exactly_the_questions_of_the_run(
    folder: Path,
    typed: Typed,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    code, _, err = typed("annotate", "runs", "--audit", "audits", "--dry_run", "--fail-on", "evidence")
    assert code == 2
    command = re.search(r"this audits exactly those of the run: (.*)", err)
    assert command is not None
    code, out, err = typed(*shlex.split(command[1])[1:])
    assert (code, "evidence" in out) == (0, True), err
    (verdict,) = json.loads(Path("leakage/verdicts.json").read_text())["verdicts"]
    assert (verdict["task"], verdict["n"]) == ("quiz", len(RUN))
    (audit,) = [run for run in find_runs([Path("leakage")], []) if "quiz_leakage_perm" in run.logs]
    doc_ids = {json.loads(line)["doc_id"] for line in audit.logs["quiz_leakage_perm"].read_text().splitlines()}
    assert doc_ids == {*RUN}
    code, out, err = typed("annotate", "runs", "--audit", "leakage", "--dry_run", "--fail-on", "evidence")
    assert code == 1
    assert "other questions" not in err
