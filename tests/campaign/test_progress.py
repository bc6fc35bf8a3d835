"""Counts, rates and the time left, and how `check --status` prints them."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.claims import held_claims, next_claim
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.progress import Progress, status_as_text
from lm_eval_leakage.jobs.queue import read_queue
from lm_eval_leakage.jobs.units import Unit
from tests.campaign.unloaded_runner import a_plan, made_ready

TASKS = ("t0", "t1", "t2", "t3")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def attempt(unit: Unit, *, ok: bool = True, second: int = 0) -> Attempt:
    time = f"2026-01-01T00:00:{second:02}+00:00"
    return Attempt(unit, ok, 10.0, 100, 1000, None if ok else "why", False, "w", time)


def session(folder: CampaignFolder) -> Progress:
    """One of eight units was done before, two are in 50 s, of which a third failed and a fourth is in progress."""
    plan, clock = a_plan(1, TASKS, audits=("leakage_perm",)), Clock()
    first, *others = units_of(plan)
    folder.conclude(first, {})
    made_ready(plan, folder)
    progress = Progress(folder, units_of(plan), 1, clock)
    for unit in others[:2]:
        folder.conclude(unit, {})
        folder.record(attempt(unit))
    folder.record(attempt(others[2], ok=False))
    assert next_claim(folder.path / "claims", others[3].id.replace("/", "~"), "w1") is not None
    clock.now = 50.0
    return progress


UNITS = units_of(a_plan(1, TASKS, audits=("leakage_perm",)))
FAILED, IN_PROGRESS = UNITS[3], UNITS[4]


def test_what_is_done_failed_and_in_progress_is_read_from_the_folder_and_the_time_left_is_estimated(
    tmp_path: Path,
) -> None:
    progress = session(CampaignFolder(tmp_path))
    status = progress.as_status()
    assert status["units"] == {"all": 8, "done": 3, "done_in_this_session": 2, "failed": 1, "in_progress": 1}
    assert (status["units_per_hour"], status["requests_per_second"], status["tokens_per_second"]) == (144.0, 6.0, 60.0)
    assert [failure["unit"] for failure in status["failures"]] == [FAILED.id]
    assert [(each["unit"], each["worker"]) for each in status["in_progress"]] == [(IN_PROGRESS.id, "w1")]
    assert progress.seconds_left == 5 * 50.0 / 2  # at the pace of the session


def test_before_the_first_unit_is_done_no_time_is_known_and_what_succeeds_at_last_has_not_failed(
    tmp_path: Path,
) -> None:
    folder, plan = CampaignFolder(tmp_path), a_plan(1, TASKS)
    unit, *_ = made_ready(plan, folder)
    progress = Progress(folder, units_of(plan), 1)
    assert progress.seconds_left is None
    folder.record(attempt(unit, ok=False))
    assert progress.update(read_queue(folder, 1)) == progress.failed == [attempt(unit, ok=False)]
    folder.conclude(unit, {})
    folder.record(attempt(unit, second=1))
    assert progress.update(read_queue(folder, 1)) == [attempt(unit, second=1)]
    assert progress.failed == []


# ---------------------------------------------------------------------- the status as text


def written(folder: Path, age: float = 1.0, **given: object) -> CampaignFolder:
    time = datetime.now(timezone.utc) - timedelta(seconds=age)
    who = {"state": "running", "time": time.isoformat(), "engine": "local, 1 worker", "host": "elsewhere", "pid": 1}
    campaign = CampaignFolder(folder)
    campaign.write_status(who | given | session(campaign).as_status())
    return campaign


def test_the_status_names_units_in_progress_and_failures_with_their_logs(tmp_path: Path) -> None:
    lines = status_as_text(written(tmp_path)).splitlines()
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}: running on elsewhere \(process 1\), \d+ s ago", lines[0])
    assert lines[2] == "units: 3 of 8 done, 1 in progress, 1 failed"
    assert lines[3] == "speed: 144 units per hour, 60 tokens per second, about 2 min left"
    assert lines[4].startswith(f"in progress: {IN_PROGRESS.id}")
    assert lines[5] == f"failed: {FAILED.id}: why (log: {tmp_path / 'logs' / FAILED.id}.log)"


def test_the_status_is_that_of_the_folder_now_and_not_of_the_drivers_last_word(tmp_path: Path) -> None:
    folder = written(tmp_path)
    folder.conclude(FAILED, {})
    for claim in held_claims(tmp_path / "claims").values():
        claim.end()
    lines = status_as_text(folder).splitlines()
    assert lines[2] == "units: 4 of 8 done, 0 in progress, 0 failed"
    assert not [line for line in lines if line.startswith(("in progress", "failed"))]


def test_a_driver_that_is_silent_or_gone_was_killed_and_a_worker_that_is_gone_does_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    folder = written(tmp_path / "silent", age=300.0)
    assert "killed since; the same command goes on" in status_as_text(folder)
    assert "in progress: " in status_as_text(folder)  # a job of a cluster goes on without its driver
    (claim,) = held_claims(folder.path / "claims").values()
    claim.file.write_text(json.dumps({**claim.holder, "pid": child}))
    assert "in progress: " not in status_as_text(folder)
    gone = written(tmp_path / "gone", host=os.uname().nodename, pid=child)
    assert "killed since" in status_as_text(gone)
