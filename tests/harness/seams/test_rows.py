"""Rows and prompts are those of a task's files as they are now, whatever `datasets` and Python remember."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm_eval_leakage.harness.seams.rows import import_anew, read_rows_anew
from lm_eval_leakage.harness.task_shelf import TaskShelf
from tests.written_tasks import write_task

BEFORE, AFTER = ["one", "two"], ["six", "ten"]  # of equal lengths
DOCS = [{"question": f"Which {n}?", "choices": list("abcd"), "answer": n % 4} for n in range(8)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    read_rows_anew()


def with_its_time(file: Path, write: Callable[[], object]) -> None:
    """Writes a file again with its size and modification time kept."""
    before = file.stat()
    write()
    assert file.stat().st_size == before.st_size
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def as_json(file: Path, rows: list[str]) -> None:
    file.write_text("".join(json.dumps({"q": row}) + "\n" for row in rows))


def as_csv(file: Path, rows: list[str]) -> None:
    file.write_text("\n".join(["q", *rows]) + "\n")


def as_text(file: Path, rows: list[str]) -> None:
    file.write_text("\n".join(rows) + "\n")


def as_parquet(file: Path, rows: list[str]) -> None:
    pq.write_table(pa.table({"q": rows}), file, compression="none")


@pytest.mark.parametrize(
    ("kind", "write"), [("json", as_json), ("csv", as_csv), ("text", as_text), ("parquet", as_parquet)]
)
@pytest.mark.parametrize("named", ["file", "list", "splits", "pattern", "folder", "link"])
def test_a_file_that_was_edited_with_size_and_time_kept_is_read_again(
    tmp_path: Path, kind: str, write: Callable[[Path, list[str]], None], named: str
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    file, other, link = (folder / f"{name}.{kind}" for name in ("first", "second", "link"))
    write(file, BEFORE)
    write(other, ["and"])
    if named == "link":
        link.symlink_to(file)
    how = {
        "file": {"data_files": str(file)},
        "list": {"data_files": [str(other), str(file)]},
        "splits": {"data_files": {"train": str(file), "test": str(other)}},
        "pattern": {"data_files": str(folder / f"f*.{kind}")},
        "folder": {"data_dir": str(folder)},
        "link": {"data_files": str(link)},
    }[named]

    def rows() -> list[str]:
        loaded = datasets.load_dataset(kind, split="train", **how)
        return [*loaded[loaded.column_names[0]]]

    assert {*BEFORE} <= {*rows()}
    with_its_time(file, lambda: write(file, AFTER))
    again = rows()
    assert {*AFTER} <= {*again}
    assert not {*BEFORE} & {*again}


UTILS = """
def named(doc):
    return {{"question": doc["question"] + {text!r}}}


def process_docs(rows):
    return rows.map(named)
"""
HELPED = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from wording_of_rows import named


def process_docs(rows):
    return rows.map(named)
"""


@pytest.mark.parametrize("is_kept", [False, True], ids=["edited", "edited with size and time kept"])
@pytest.mark.parametrize("is_helped", [False, True], ids=["in the module", "in one that it imports"])
def test_rows_that_a_tasks_function_prepares_are_those_of_the_function_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_helped: bool, is_kept: bool
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.delitem(sys.modules, "wording_of_rows", raising=False)
    folder = tmp_path / "tasks"
    folder.mkdir()
    write_task(folder, "mapped", DOCS, more="process_docs: !function utils.process_docs\n")
    module = folder / ("wording_of_rows.py" if is_helped else "utils.py")
    if is_helped:
        (folder / "utils.py").write_text(HELPED)

    def write(text: str) -> None:
        module.write_text(UTILS.format(text=text))

    def first() -> str:
        import_anew([module, folder / "utils.py"])
        (task,) = TaskShelf([str(folder)]).load("mapped", {}).leaves.values()
        return str(task.eval_docs[0]["question"])

    write(" as it was")
    assert first() == "Which 0? as it was"
    if is_kept:
        with_its_time(module, lambda: write(" as it IS."))
    else:
        write(" as it IS.")
    assert first() == "Which 0? as it IS."
    write(" as it was")
    assert first() == "Which 0? as it was"
