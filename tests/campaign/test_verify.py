"""What `campaign verify` finds: whatever differs from the manifest, or is not in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.driver import CampaignOutcome
from lm_eval_leakage.jobs.folder import PLAN, UNIT_FILE, CampaignFolder
from lm_eval_leakage.jobs.plan import Unit
from lm_eval_leakage.jobs.verify import verify, write_tables
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.tables import write

Run = Callable[..., CampaignOutcome]


@pytest.mark.model
def test_nothing_differs_after_a_campaign(here: Run, settings: dict[str, Any]) -> None:
    found = verify(here(settings).folder)
    assert (found.n_units, found.n_files, found.found) == (4, 12, ())


@pytest.mark.model
def test_a_changed_log_is_named_with_the_table_that_it_changes(
    here: Run, settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = here(settings).folder
    (log,) = folder.run_of(Unit.of_id("a/quiz/run/0of1")).rglob("samples_*.jsonl")
    first, *others = log.read_text().splitlines()
    line = json.loads(first)
    log.write_text("\n".join([json.dumps(line | {"acc": 1.0 - line["acc"]}), *others, ""]))
    told = verify(folder).found
    assert told[0] == f"{log} was changed after the unit was complete"
    assert any(sentence.startswith(f"{tmp_path / 'out' / 'leaderboard.csv'} differs") for sentence in told)


@pytest.mark.model
def test_a_changed_table_is_named_with_its_first_difference(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    file = folder.path / "leaderboard.csv"
    file.write_text(file.read_text().replace("quiz", "quest"))
    (told,) = verify(folder).found
    assert told.startswith(f"{file} differs from what the logs give, first in line 2: it has 'quest")


@pytest.mark.model
def test_missing_and_added_files_are_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    place = folder.run_of(Unit.of_id("a/riddle/run/0of1"))
    (results,) = place.rglob("results_*.json")
    results.rename(results.with_name("elsewhere.txt"))
    told = verify(folder).found
    assert f"{results} is gone" in told
    assert f"{results.with_name('elsewhere.txt')} was added after the unit was complete" in told


def test_a_folder_without_a_campaign_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no manifest.json; name the folder of a campaign"):
        verify(CampaignFolder(tmp_path))


@pytest.mark.model
def test_copies_by_annotate_change_nothing(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    written = [file for one in annotate([folder.runs]) for file in write(one, "1")]
    assert any(file.is_relative_to(folder.runs) for file in written)
    assert verify(folder).found == ()


def copied(folder: CampaignFolder, name: str, to: str) -> Path:
    """A unit under the name of another one, as somebody would forge it."""
    return Path(shutil.copytree(folder.runs / name, folder.runs / to))


@pytest.mark.model
@pytest.mark.parametrize("to", ["b/quiz/run/0of1", "a/quiz/run/0of2", "a/quiz/run/deeper/0of1", "a/elsewhere", "z"])
def test_runs_that_the_manifest_does_not_know_are_named_at_any_depth(
    here: Run, settings: dict[str, Any], to: str
) -> None:
    folder = here(settings).folder
    copied(folder, "a/quiz/run/0of1", to)
    write_tables(folder)
    (told,) = verify(folder).found
    assert told.startswith(str(folder.runs / to.split("/")[0]))
    assert "is not in the manifest; remove it if this campaign did not make it" in told


@pytest.mark.model
def test_a_loose_file_and_an_empty_folder_are_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    (folder.runs / "a" / "results_2026-01-01T00-00-00.000000.json").write_text("{}")
    (folder.runs / "a" / "quiz" / "empty").mkdir()
    names = [sentence.split(" is ")[0] for sentence in verify(folder).found]
    assert {str(folder.runs / "a" / "quiz" / "empty")} < set(names)
    assert str(folder.runs / "a" / "results_2026-01-01T00-00-00.000000.json") in names


@pytest.mark.model
def test_a_changed_unit_file_is_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    file = folder.run_of(Unit.of_id("a/quiz/run/0of1")) / UNIT_FILE
    file.write_text(file.read_text() + " ")
    assert verify(folder).found == (f"{file} was changed after the unit was complete",)


@pytest.mark.model
def test_a_unit_of_the_plan_that_is_gone_from_manifest_and_runs_is_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    manifest = folder.manifest()
    del manifest["units"]["a/quiz/run/0of1"]
    folder.write_manifest(manifest)
    shutil.rmtree(folder.runs / "a" / "quiz" / "run")
    write_tables(folder)
    (told,) = verify(folder).found
    assert told.startswith("a/quiz/run/0of1 is in the plan, but not in the manifest")


@pytest.mark.model
def test_a_plan_that_was_edited_is_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    file = folder.path / PLAN
    file.write_text(file.read_text().replace("seed: 0", "seed: 1"))
    assert verify(folder).found == (f"{file} is not the plan of the manifest",)


@pytest.mark.model
def test_nothing_differs_in_a_campaign_that_was_moved(here: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    here(settings).folder.path.rename(tmp_path / "moved")
    assert verify(CampaignFolder(tmp_path / "moved")).found == ()


@pytest.mark.model
def test_a_unit_whose_model_was_edited_in_the_manifest_alone_is_named(here: Run, settings: dict[str, Any]) -> None:
    folder = here(settings).folder
    manifest = folder.manifest()
    manifest["units"]["a/quiz/run/0of1"]["identity"]["pretrained"] += " (0123)"  # as if it could not be seen here
    folder.write_manifest(manifest)
    assert verify(folder).found == ("a/quiz/run/0of1 names another model in its unit.json than in the manifest",)
