"""Benchmarks of one name with other rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.clean_sets import clean_sets
from lm_eval_leakage.results.leaderboard import leaderboard
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.results.tables import write
from tests.cli.conftest import typed  # noqa: F401 (a fixture)
from tests.results.harness_files import answered, audited, row, write_run

N = 40
ORDERS = [[[str(value), "False"]] for value in (-1.0, *[-3.0] * 23)]
EVEN = [[[str(-3.0 - place), "False"]] for place in range(24)]
OLD, NEW = range(N), range(1000, 1000 + N)
DRAWN = {"published_orders": "drawn: by the author"}


def lines_of(numbers: Sequence[int], start: int = 0) -> list[dict[str, Any]]:
    return [answered(start + i, row(number), True) for i, number in enumerate(numbers)]


def audit_of(numbers: Sequence[int], is_seen: bool, start: int = 0, **more: Any) -> list[dict[str, Any]]:
    """An audit of questions, all of which are flagged if the model has seen them."""
    return [{"doc_id": start + i, **audited(row(number), is_seen, **more)} for i, number in enumerate(numbers)]


def written(
    folder: Path, numbers: Sequence[int], is_seen: bool, model: str = "m", task: str = "quiz", groups: Any = None
) -> None:
    write_run(folder, model, {task: lines_of(numbers)}, groups=groups)
    write_run(folder, model, {f"{task}_leakage_perm": audit_of(numbers, is_seen)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clean benchmark and a contaminated one of the same name."""
    written(tmp_path / "a", OLD, False)
    written(tmp_path / "b", NEW, True)
    return tmp_path


def named(annotation: Annotation) -> dict[str, tuple[int, int, int]]:
    return {
        row_of_task.task: (row_of_task.n, row_of_task.n_tested, sum(row_of_task.flags.values()))
        for row_of_task in annotation.rows
        if row_of_task.level != "subject"
    }


def said(annotation: Annotation) -> str:
    return "\n".join(map(str, annotation.problems))


def test_benchmarks_of_one_name_have_rows_of_their_own_each_from_its_own_audit(folder: Path) -> None:
    (annotation,) = annotate([folder])
    first, second = named(annotation)
    assert first != second
    assert all(name.startswith("quiz [") for name in (first, second))
    assert sorted(named(annotation).values()) == [(N, N, 0), (N, N, N)]
    assert (
        f"quiz is the name of 2 benchmarks with other rows, which are judged apart: '{first}' (40 questions"
        in said(annotation)
    )
    assert "ignored" not in said(annotation)
    assert {question.task for question in annotation.questions} == {first, second}
    assert {question.benchmark for question in annotation.audited_questions} == {first, second}


def test_a_name_follows_from_the_rows_alone(folder: Path, tmp_path: Path) -> None:
    (annotation,) = annotate([folder])
    written(tmp_path / "more", OLD, True, model="other")
    again = annotate([folder, tmp_path / "more"])
    assert {*named(again[0])} == {*named(annotation)}
    assert {*named(again[1])} < {*named(annotation)}


@pytest.mark.parametrize("command", [["annotate", "--dry_run"], ["annotate", "--dry_run", "--format", "json"]])
def test_fail_on_sees_both(folder: Path, typed, command: Sequence[str]) -> None:  # noqa: F811
    code, _, err = typed(*command, str(folder), "--fail-on", "flagged_rate>0.5")
    assert code == 1
    assert err.count("fails: ") == 1
    code, _, err = typed(*command, str(folder), "--fail-on", "flagged_rate>=0")
    assert code == 1
    assert err.count("fails: ") == 2


def test_a_leaderboard_has_a_board_for_each(folder: Path) -> None:
    written(folder / "c", NEW, False, model="other")
    board = leaderboard(annotate([folder]))
    assert sorted(len(board_of_rows) for board_of_rows in board.boards) == [1, 2]
    assert [board_of_rows[0].n_common for board_of_rows in board.boards] == [N, N]
    assert {standing.row.model for standing in max(board.boards, key=len)} == {"m", "other"}


def test_two_models_that_were_asked_other_rows_are_not_on_one_board(tmp_path: Path) -> None:
    written(tmp_path / "a", OLD, False)
    written(tmp_path / "b", NEW, True, model="other")
    board = leaderboard(annotate([tmp_path]))
    assert [len(board_of_rows) for board_of_rows in board.boards] == [1, 1]


def test_the_page_names_both_and_the_copies_keep_the_names_of_their_files(folder: Path) -> None:
    (annotation,) = annotate([folder])
    page = render_page([annotation])
    assert all(name in page for name in named(annotation))
    for file in write(annotation, "1", folder / "out"):
        if file.suffix == ".json":
            content = json.loads(file.read_text())
            assert "flagged_rate,leakage" in content["results"]["quiz"]


