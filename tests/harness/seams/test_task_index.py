"""The kept index is lm_eval's own, and nothing but that: whatever is wrong with it, tasks are indexed again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lm_eval.tasks
import pytest
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness import extend_harness
from lm_eval_leakage.harness.seams import task_index
from lm_eval_leakage.harness.seams.task_index import installed_index

INSTALLED = Path(lm_eval.tasks.__file__).parent


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lm_eval_leakage" / "task_index"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder like that of lm_eval's tasks."""
    folder = tmp_path / "tasks"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.yaml").write_text("task: one\ntag: [numbers, all]\nodd: [{a: 1, b: 2.0, c: true, d: null}]\n")
    (folder / "inner" / "two.yaml").write_text("include: ../_shape\ntask: two\nprocess_docs: !function utils.read\n")
    (folder / "inner" / "class.yaml").write_text("task: coded\nclass: !function utils.Coded\n")
    (folder / "group.yaml").write_text("group: both\ntask: [one, two, {task: one, num_fewshot: 2}]\n")
    (folder / "_shape").write_text("output_type: multiple_choice\ntag: all\n")
    return folder


@pytest.fixture
def n_built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of which lm_eval has built the index."""
    built: list[Path] = []
    build = TaskIndex.build

    def counted(paths: list[Path]) -> dict:
        built.extend(paths)
        return build(paths)

    monkeypatch.setattr(TaskIndex, "build", staticmethod(counted))
    return built


def read_anew(folder: Path) -> Any:
    """The index as a process has it that has not read it before: only the last one is remembered."""
    empty = folder.parent / "empty"
    empty.mkdir(exist_ok=True)
    assert installed_index(empty) == {}
    return installed_index(folder)


@pytest.fixture
def kept(cache: Path, tasks: Path, n_built: list[Path]) -> Path:
    """The file with the index of `tasks`."""
    read_anew(tasks)
    n_built.clear()
    return max(cache.iterdir(), key=lambda file: file.stat().st_size)


def test_the_kept_index_of_all_installed_tasks_is_that_of_lm_eval(cache: Path, tmp_path: Path) -> None:
    expected = TaskIndex.build([INSTALLED])
    for folder in (tmp_path, INSTALLED, tmp_path):  # only the last one is remembered, such as by an earlier test
        installed_index(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskIndex, "build", staticmethod(lambda paths: pytest.fail("indexed again")))
        index = installed_index(INSTALLED)
    assert index is not None
    assert len(expected) > 14_000
    assert [*index] == [*expected]  # in its order, too
    assert index == expected
    assert [repr(entry.cfg) for entry in index.values()] == [repr(entry.cfg) for entry in expected.values()]


def test_the_same_files_are_indexed_once(kept: Path, tasks: Path, n_built: list[Path]) -> None:
    index = read_anew(tasks)
    assert n_built == []
    assert index == TaskIndex.build([tasks])
    assert {name: entry.kind.name for name, entry in index.items()} == {
        **{"both": "GROUP", "coded": "PY_TASK", "one": "TASK", "two": "TASK"},
        **{"numbers": "TAG", "all": "TAG"},
    }
    assert index["all"].tags == {"one", "two"}


def add(tasks: Path) -> None:
    (tasks / "inner" / "three.yaml").write_text("task: three\n")


def remove(tasks: Path) -> None:
    (tasks / "one.yaml").unlink()


def edit(tasks: Path) -> None:
    (tasks / "one.yaml").write_text("task: other\n")


def edit_and_keep_size_and_time(tasks: Path) -> None:
    file = tasks / "one.yaml"
    before = file.stat()
    file.write_text(file.read_text().replace("task: one", "task: own"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_what_is_included(tasks: Path) -> None:
    (tasks / "_shape").write_text("output_type: generate_until\n")


def rename(tasks: Path) -> None:
    (tasks / "inner").rename(tasks / "moved")


@pytest.mark.parametrize("change", [add, remove, edit, edit_and_keep_size_and_time, edit_what_is_included, rename])
def test_a_change_of_any_file_is_noticed(kept: Path, tasks: Path, change: Callable[[Path], None]) -> None:
    before = installed_index(tasks)
    change(tasks)
    assert installed_index(tasks) == read_anew(tasks) == TaskIndex.build([tasks]) != before


def test_another_version_of_lm_eval_indexes_again(
    kept: Path, tasks: Path, n_built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_index, "version", lambda _: "0.0")
    read_anew(tasks)
    assert tasks in n_built


@pytest.mark.parametrize("damage", [0, 1, 63, 64, 65, -1])
def test_a_damaged_byte_is_noticed(kept: Path, tasks: Path, n_built: list[Path], damage: int) -> None:
    content = bytearray(kept.read_bytes())
    content[damage] ^= 1
    kept.write_bytes(content)
    assert read_anew(tasks) == TaskIndex.build([tasks])
    assert n_built[0] == tasks


@pytest.mark.parametrize("length", [0, 1, 64, 100])
def test_half_a_file_is_noticed(kept: Path, tasks: Path, n_built: list[Path], length: int) -> None:
    kept.write_bytes(kept.read_bytes()[:length])
    assert read_anew(tasks) == TaskIndex.build([tasks])
    assert n_built[0] == tasks


ROW = ["one", "TASK", "one.yaml", ["all"], {"task": "one"}]
WRONG = {
    "no JSON": b"[",
    "brackets": b"[" * 100_000,
    "no rows": b"7",
    "a row that is none": b"[3]",
    "a field more": [*ROW, 1],
    "a field less": ROW[:4],
    "an unknown kind": [ROW[0], "OTHER", *ROW[2:]],
    "a kind that is none": [ROW[0], ["TASK"], *ROW[2:]],
    "a name that is none": [1, *ROW[1:]],
    "tags that are none": [*ROW[:3], [1], ROW[4]],
    "no tags": [*ROW[:3], None, ROW[4]],
    "settings that are none": [*ROW[:4], "task: one"],
    "a file that does not exist": [*ROW[:2], "other.yaml", *ROW[3:]],
    "a file elsewhere": [*ROW[:2], "/etc/passwd", *ROW[3:]],
    "a file above": [*ROW[:2], "../tasks/one.yaml", *ROW[3:]],
    "a file that is none": [*ROW[:2], 3, *ROW[3:]],
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_content_with_a_right_digest_is_not_trusted_either(
    kept: Path, tasks: Path, n_built: list[Path], monkeypatch: pytest.MonkeyPatch, wrong: bytes | list[object]
) -> None:
    same = SimpleNamespace(digest=lambda: bytes(64), hexdigest=lambda: "kept")
    monkeypatch.setattr(task_index, "blake2b", lambda *_, **__: same)
    file = kept.with_name("kept")

    def index_of(content: bytes) -> Any:
        task_index.installed_index(tasks.parent)
        file.write_bytes(bytes(64) + zlib.compress(content))
        n_built.clear()
        return installed_index(tasks)

    assert [*index_of(json.dumps([ROW]).encode())] == ["one"]  # what is right is taken
    assert n_built == []
    assert index_of(wrong if isinstance(wrong, bytes) else json.dumps([wrong]).encode()) == TaskIndex.build([tasks])
    assert n_built[0] == tasks


@pytest.mark.parametrize("value", ["2026-11-29", "!!set {a, b}", "!!binary aGVsbG8=", ".nan", "{1: a}"])
def test_settings_that_plain_data_cannot_hold_are_not_kept(
    cache: Path, tasks: Path, n_built: list[Path], value: str
) -> None:
    (tasks / "odd.yaml").write_text(f"task: odd\nodd: {value}\n")
    for _ in range(2):
        assert repr(read_anew(tasks)["odd"].cfg) == repr(TaskIndex.build([tasks])["odd"].cfg)
    assert n_built.count(tasks) == 4


@pytest.mark.parametrize("home", ["file", "nowhere"])
def test_a_cache_that_cannot_be_written_costs_only_the_time(
    tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, home: str
) -> None:
    (tmp_path / "file").touch()
    if home == "file":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

        def no_home() -> None:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", no_home)
    assert read_anew(tasks) == read_anew(tasks) == TaskIndex.build([tasks])
    assert not caplog.messages


def test_processes_at_once_get_the_whole_index(cache: Path, tasks: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from lm_eval_leakage.harness.seams.task_index import installed_index\n"
        "print(sorted(installed_index(Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", script, str(tasks)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {process.communicate()[0].strip() for process in running} == {str(sorted(TaskIndex.build([tasks])))}
    (file,) = cache.iterdir()
    assert file.stat().st_size > 64


def test_a_task_manager_lists_what_it_would_without_the_kept_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.yaml").write_text("task: mine\ntag: ai2_arc\n")
    (tmp_path / "arc.yaml").write_text("task: arc_easy\n")
    extend_harness(TaskManager)
    manager = TaskManager(include_path=tmp_path)
    said = [message for message in caplog.messages if "overrides" in message]
    folders = [INSTALLED, task_configs_path(), tmp_path]
    caplog.clear()
    expected = TaskIndex.build(folders)
    assert said == [message for message in caplog.messages if "overrides" in message] != []
    assert [*manager.task_index.items()] == [*expected.items()]
    kinds = {"TASK": manager.all_subtasks, "PY_TASK": manager.all_subtasks}
    kinds |= {"GROUP": manager.all_groups, "TAG": manager.all_tags}
    assert manager.all_tasks == sorted(expected)
    for name, entry in expected.items():
        assert name in kinds[entry.kind.name]
    assert len({*manager.all_subtasks, *manager.all_groups, *manager.all_tags}) == len(expected)
    (tmp_path / "mine.yaml").unlink()
    (tmp_path / "other.yaml").write_text("task: other\n")
    index = TaskManager(include_path=tmp_path).task_index
    assert ("mine" in index, "other" in index) == (False, True)
