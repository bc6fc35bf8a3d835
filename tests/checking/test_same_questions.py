"""A check's words, numbers and exit follow from its own questions: a folder with a past says what a fresh one says, up
to the number of its look (`test_looks_so_far`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.own_benchmark import write_task
from lm_eval_leakage.jobs.steps import StepStatus
from tests.checking.conftest import NamedFake, OptionOrders, checked, questions, statuses, written

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("only_given_tasks", "fakes")]

DOCS, MANY = questions(60), questions(160)
Docs = Sequence[dict[str, Any]]


def other_keys(docs: Docs) -> Docs:
    return [doc | {"answer": (doc["answer"] + 1) % 4} for doc in docs]


CHANGES: dict[str, Callable[[Docs], Docs]] = {
    "other right answers": other_keys,
    "more questions": lambda docs: [*docs, *questions(20, seed=4)],
    "another order of the questions": lambda docs: docs[::-1],
    "another order of options": lambda docs: [doc | {"choices": doc["choices"][::-1]} for doc in docs],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_edited_is_judged_as_in_a_fresh_folder(tmp_path: Path, change: str) -> None:
    written(tmp_path, DOCS)
    checked(tmp_path)
    written(tmp_path, CHANGES[change](DOCS))
    again, fresh = checked(tmp_path), checked(tmp_path, out="fresh")
    assert again.verdicts == fresh.verdicts
    assert statuses(again)["accuracy"] == StepStatus.TO_RUN
    restored = written(tmp_path, DOCS)
    assert checked(tmp_path).verdicts == checked(tmp_path, out="restored", tasks=str(restored)).verdicts


@pytest.mark.parametrize("then", [{"questions": 100}, {"questions": 130}, {"questions": 110, "seed": 3}])
def test_another_draw_is_judged_as_in_a_fresh_folder(tmp_path: Path, then: dict[str, int]) -> None:
    written(tmp_path, MANY)
    checked(tmp_path, questions=110)
    (again,), (fresh,) = checked(tmp_path, **then).verdicts, checked(tmp_path, out="fresh", **then).verdicts
    assert (again.pvalue, again.flagged, again.accuracy) == (fresh.pvalue, fresh.flagged, fresh.accuracy)
    assert (again.n, again.look, fresh.look) == (then["questions"], 2, 1)


def test_older_verdicts_in_the_folder_do_not_change_a_gate(fakes: type[NamedFake], tmp_path: Path) -> None:
    """One verdict at p = .005 is evidence; adjusted for four it would not be."""
    written(tmp_path, DOCS)
    for name in ("one", "two", "three"):
        other = written(tmp_path, questions(40, seed=len(name)), f"{name}.jsonl")
        checked(tmp_path, tasks=str(other))
    fakes.score = staticmethod(OptionOrders(DOCS, (1.3, 0.7)))
    given = {"model_args": "pretrained=n", "fail_on": "evidence"}
    again, fresh = checked(tmp_path, **given), checked(tmp_path, out="fresh", **given)
    assert len(again.others) == 3
    assert (again.verdicts, again.failed) == (fresh.verdicts, fresh.failed)
    assert again.verdicts[0].pvalue == fresh.verdicts[0].pvalue


def test_unseen_questions_that_changed_are_asked_again(tmp_path: Path) -> None:
    written(tmp_path, DOCS)
    unseen = written(tmp_path, questions(60, seed=5), "unseen.jsonl")
    checked(tmp_path, unseen=unseen)
    written(tmp_path, questions(60, seed=6), "unseen.jsonl")
    again = checked(tmp_path, unseen=unseen, dry_run=True)
    assert statuses(again)["unseen questions: option orders"] == StepStatus.TO_RUN
    assert statuses(again)["option orders"] == StepStatus.THERE
    done, fresh = checked(tmp_path, unseen=unseen), checked(tmp_path, out="fresh", unseen=unseen)
    assert (done.verdicts, statuses(done)) == (fresh.verdicts, statuses(again))
    assert not checked(tmp_path, unseen=unseen).plan.to_run


@pytest.fixture
def task(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The file of a task that leaves the number of its examples to the harness, and what names it."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    write_task(written(tmp_path, DOCS), tasks, "quiz")
    file = tasks / "quiz.yaml"
    assert "num_fewshot: 0\n" in file.read_text()
    file.write_text(file.read_text().replace("num_fewshot: 0\n", ""))
    return file, {"tasks": "quiz", "include_path": tasks}


def test_a_file_that_was_edited_where_no_row_shows_it_is_believed_by_no_later_command(
    tmp_path: Path, task: tuple[Path, dict[str, Any]]
) -> None:
    """How answers are scored may have changed."""
    file, given = task
    first = checked(tmp_path, **given)
    text = file.read_text()
    for edited in (f"# a comment\n{text}", text):
        file.write_text(edited)
        again = checked(tmp_path, **given)
        assert {statuses(again)[what] for what in ("accuracy", "option orders")} == {StepStatus.TO_RUN}
        assert again.verdicts == first.verdicts
        assert not checked(tmp_path, **given).plan.to_run


def test_a_task_whose_prompt_or_key_was_edited_is_asked_again(
    tmp_path: Path, task: tuple[Path, dict[str, Any]]
) -> None:
    file, given = task
    checked(tmp_path, **given)
    for word, other in (("Answer:", "The answer:"), ("doc_to_target: ", "doc_to_target: 1 #")):
        assert word in file.read_text()
        file.write_text(file.read_text().replace(word, other))
        again, fresh = checked(tmp_path, **given), checked(tmp_path, out=f"fresh {other[:4]}", **given)
        assert statuses(again)["accuracy"] == StepStatus.TO_RUN
        assert again.verdicts == fresh.verdicts
        assert checked(tmp_path, **given, dry_run=True).plan.steps[0].status == StepStatus.THERE


@pytest.mark.parametrize("metadata", [{"layouts": "mixed"}, {"move": "movable"}, {"orders": 12}])
def test_an_audit_with_other_settings_is_asked_again_and_the_first_is_taken_back(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    written(tmp_path, DOCS)
    first = checked(tmp_path)
    again, fresh = checked(tmp_path, metadata=metadata), checked(tmp_path, out="fresh", metadata=metadata)
    possible = {what for what, status in statuses(first).items() if status == StepStatus.TO_RUN}
    assert {what for what in possible if statuses(again)[what] == StepStatus.TO_RUN} == {"option orders"}
    figures = [
        [(verdict.verdict, verdict.pvalue, verdict.flagged) for verdict in outcome.verdicts]
        for outcome in (again, fresh)
    ]
    assert figures[0] == figures[1]
    restored = checked(tmp_path)
    assert not restored.plan.to_run
    assert restored.verdicts == first.verdicts
