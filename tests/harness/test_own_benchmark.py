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
    task = write_task(file, folder / "tasks")
    lines = (folder / "tasks" / f"{task.name}.jsonl").read_text().splitlines()
    return task.unscored, [json.loads(line).get("answer") for line in lines]


def marked(*labels: int, field: str = "mc1_targets") -> dict[str, Any]:
    return {field: {"choices": OPTIONS, "labels": labels}}


def test_marks_name_the_right_options(tmp_path: Path) -> None:
    assert written(tmp_path, marked(0, 1, 0), marked(1, 0, 0), marked(0, 0, 1)) == ("", [1, 0, 2])


def test_several_right_options_and_none_are_told_apart_with_their_rows(tmp_path: Path) -> None:
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
