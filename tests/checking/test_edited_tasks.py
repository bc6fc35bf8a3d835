"""A check asks the rows and prompts that a task has now, whatever is edited, and however it keeps its time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.steps import StepStatus
from tests.checking.conftest import NamedFake, checked, questions, statuses
from tests.written_tasks import OPTIONS, write_task

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks")]

DOCS = questions(30)
UTILS = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from wording_of_tasks.ends import put


def text(doc):
    return put(doc) + "".join(f"\\n{x}. {o}" for x, o in zip("ABCD", doc["choices"])) + "\\nAnswer:"


def question(doc):
    return {"question": put(doc)}


def process_docs(rows):
    return rows.map(question)
"""
ENDS = 'def put(doc):\n    return doc["question"] + " (as IT was)"\n'
TEXT = '"{{question}}' + OPTIONS + '\\nAnswer:"'
LETTERS = '["A", "B", "C", "D"]'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a task whose prompts are made by a module that another one imports."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setattr("sys.path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("wording_of_tasks")]:
        monkeypatch.delitem(sys.modules, name)
    tasks = tmp_path / "tasks"
    (tasks / "wording_of_tasks").mkdir(parents=True)
    (tasks / "wording_of_tasks" / "__init__.py").write_text("")
    (tasks / "wording_of_tasks" / "ends.py").write_text(ENDS)
    (tasks / "utils.py").write_text(UTILS)
    write_task(tasks, "quiz", DOCS, TEXT, LETTERS, more="process_docs: !function utils.process_docs\n")
    return tmp_path


def edited(file: Path, before: str, after: str, is_kept: bool) -> None:
    was = file.stat()
    file.write_text(file.read_text().replace(before, after))
    if is_kept:
        assert file.stat().st_size == was.st_size
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def of_quiz(folder: Path, **given: Any) -> Any:
    return checked(folder, **{"tasks": "quiz", "include_path": folder / "tasks"} | given)


Edit = Callable[[Path, bool], None]
EDITS: dict[str, tuple[str, str, str, str]] = {
    "rows": ("quiz.jsonl", "Which of 0-", "What of 0--", "What of 0--"),
    "a module that a module imports": ("wording_of_tasks/ends.py", "as IT was", "as IT IS.", "as IT IS."),
    "settings": ("quiz.yaml", "Answer:", "Reply::", "Reply::"),
}


@pytest.mark.parametrize("is_kept", [False, True], ids=["edited", "with size and time kept"])
@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_asked_again_as_it_is(
    fakes: type[NamedFake], folder: Path, edit: str, is_kept: bool
) -> None:
    name, before, after, shown = EDITS[edit]
    of_quiz(folder)
    edited(folder / "tasks" / name, before, after, is_kept)
    fakes.requests.clear()
    again = of_quiz(folder)
    assert statuses(again)["accuracy"] == StepStatus.TO_RUN
    assert fakes.requests
    asked_for_accuracy = [context for context, _ in fakes.requests if "Answer:" in context or "Reply::" in context]
    assert all(shown in context for context in asked_for_accuracy[: len(DOCS)])
    fresh = of_quiz(folder, out="fresh")
    assert [verdict.accuracy for verdict in again.verdicts] == [verdict.accuracy for verdict in fresh.verdicts]
    assert statuses(of_quiz(folder, dry_run=True))["accuracy"] == StepStatus.THERE


def test_given_runs_of_other_prompts_are_not_used_for_the_edited_task(fakes: type[NamedFake], folder: Path) -> None:
    task = folder / "tasks" / "quiz.yaml"
    task.write_text(task.read_text().replace(f"doc_to_text: {TEXT}", "doc_to_text: !function utils.text"))
    of_quiz(folder, out="earlier")
    edited(folder / "tasks" / "wording_of_tasks" / "ends.py", "as IT was", "as IT IS.", is_kept=True)
    runs = folder / "earlier" / "runs"
    assert statuses(of_quiz(folder, out="later", runs=runs, dry_run=True))["accuracy"] == StepStatus.TO_RUN


def test_a_task_whose_functions_were_imported_again_is_the_same_one(fakes: type[NamedFake], folder: Path) -> None:
    def put(before: str, after: str) -> None:
        edited(folder / "tasks" / "wording_of_tasks" / "ends.py", before, after, is_kept=True)
        assert statuses(of_quiz(folder, dry_run=True))["accuracy"] == (
            StepStatus.TO_RUN if after == "as IT IS." else StepStatus.THERE
        )

    of_quiz(folder)
    put("as IT was", "as IT IS.")
    put("as IT IS.", "as IT was")
