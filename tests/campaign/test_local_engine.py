"""Workers as processes of this machine: which GPUs they see, why they ended, and that none is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.local_engine import LocalEngine
from lm_eval_leakage.jobs.plan import PlanModel
from tests.campaign.unloaded_runner import a_plan

pytestmark = pytest.mark.model  # starts processes


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "lm_eval_leakage.jobs.worker" in child.cmdline()]


def an_engine(folder: Path, **given: object) -> LocalEngine:
    return LocalEngine(
        a_plan(models=(PlanModel(name="a", gpus=1), PlanModel(name="b")), **given), CampaignFolder(folder)
    )


def reasons(engine: LocalEngine, n: int) -> dict[str, str | None]:
    """Return why the next n workers have ended."""
    ended: dict[str, str | None] = {}
    while len(ended) < n:
        ended |= engine.ended()
    return ended


def test_each_worker_sees_gpus_of_its_own_and_no_more_are_started_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with an_engine(tmp_path) as engine:
        engine.start("a", "first")
        assert engine.has_room("a")
        engine.start("a", "second")
        assert (engine.has_room("a"), engine.has_room("b")) == (False, True)
        assert sorted(worker.environ()["CUDA_VISIBLE_DEVICES"] for worker in workers()) == ["3", "5"]
        engine.stop("first")
        assert engine.has_room("a")
    assert (workers(), engine.workers) == ([], {})


def test_a_worker_ends_without_a_reason_if_nothing_is_left_and_else_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with an_engine(tmp_path) as engine:
        engine.start("b", "killed")
        (worker,) = workers()
        os.kill(worker.pid, signal.SIGKILL)
        assert reasons(engine, 1) == {"killed": "was ended by SIGKILL, as the system does when memory is short"}
        engine.start("b", "idle")
        assert reasons(engine, 1) == {"idle": None}
    assert engine.workers == {}


def test_a_model_with_more_gpus_than_this_machine_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(ValueError, match="'a' with gpus: 2, but this machine has 1; give gpus: 0 to reserve none"):
        LocalEngine(a_plan(models=(PlanModel(name="a", gpus=2),)), CampaignFolder(tmp_path))
