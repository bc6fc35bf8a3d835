"""Units and attempts: what is done and what was tried, and which files a task is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.manifest import changed_files, digests_now
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.texts import as_json
from tests.campaign.campaigns import small_plan

UNITS = units_of(small_plan(models=[{"name": "a"}, {"name": "b"}], tasks="t,u", accuracy=False))
ONE, OTHER = Unit.of("a", "t", "run"), Unit.of("a", "t", "leakage_perm")


def attempt(unit: Unit, second: int = 0, *, ok: bool = False, lost: bool = False, worker: str = "w") -> Attempt:
    time = f"2026-01-01T00:00:{second:02}.000000+00:00"
    return Attempt(unit, ok, 1.5, 2, 3, None if ok else "why", lost, worker, time)


# ---------------------------------------------------------------------- units


def test_units_are_all_models_tasks_and_kinds_with_each_model_together() -> None:
    models = [{"name": "a"}, {"name": "b"}]
    units = units_of(small_plan(models=models, tasks="t,u", audits=["leakage_perm", "leakage_tokens"]))
    assert len(set(units)) == len(units) == 2 * 2 * 3
    assert [unit.model for unit in units] == ["a"] * 6 + ["b"] * 6
    assert [unit.id for unit in units[:3]] == ["a/t/run", "a/t/leakage_perm", "a/t/leakage_tokens"]
    assert [Unit.of_id(unit.id) for unit in units] == units
    assert {unit.kind for unit in UNITS} == {"leakage_perm"}


@pytest.mark.parametrize("text", ["", "a/t", "a/t/", "/t/run", "a//run", "a/t/run/x"])
def test_what_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a unit; write it as MODEL/TASK/KIND"):
        Unit.of_id(text)


# ---------------------------------------------------------------------- the folder


def complete(folder: CampaignFolder, unit: Unit, text: str) -> Path:
    work = folder.work_of(unit) / text
    work.mkdir(parents=True)
    (work / "results.json").write_text(text)
    return work


def test_a_unit_is_done_when_its_files_are_moved_and_is_then_never_replaced(tmp_path: Path) -> None:
    folder = CampaignFolder(tmp_path)
    work = complete(folder, ONE, "first")
    assert folder.left([ONE, OTHER]) == [ONE, OTHER]
    assert folder.publish(ONE, work)
    assert folder.left([ONE, OTHER]) == [OTHER]
    assert not folder.publish(ONE, complete(folder, ONE, "second"))
    assert (folder.run_of(ONE) / "results.json").read_text() == "first"


OF_NO_ATTEMPT = b'\n{}\n[]\n{"unit": \n{"unit": 1}\n{"unit": "a/t/run", "more": 1}\n'


def test_attempts_are_in_the_order_of_their_time_and_a_line_counts_when_it_is_complete(tmp_path: Path) -> None:
    folder, (first, second) = CampaignFolder(tmp_path), (attempt(ONE, 1), attempt(ONE, 2))
    assert folder.attempts() == []
    folder.record(second)
    line = as_json(first.as_record).encode()
    (file := tmp_path / "attempts" / "a.jsonl").write_bytes(OF_NO_ATTEMPT + line[:20])
    assert folder.attempts() == [second]
    file.write_bytes(OF_NO_ATTEMPT + line)
    assert folder.attempts() == [first, second]


# ---------------------------------------------------------------------- the user's own files

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


def test_each_file_that_a_task_is_made_of_is_named_once_it_was_changed_or_is_gone(task: Path) -> None:
    before = digests_now([task])
    assert {Path(name).name for name in before} == {"quiz.yaml", "_shape.yaml", "words.py", "rows.jsonl"}
    assert changed_files(before) == []
    for name in before:
        file, text = Path(name), Path(name).read_text()
        file.write_text(text + "\n")
        assert changed_files(before) == [name]
        file.unlink()
        assert changed_files(before) == [name]
        file.write_text(text)
    task.write_text("a: [b")
    assert [Path(name).name for name in digests_now([task])] == ["quiz.yaml"]
