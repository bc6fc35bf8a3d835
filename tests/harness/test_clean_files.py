"""The folder of clean tasks, if writing it is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager

from lm_eval_leakage.harness.clean_files import write_clean
from lm_eval_leakage.results.clean_sets import CleanSet, Kept
from tests.limits import full_disk

N = 10
SETS = [CleanSet("colours", "weak", "max_order", ("m",), tuple(Kept(i, f"h{i}") for i in range(N)), (), 0)]


@pytest.fixture
def manager(tmp_path: Path) -> TaskManager:
    base = tmp_path / "base"
    base.mkdir()
    text = "task: colours\noutput_type: multiple_choice\nmetric_list: [{metric: acc}]\n"
    (base / "colours.yaml").write_text(text)
    return TaskManager(include_path=str(base), include_defaults=False)


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_after_a_full_disk_the_same_command_completes_the_folder(tmp_path: Path, manager: TaskManager) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "clean"
    write_clean(SETS, {}, whole, manager)
    sizes = {file.name: file.stat().st_size for file in whole.iterdir() if file.is_file()}
    assert sizes["colours_clean.json"] < sizes["clean_task.py"]
    with full_disk(sizes["colours_clean.json"]), pytest.raises(OSError, match="too large"):
        write_clean(SETS, {}, folder, manager)
    assert names(folder) == {"colours_clean.json"}
    write_clean(SETS, {}, folder, manager)
    assert contents(folder) == contents(whole)
    assert contents(whole).keys() == {*sizes}


def test_a_task_is_there_only_with_all_that_it_names(tmp_path: Path, manager: TaskManager, monkeypatch) -> None:
    at_yaml, replace = [], Path.replace

    def watched(part: Path, place: Path) -> Path:
        if place.suffix == ".yaml":
            at_yaml.append(names(place.parent) - {part.name})
        return replace(part, place)

    monkeypatch.setattr(Path, "replace", watched)
    write_clean(SETS, {}, tmp_path / "clean", manager)
    assert at_yaml == [{"clean_task.py", "colours_clean.json"}]
