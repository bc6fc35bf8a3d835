"""Campaigns that are killed anywhere go on, and end as if they had not been: nothing is lost and nothing is doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.driver import CampaignOutcome
from lm_eval_leakage.campaign.verify import verify
from lm_eval_leakage.logs import answer_store
from tests.campaign.stand_in import ASKED, LOADED, lines
from tests.campaign.test_driver import Run, model, rows
from tests.faults.children import KILLED, child

pytestmark = pytest.mark.model
KEPT = 16  # answers that are kept at once, and lost at most by a kill
N_KILLS = 6


def killed(campaign: Callable[[], CampaignOutcome], log: Path) -> bool:
    """Runs a campaign in a fork; whether it was killed."""

    def in_fork() -> None:
        campaign()

    return child(in_fork, log).code == KILLED


@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(
    here: Run, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(answer_store, "ANSWERS_AT_ONCE", KEPT)
    here(settings, shards=2)
    whole, n_asked = rows(tmp_path / "out"), len(lines(tmp_path / "counts", ASKED))
    (tmp_path / "counts" / ASKED).unlink()
    out, rng, n_killed = str(tmp_path / "killed"), random.Random(seed), 0
    for _ in range(N_KILLS):

        def campaign() -> CampaignOutcome:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.05, 0.8))
            signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
            return here(settings, shards=2, output_path=out)

        n_killed += killed(campaign, tmp_path / "log")
        rng.random()  # the fork's own draws are not seen here
    ended = here(settings, shards=2, output_path=out)
    assert n_killed
    assert (ended.n_done, ended.failed) == (8, ())
    assert rows(tmp_path / "killed") == whole
    assert len(lines(tmp_path / "counts", ASKED)) <= n_asked + n_killed * 2 * KEPT
    assert verify(ended.folder).found == ()


@pytest.mark.parametrize("moment", ["lm_eval_leakage.campaign.campaign_folder.CampaignFolder.record", "publish"])
def test_a_worker_that_is_killed_around_the_move_of_its_unit_asks_nothing_again(
    here: Run, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the move, when all files are written, and after it, before the attempt is recorded."""
    target = moment if "." in moment else f"lm_eval_leakage.campaign.campaign_folder.CampaignFolder.{moment}"

    def campaign() -> CampaignOutcome:
        monkeypatch.setattr(target, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        return here(settings, tasks=["quiz"], audits=[])

    assert killed(campaign, tmp_path / "log")
    n_asked = len(lines(tmp_path / "counts", ASKED))
    outcome = here(settings, tasks=["quiz"], audits=[])
    assert (outcome.n_done, len(lines(tmp_path / "counts", ASKED))) == (1, n_asked)
    assert len(list((tmp_path / "out" / "runs").rglob("results_*.json"))) == 1


# ---------------------------------------------------------------------- processes of their own


def started(settings: dict[str, Any], tmp_path: Path, **given: Any) -> subprocess.Popen[str]:
    """`lm-eval-leakage campaign` in a process of its own."""
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(settings | given))
    command = [sys.executable, "-c", "from lm_eval_leakage.cli import main; main()", "campaign", str(file)]
    command += ["--engine", "local"]
    here = Path(__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here)


def test_a_worker_that_is_killed_is_replaced_and_the_rest_is_done_by_one_more(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    dies = model(settings, "a", "dies_at=Which of 1-7,times=1")
    process = started(settings, tmp_path, models=[dies])
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out == "4 of 4 units are done\n"
    (lost,) = [one for one in CampaignFolder(tmp_path / "out").attempts() if not one.ok]
    assert lost.lost
    assert lost.error == "its worker was ended by SIGKILL, as the system does when memory is short"
    assert len(lines(tmp_path / "counts", LOADED)) == 2


def test_a_killed_driver_leaves_no_worker_and_is_continued(settings: dict[str, Any], tmp_path: Path) -> None:
    slow = model(settings, "a", "slow_at=Which of 1-7")
    process = started(settings, tmp_path, models=[slow])
    while not (tmp_path / "out" / "runs" / "a" / "quiz" / "leakage_perm").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    time.sleep(1.0)
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    assert psutil.wait_procs(workers, timeout=10)[1] == []
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "running"
    again = started(settings, tmp_path, models=[slow | {"model_args": slow["model_args"]}], minutes=0.01, retries=0)
    out, err = again.communicate(timeout=200)
    assert again.returncode == 1
    assert out == "2 of 4 units are done\n"
    assert "failed: a/riddle/run/0of1: it took longer than minutes: 0.01 allows" in err


def test_an_interrupted_campaign_ends_its_workers_and_says_how_to_go_on(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    process = started(settings, tmp_path, models=[model(settings, "a", "slow_at=Which of 0-7")])
    while not list((tmp_path / "out" / "logs").rglob("0of1.log")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    workers = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the workers have ended; the same command goes on" in err
    assert psutil.wait_procs(workers, timeout=10)[1] == []
    assert json.loads((tmp_path / "out" / "status.json").read_text())["state"] == "interrupted"