def test_a_clean_task_is_refused_with_both_names(folder: Path) -> None:
    annotations = annotate([folder])
    with pytest.raises(ValueError, match=r"quiz is the name of several benchmarks with other rows \('quiz \["):
        clean_sets(annotations)


def test_a_run_of_other_rows_without_an_audit_is_not_judged_by_that_of_its_name(tmp_path: Path, typed) -> None:  # noqa: F811
    written(tmp_path / "a", OLD, False)
    write_run(tmp_path / "b", "m", {"quiz": lines_of(NEW)})
    (annotation,) = annotate([tmp_path])
    assert sorted(named(annotation).values()) == [(N, 0, 0), (N, N, 0)]
    assert "no audit of this model has the rows of quiz [" in said(annotation)
    code, _, err = typed("annotate", "--dry_run", str(tmp_path), "--fail-on", "flagged_rate>0.5")
    assert code == 2
    assert "no audit of this model has the rows of quiz [" in err


def test_audits_of_one_name_with_other_rows_are_kept_apart_without_any_run(tmp_path: Path) -> None:
    for place, numbers, is_seen in (("a", OLD, False), ("b", NEW, True)):
        write_run(tmp_path / place, "m", {"quiz_leakage_perm": audit_of(numbers, is_seen)})
    (annotation,) = annotate([tmp_path])
    assert sorted(figures[1:] for figures in named(annotation).values()) == [(N, 0), (N, N)]


def test_an_edited_benchmark_is_another_one_and_shared_questions_count_in_both(tmp_path: Path) -> None:
    edited = [*OLD[:-3], *NEW[:3]]
    written(tmp_path / "a", OLD, False)
    written(tmp_path / "b", edited, True)
    (annotation,) = annotate([tmp_path])
    assert sorted(named(annotation).values()) == [(N, N, 0), (N, N, N)]


@pytest.mark.parametrize(
    ("first", "second", "start"),
    [
        (OLD, OLD, 0),  # copied into two folders
        (OLD, OLD[:10], 0),  # with --limit
        (OLD[:20], OLD[20:], 20),  # drawn, without a question in common
        (OLD, OLD[::-1], 0),  # in another order
    ],
)
def test_runs_of_one_benchmark_are_one(
    tmp_path: Path, first: Sequence[int], second: Sequence[int], start: int
) -> None:
    for place, numbers, at in (("a", first, 0), ("b", second, start)):
        write_run(tmp_path / place, "m", {"quiz": lines_of(numbers, at)})
        write_run(tmp_path / place, "m", {"quiz_leakage_perm": audit_of(numbers, True, at)})
    (annotation,) = annotate([tmp_path])
    assert [*named(annotation)] == ["quiz"]
    assert "other rows" not in said(annotation)


def test_rows_that_differ_only_in_fields_beside_the_question_are_one_benchmark(tmp_path: Path) -> None:
    written(tmp_path / "a", OLD, False)
    lines = [answered(i, row(i, source="hub"), True) for i in OLD]
    write_run(tmp_path / "b", "m", {"quiz": lines})
    (annotation,) = annotate([tmp_path])
    assert [*named(annotation)] == ["quiz"]


def test_a_group_with_such_a_member_is_kept_apart_with_all_of_its_members(tmp_path: Path) -> None:
    for place, numbers, is_seen in (("a", OLD, False), ("b", NEW, True)):
        logs = {"quiz_x": lines_of(numbers), "quiz_y": lines_of(range(500, 510))}
        write_run(tmp_path / place, "m", logs, groups={"quiz": [*logs]})
        audits = {"quiz_x_leakage_perm": audit_of(numbers, is_seen)}
        audits["quiz_y_leakage_perm"] = audit_of(range(500, 510), False)
        write_run(tmp_path / place, "m", audits, groups={"quiz_leakage_perm": [*audits]})
    (annotation,) = annotate([tmp_path])
    whole = {name: counts for name, counts in named(annotation).items() if name.startswith("quiz [")}
    assert sorted(whole.values()) == [(N + 10, N + 10, 0), (N + 10, N + 10, N)]
    assert {row_of_task.group for row_of_task in annotation.rows if row_of_task.level == "task"} == {*whole}
    assert len(named(annotation)) == 6


def test_groups_that_cannot_be_distinguished_are_refused(tmp_path: Path) -> None:
    for place, first, second in (("a", OLD, OLD), ("b", OLD, NEW), ("c", NEW, NEW)):
        logs = {"quiz_x": lines_of([number + 100 for number in first]), "quiz_y": lines_of(second)}
        write_run(tmp_path / place, "m", logs, groups={"quiz": [*logs]})
    with pytest.raises(ValueError, match="is the name of several benchmarks with other rows here"):
        annotate([tmp_path])
