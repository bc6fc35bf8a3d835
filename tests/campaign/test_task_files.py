"""Which of the user's own files a task is made of, and whether they were changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.jobs.manifest import changed_files, digests_now

YAML = """include: _shape.yaml
doc_to_text: !function words.prompt
dataset_kwargs: {data_files: {test: "%s"}}
description: "A long text. With points."
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "_shape.yaml").write_text("output_type: multiple_choice\n")
    (tmp_path / "words.py").write_text("def prompt(doc):\n    return doc['question']\n")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    (tmp_path / "other.jsonl").write_text("{}\n")
    file = tmp_path / "quiz.yaml"
    file.write_text(YAML % (tmp_path / "rows.jsonl"))
    return file


def test_a_task_is_made_of_its_yaml_what_that_includes_its_code_and_its_data(task: Path) -> None:
    assert {Path(name).name for name in digests_now([task])} == {"quiz.yaml", "_shape.yaml", "words.py", "rows.jsonl"}


@pytest.mark.parametrize("name", ["quiz.yaml", "_shape.yaml", "words.py", "rows.jsonl"])
def test_each_of_them_is_named_once_it_was_changed_or_is_gone(task: Path, name: str) -> None:
    before, file = digests_now([task]), task.with_name(name)
    assert changed_files(before) == []
    file.write_text(file.read_text() + "\n")
    assert changed_files(before) == [str(file)]
    file.unlink()
    assert changed_files(before) == [str(file)]


def test_a_yaml_file_that_cannot_be_read_is_a_file_as_any_other(task: Path) -> None:
    task.write_text("a: [b")
    assert [Path(name).name for name in digests_now([task])] == ["quiz.yaml"]
