"""Campaigns as jobs of submitit's executor for one machine: processes of their own, which are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.engines import engine_of
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.queue import Queue
from lm_eval_leakage.jobs.slurm_jobs import CONTROLLER
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.campaigns import benchmark, in_one_process, numbers, plan_for, prepared_folder
from tests.checking.conftest import without_environment
from tests.faults.children import KILLED, child
from tests.waiting import wait_for

pytestmark = pytest.mark.model
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Workers find the stand-in, and none is left behind."""
    monkeypatch.chdir(ROOT)
    without_environment(monkeypatch)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    yield
    for job in jobs_in(tmp_path):
        job.kill()


def jobs_in(place: Path, process: str = CONTROLLER) -> list[psutil.Process]:
    """The controllers of submitit whose jobs are those of a campaign below `place`, or other processes for it."""
    processes = psutil.process_iter(["cmdline", "status"])
    return [
        candidate
        for candidate in processes
        if process in (words := candidate.info["cmdline"] or [])
        and any(word.startswith(str(place)) for word in words)
        and candidate.info["status"] != psutil.STATUS_ZOMBIE
    ]


def carried_out(plan: Plan, lost: Path | None = None) -> tuple[CampaignFolder, list[Attempt]]:
    """Return the folder, and the attempts of this session."""
    folder = prepared_folder(plan, lost)
    carry_out(engine_of("slurm", "local", plan, folder))
    return folder, folder.attempts(earlier=False)


def test_a_killed_job_and_a_task_that_always_fails_leave_the_tables_as_they_are(tmp_path: Path) -> None:
    fault, lost = tmp_path / "fault.txt", tmp_path / "tasks" / "broken.jsonl"
    arguments = {"fault": str(fault.with_suffix(""))}
    more = {"tasks": ["quiz", "broken", "riddle"], "workers": 2, "arguments": arguments}
    benchmark(tmp_path / "tasks", "broken")
    whole = in_one_process(plan_for(tmp_path, tmp_path / "whole", "a", "b", **more), lost)
    benchmark(tmp_path / "tasks", "broken")
    fault.write_text("job Which of 1-5?")
    plan = plan_for(tmp_path, tmp_path / "slurm", "a", "b", **more)
    folder, attempts = carried_out(plan, lost)
    assert not fault.exists()
    assert numbers(folder) == numbers(whole)
    failed = folder.left(units_of(plan))
    assert failed == [unit for unit in units_of(plan) if unit.task == "broken"]
    assert [attempt.unit.task for attempt in attempts if attempt.lost] == ["riddle"]
    assert all("broken.jsonl" in str(attempt.error) for attempt in attempts if attempt.unit in failed)
    assert sum(attempt.ok for attempt in attempts) == len(units_of(plan)) - len(failed)


def test_a_driver_that_was_killed_finds_its_jobs_still_running(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, tmp_path / "out", "a", arguments={"pause": 0.02})

    def killed_after_one() -> None:
        def watch(queue: Queue) -> None:
            if queue.attempts:
                os.kill(os.getpid(), signal.SIGKILL)

        carry_out(engine_of("slurm", "local", plan, prepared_folder(plan)), watch)

    assert child(killed_after_one, tmp_path / "log").code == KILLED
    assert len(jobs_in(tmp_path)) == 1
    folder, attempts = carried_out(plan)
    assert folder.left(units_of(plan)) == []
    assert 0 < len(attempts) < 4
    every = folder.attempts()
    assert sorted(attempt.unit for attempt in every) == sorted(units_of(plan))
    assert all(attempt.ok for attempt in every)
    assert len({attempt.worker for attempt in every}) == 1
    assert not list((folder.path / "slurm").glob("*_submitted.pkl"))


def test_a_job_at_its_time_limit_goes_back_to_the_queue_and_continues(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, tmp_path / "out", "a", arguments={"pause": 0.02}, tasks=["quiz"])
    warned: list[Unit] = []

    def warn_once(queue: Queue) -> None:
        if queue.claims and not warned:
            warned.extend(queue.claims)
            (controller,) = jobs_in(tmp_path)
            (job,) = controller.children()
            job.send_signal(signal.SIGUSR2)  # as Slurm sends it before the end

    folder = prepared_folder(plan)
    carry_out(engine_of("slurm", "local", plan, folder), warn_once)
    assert folder.left(units_of(plan)) == []
    attempts = folder.attempts()
    (lost,) = [attempt for attempt in attempts if attempt.lost]
    assert [lost.unit] == warned
    assert "put back in the queue" in str(lost.error)
    assert len({attempt.worker.rpartition("-")[0] for attempt in attempts}) == 1  # one job did it all


def test_jobs_on_this_machine_end_when_their_driver_is_interrupted(tmp_path: Path) -> None:
    plan = plan_for(tmp_path, tmp_path / "out", "a", arguments={"pause": 0.2})

    def stop(queue: Queue) -> None:
        if queue.claims:
            raise KeyboardInterrupt

    folder = prepared_folder(plan)
    with pytest.raises(KeyboardInterrupt):
        carry_out(engine_of("slurm", "local", plan, folder), stop)
    assert not jobs_in(tmp_path)
    wait_for(lambda: not jobs_in(tmp_path, "lm_eval_leakage.jobs.worker"))
