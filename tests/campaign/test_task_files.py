"""Which files a task is made of, and which of them have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.jobs.manifest import changed_files, digests_now

YAML = """
task: quiz
dataset_path: {path}
dataset_kwargs:
  data_dir: rows
  data_files: ["parts/*.jsonl", names.jsonl]
doc_to_text: !function code.prompts.text
doc_to_choice: !function utils.choices
"""
MODULE = """
import json
from . import near
from .near import one
import below.inner
from below import deep as deeper

ROWS = "parts/words.txt"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    files = {
        "quiz.yaml": YAML.format(path="json"),
        "utils.py": "x = 1",
        "code/prompts.py": MODULE,
        "code/near.py": "",
        "code/below/__init__.py": "import unknown_module",
        "code/below/inner.py": "def broken(:",
        "code/below/deep.py": "from .inner import x",
        "code/parts/words.txt": "w",
        "code/unused.py": "",
        "parts/a.jsonl": "{}",
        "names.jsonl": "{}",
        "rows/inner/b.csv": "q",
        "hub/set/c.jsonl": "{}",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def names(folder: Path) -> set[str]:
    return {str(Path(file).relative_to(folder)) for file in digests_now([folder / "quiz.yaml"])}


OF_CODE = {f"code/{name}.py" for name in ("prompts", "near", "below/__init__", "below/inner", "below/deep")}
OF_CODE |= {"quiz.yaml", "utils.py", "code/parts/words.txt"}


def test_a_task_is_made_of_its_settings_its_rows_and_the_code_that_its_modules_import(folder: Path) -> None:
    assert names(folder) == OF_CODE | {"parts/a.jsonl", "names.jsonl", "rows/inner/b.csv"}


def test_rows_in_a_folder_that_is_the_data_set_are_files_of_the_task(folder: Path) -> None:
    (folder / "quiz.yaml").write_text(YAML.format(path="hub/set"))
    assert names(folder) == OF_CODE | {"hub/set/c.jsonl", "names.jsonl"}


def test_files_that_are_named_like_those_of_a_data_set_of_the_hub_are_not_files_of_the_task(folder: Path) -> None:
    (folder / "quiz.yaml").write_text(YAML.format(path="other/set"))
    assert not names(folder) & {"parts/a.jsonl", "rows/inner/b.csv"}


@pytest.mark.parametrize("name", ["code/below/deep.py", "rows/inner/b.csv", "parts/a.jsonl", "parts/new.jsonl"])
def test_a_file_that_was_edited_added_or_removed_is_named(folder: Path, name: str) -> None:
    before = digests_now([folder / "quiz.yaml"])
    assert changed_files(before) == []
    (folder / name).write_text("# another")
    assert changed_files(before) == [str(folder / name)]
    (folder / name).unlink()
    assert changed_files(before) == ([] if "new" in name else [str(folder / name)])
