"""Campaigns that are killed anywhere go on, and end as if they had not been: nothing is lost, nothing is doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from lm_eval_leakage.jobs import driver
from lm_eval_leakage.jobs.driver import run_plan
from lm_eval_leakage.jobs.engines import engine_of
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.logs import answer_store
from tests.campaign.scripted_model import ASKED, LOADED, lines
from tests.campaign.test_driver import Run, model, rows
from tests.faults.children import KILLED, _be_child, child
from tests.waiting import wait_for

pytestmark = pytest.mark.model
KEPT = 16  # answers that are kept at once, and lost at most by a kill
N_KILLS = 6  # more by `make faults`


def killed(campaign: Callable[[], object], log: Path, after: float | None = None) -> bool:
    """Runs a campaign in a fork; whether it was killed."""
    return child(campaign, log, kill_after=after).code == KILLED


def test_a_campaign_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(
    here: Run, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", KEPT)
    here(settings, output_path=str(tmp_path / "first"))  # what it loads, forks have already
    (tmp_path / "counts" / ASKED).unlink()
    start = time.monotonic()
    here(settings)
    seconds, whole, n_asked = time.monotonic() - start, rows(tmp_path / "out"), len(lines(tmp_path / "counts", ASKED))
    (tmp_path / "counts" / ASKED).unlink()
    rng, again = random.Random(0), partial(here, settings, output_path=str(tmp_path / "killed"))
    n_killed = sum(killed(again, tmp_path / "log", rng.uniform(0.02, 0.25) * seconds) for _ in range(N_KILLS))
    ended = again()
    assert n_killed > 1
    assert (ended.n_done, ended.failed) == (4, ())
    assert rows(tmp_path / "killed") == whole
    assert len(lines(tmp_path / "counts", ASKED)) <= n_asked + n_killed * 2 * KEPT


# ---------------------------------------------------------------------- workers as processes of their own


def by_processes(settings: dict[str, Any]) -> CheckOutcome:
    return run_plan(check_plan(settings | {"engine": "local"}))


def slow_once(settings: dict[str, Any], folder: Path, at: str) -> dict[str, Any]:
    """Return the arguments of a model that takes a minute for the first request with this text."""
    (folder / "fault.txt").write_text(f"nobody {at}")
    return settings | {"models": [model(settings, "a", f"fault={folder / 'fault'}")]}


@contextmanager
def forked(settings: dict[str, Any], log: Path) -> Iterator[psutil.Process]:
    """A driver as a process of its own, whose workers are, too."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
        _be_child(lambda: by_processes(settings), log, None)
    try:
        yield psutil.Process(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.usefixtures("here")
def test_a_worker_that_is_killed_is_replaced_and_the_rest_is_done(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "engine_of", engine_of)
    dies = model(settings, "a", "dies_at=Which of 1-7,times=1")
    outcome = by_processes(settings | {"models": [dies]})
    assert (outcome.n_done, outcome.lost) == (4, ())
    (lost,) = [attempt for attempt in outcome.folder.attempts() if not attempt.ok]
    assert lost.lost
    assert lost.error == "its worker was ended by SIGKILL, as the system does when memory is short"
    assert len(lines(tmp_path / "counts", LOADED)) == 2
    assert len(list((outcome.folder.path / "runs").rglob("results_*.json"))) == 4


def test_a_killed_driver_leaves_no_worker_and_is_continued(
    here: Run, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slow_once(settings, tmp_path, "Which of 1-7")
    with monkeypatch.context() as real:
        real.setattr(driver, "engine_of", engine_of)
        with forked(slow, tmp_path / "log") as process:
            wait_for((tmp_path / "out" / "logs" / "a" / "riddle" / "run.log").exists)
            workers = process.children()
            process.kill()
            assert len(workers) == 1
            assert psutil.wait_procs(workers, timeout=10)[1] == []
    assert json.loads((tmp_path / "out" / "status.json").read_text())["state"] == "running"
    (tmp_path / "fault.txt").unlink(missing_ok=True)  # it may have been killed before that request
    assert here(slow).n_done == 4


@pytest.mark.usefixtures("here")
def test_an_interrupted_campaign_ends_its_workers(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "engine_of", engine_of)
    with forked(slow_once(settings, tmp_path, "Which of 0-7"), tmp_path / "log") as process:
        wait_for(lambda: list((tmp_path / "out" / "logs").rglob("run.log")))
        workers = process.children()
        process.send_signal(signal.SIGINT)
        assert psutil.wait_procs(workers, timeout=10)[1] == []
        wait_for(lambda: CampaignFolder(tmp_path / "out").status()["state"] == "interrupted")
