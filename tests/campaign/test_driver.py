"""A whole campaign in this process, with a stand-in model and small benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.outcome import TABLE_FILES, CheckOutcome
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.campaigns import written_again
from tests.campaign.conftest import N
from tests.campaign.scripted_model import ASKED, LOADED, lines

Run = Callable[..., CheckOutcome]


def model(settings: dict[str, Any], name: str, further: str = "") -> dict[str, Any]:
    (first,) = settings["models"]
    return {**first, "name": name, "model_args": first["model_args"] + (f",{further}" if further else "")}


def rows(folder: Path) -> list[dict[str, Any]]:
    rows_of_board = json.loads((folder / "leaderboard.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if "origin" not in key} for row in rows_of_board]


@pytest.mark.model
def test_a_finished_campaign_asks_nothing(here: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    assert here(settings).lost == ()
    before = (tmp_path / "out" / "leaderboard.csv").read_text()
    assert [(row["n"], row["n_tested"]) for row in rows(tmp_path / "out")] == [(N, N), (N, N)]
    assert len(lines(tmp_path / "counts", LOADED)) == 1
    attempts = CampaignFolder(tmp_path / "out").attempts()
    assert sum(attempt.n_requests for attempt in attempts) == len(lines(tmp_path / "counts", ASKED))
    n_requests, loaded = (len(lines(tmp_path / "counts", what)) for what in (ASKED, LOADED))
    assert here(settings).n_done == 4
    assert [len(lines(tmp_path / "counts", what)) for what in (ASKED, LOADED)] == [n_requests, loaded]
    assert (tmp_path / "out" / "leaderboard.csv").read_text() == before


# ---------------------------------------------------------------------- what fails


@pytest.mark.model
def test_a_unit_that_fails_leaves_the_rest_finishing_and_a_restart_tries_it_again_and_nothing_else(
    here: Run, settings: dict[str, Any], tmp_path: Path
) -> None:
    models = [model(settings, "a", "fails_at=Which of 1-"), model(settings, "b")]
    outcome = here(settings, models=models)
    assert (outcome.n_done, outcome.n_units) == (6, 8)
    failed = {attempt.unit.id: attempt for attempt in outcome.lost}
    assert set(failed) == {"a/riddle/run", "a/riddle/leakage_perm"}
    assert {attempt.error for attempt in outcome.lost} == {"RuntimeError: cannot answer Which of 1-"}
    log = outcome.folder.log_of(Unit.of_id("a/riddle/run")).read_text()
    assert log.count("Traceback") == 2  # one for each attempt
    assert {(row["model"], row["task"]) for row in rows(tmp_path / "out")} == {
        *(("a", "quiz"), ("a", "riddle"), ("b", "quiz"), ("b", "riddle"))
    }
    (failed,) = [verdict for verdict in outcome.verdicts if (verdict.model, verdict.task) == ("a", "riddle")]
    assert failed.reason == "its audit failed: RuntimeError: cannot answer Which of 1-"
    n_asked = len(set(lines(tmp_path / "counts", ASKED)))
    assert here(settings, models=models).n_done == 6
    assert len(set(lines(tmp_path / "counts", ASKED))) == n_asked
    assert len(outcome.folder.attempts()) == 6 + 2 * 2 * 2


@pytest.mark.model
def test_a_model_that_cannot_be_loaded_is_loaded_twice_and_its_units_fail(here: Run, settings: dict[str, Any]) -> None:
    outcome = here(settings, models=[model(settings, "a"), model(settings, "b", "broken=True")])
    assert outcome.n_done == 4
    assert {attempt.unit.model for attempt in outcome.lost} == {"b"}
    assert {attempt.error for attempt in outcome.lost} == {
        "the model cannot be loaded: MemoryError: no room for the weights"
    }
    log = outcome.folder.path / "logs" / "b"
    assert sum(file.read_text().count("Traceback") for file in log.rglob("*.log")) == 2


# ---------------------------------------------------------------------- another plan


@pytest.mark.model
def test_a_task_may_be_added_and_any_other_plan_in_the_same_folder_is_refused_with_what_differs(
    here: Run, settings: dict[str, Any], tmp_path: Path
) -> None:
    here(settings, tasks=["quiz"])
    n_asked = len(lines(tmp_path / "counts", ASKED))
    assert here(settings, tasks=["quiz", "riddle"]).n_done == 4
    assert len(lines(tmp_path / "counts", ASKED)) == 2 * n_asked
    with pytest.raises(ValueError, match=r"has another campaign: questions was 'all' and is 6; give another output"):
        here(settings, questions=6)


@pytest.mark.model
def test_a_folder_that_was_moved_gives_the_same_tables(here: Run, settings: dict[str, Any], tmp_path: Path) -> None:
    folder = here(settings, models=[model(settings, "a", "fails_at=Which of 1-")], retries=0).folder
    (log,) = folder.run_of(Unit.of_id("a/quiz/run")).rglob("samples_*.jsonl")
    assert "problems" in (folder.path / "leaderboard.json").read_text()
    log.write_text(log.read_text() + "{")
    written_again(folder)
    assert log.name in (folder.path / "leaderboard.json").read_text()
    before = {name: (folder.path / name).read_text() for name in TABLE_FILES}
    folder.path.rename(tmp_path / "moved")
    written_again(CampaignFolder(tmp_path / "moved"))
    assert {name: (tmp_path / "moved" / name).read_text() for name in TABLE_FILES} == before
