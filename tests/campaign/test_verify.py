"""What `check --verify` finds: whatever differs from the manifest, or is not in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.folder import PLAN, UNIT_FILE, CampaignFolder
from lm_eval_leakage.jobs.outcome import VERDICTS, CheckOutcome
from lm_eval_leakage.jobs.verify import verify
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.tables import write
from tests.campaign.campaigns import written_again

QUIZ, RIDDLE = "a/quiz/run/0of1", "a/riddle/run/0of1"
GONE, ADDED, CHANGED = "is gone", "was added after the unit was complete", "was changed after the unit was complete"
FORGED = "is not in the manifest; remove it if this plan did not make it"
Change = Callable[[CampaignFolder], Any]  # returns the places that must be named, with what is said of them


def edited(file: Path, old: str, new: str) -> Path:
    file.write_text(file.read_text().replace(old, new))
    return file


def log(folder: CampaignFolder) -> Any:
    (file,) = (folder.path / "runs" / QUIZ).rglob("samples_*.jsonl")
    first, *others = file.read_text().splitlines()
    line = json.loads(first)
    file.write_text("\n".join([json.dumps(line | {"acc": 1.0 - line["acc"]}), *others, ""]))
    return [
        (file, CHANGED),
        *((folder.path / f"leaderboard.{end}", "differs from") for end in ("csv", "json", "md")),
    ]


def table(folder: CampaignFolder) -> Any:
    file, page = (edited(folder.path / f"leaderboard.{end}", "quiz", "quest") for end in ("csv", "html"))
    return [(file, "differs from what the logs give, first in line 2: it has 'quest"), (page, "differs from")]


def renamed(folder: CampaignFolder) -> Any:
    (results,) = (folder.path / "runs" / RIDDLE).rglob("results_*.json")
    other = results.rename(results.with_name("elsewhere.txt"))
    return [(results, GONE), (other, ADDED), (folder.path / "leaderboard.csv", "differs")]


def copied(to: str) -> Change:
    """A unit under the name of another one, as somebody would forge it."""

    def copy(folder: CampaignFolder) -> Any:
        shutil.copytree(folder.path / "runs" / QUIZ, folder.path / "runs" / to)
        written_again(folder)
        return [(folder.path / "runs" / to.split("/")[0], FORGED)]

    return copy


def loose(folder: CampaignFolder) -> Any:
    (file := folder.path / "runs" / "a" / "results_2026-01-01T00-00-00.000000.json").write_text("{}")
    (empty := folder.path / "runs" / "a" / "quiz" / "empty").mkdir()
    return [(file, FORGED), (empty, FORGED)]


def unit_file(folder: CampaignFolder) -> Any:
    return [(edited(folder.path / "runs" / QUIZ / UNIT_FILE, "{", " {"), CHANGED)]


def plan(folder: CampaignFolder) -> Any:
    return [(edited(folder.path / PLAN, "seed: 0", "seed: 1"), "is not the plan of the manifest")]


def verdicts(folder: CampaignFolder) -> Any:
    return [(edited(folder.path / VERDICTS, "cannot be told", "evidence"), "its verdict on a, quiz")]


def unit(folder: CampaignFolder) -> Any:
    manifest = folder.manifest()
    del manifest["units"][QUIZ]
    folder.write_manifest(manifest)
    shutil.rmtree((folder.path / "runs" / QUIZ).parent)
    written_again(folder)
    return [(QUIZ, "is in the plan, but not in the manifest")]


def identity(value: str, said: str) -> Change:
    def change(folder: CampaignFolder) -> Any:
        manifest = folder.manifest()
        manifest["units"][QUIZ]["identity"]["pretrained"] = value
        folder.write_manifest(manifest)
        return [(QUIZ, said)]

    return change


CHANGES: tuple[Change, ...] = (
    *(log, table, renamed, loose, unit_file, plan, verdicts, unit),
    *map(copied, ("b/quiz/run/0of1", "a/quiz/run/0of2", "a/quiz/run/deeper/0of1", "a/elsewhere", "z")),
    identity("m (0123)", "names another model in its unit.json than in the manifest"),  # as if it could not be seen
    identity("elsewhere (0123)", "is not of the manifest's a: pretrained elsewhere (0123), now m"),
)


@pytest.mark.model
def test_whatever_is_changed_in_a_finished_folder_is_named_and_nothing_else(
    here: Callable[..., CheckOutcome], settings: dict[str, Any], tmp_path: Path
) -> None:
    folder = here(settings).folder
    found = verify(folder)
    assert (found.n_units, found.n_files, found.found) == (4, 12, ())
    for number, change in enumerate(CHANGES):
        moved = CampaignFolder(shutil.copytree(folder.path, tmp_path / f"copy{number}"))
        assert verify(moved).found == ()
        expected, told = change(moved), verify(moved).found
        for place, said in expected:
            assert [one for one in told if one.startswith(f"{place}") and said in one], (change, told)
        if all("leaderboard" not in str(place) for place, _ in expected):
            assert len(told) >= len(expected)
    written = [file for one in annotate([folder.path / "runs"]) for file in write(one, "1")]
    assert any(file.is_relative_to(folder.path / "runs") for file in written)
    assert verify(folder).found == ()  # copies by `annotate` change nothing


def test_a_folder_without_a_campaign_cannot_be_verified(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no manifest.json; name the folder of a campaign"):
        verify(CampaignFolder(tmp_path))
