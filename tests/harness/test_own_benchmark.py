"""The task that `check` makes of a file of questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.harness.own_benchmark import write_task

OPTIONS = ["red", "blue", "lime"]


def written(folder: Path, *rows: dict[str, Any]) -> tuple[str, list[Any]]:
    """Why there is no accuracy, and the right options of the rows."""
    file = folder / "quiz.jsonl"
    file.write_text("".join(json.dumps({"question": f"Which of {n}?"} | row) + "\n" for n, row in enumerate(rows)))
    task = write_task(file, folder / "tasks", "quiz")
    lines = (folder / "tasks" / f"{task.name}.jsonl").read_text().splitlines()
    return task.unscored, [json.loads(line).get("answer") for line in lines]


def marked(*labels: int, field: str = "mc1_targets") -> dict[str, Any]:
    return {field: {"choices": OPTIONS, "labels": labels}}


def test_marks_name_the_right_options(tmp_path: Path) -> None:
    assert written(tmp_path, marked(0, 1, 0), marked(1, 0, 0), marked(0, 0, 1)) == ("", [1, 0, 2])


def test_several_right_options_and_none_are_kept_apart_with_their_rows(tmp_path: Path) -> None:
    several, none = marked(1, 1, 0, field="mc2_targets"), {"choices": OPTIONS, "answer": None}
    why, answers = written(tmp_path, several, {"options": OPTIONS, "label": 2}, none, several)
    assert answers == [None, 2, None, None]
    assert why == (
        "of 4 questions, 1 has no right answer (row 3) and 2 have several right answers (row 1, 4); give each one, or "
        "leave these out"
    )


def test_what_names_no_option_is_refused_with_its_row_and_field(tmp_path: Path) -> None:
    rows = [{"choices": OPTIONS, "label": 2}, {"choices": OPTIONS, "label": "hard"}]
    with pytest.raises(ValueError, match="row 2 has 'hard' as label"):
        written(tmp_path, *rows)


def test_rows_without_a_question_that_can_be_asked_are_counted_and_named_with_their_reasons(tmp_path: Path) -> None:
    many, empty = [f"word {n}" for n in range(27)], ["red", "blue", ""]
    usual = {"choices": OPTIONS, "answer": 0}
    bad = [{"choices": many, "answer": 26}, {"choices": empty, "answer": 0}, {"choices": ["red"], "answer": 0}]
    rows = [
        {"question": f"Which of {n}?"} | row for n, row in enumerate([usual, *bad, *[bad[0]] * 4, {"a": 1}, usual])
    ]
    (tmp_path / "quiz.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = write_task(tmp_path / "quiz.jsonl", tmp_path / "tasks", "quiz")
    assert task.unscored == ""
    assert task.unread == (
        "8 of 10 rows are left out: 27 options, but labels end at Z; the limit is 26 (row 2, 5, 6, ...); option C is "
        "empty; it must have text (row 3); it has 1 option; at least 2 are needed (row 4); and 1 row for other reasons"
    )
    assert len((tmp_path / "tasks" / "quiz.jsonl").read_text().splitlines()) == 2


def test_a_question_may_have_as_many_options_as_there_are_letters(tmp_path: Path) -> None:
    rows = [{"choices": [f"word {n} {row}" for n in range(26)], "answer": row} for row in range(26)]
    assert written(tmp_path, *rows) == ("", [*range(26)])


def test_a_file_without_any_such_row_is_refused_with_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"can be read \(2 of 2 rows are left out: 27 options, .* \(row 1, 2\)\); give"
    ):
        written(tmp_path, *[{"choices": [f"word {n}" for n in range(27)], "answer": 0}] * 2)
