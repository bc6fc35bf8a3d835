"""Counts, rates and the time left, and how `check --status` tells them."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.progress import Progress, status_as_text
from lm_eval_leakage.jobs.units import Unit

RUNS = [Unit("a", f"t{place}", "run") for place in range(4)]
AUDITS = [Unit("a", f"t{place}", "leakage_perm") for place in range(4)]


def attempt(unit: Unit, *, ok: bool = True, seconds: float = 10.0) -> Attempt:
    return Attempt(unit, ok, seconds, 100, 1000, None if ok else "why", False, "w", "2026-01-01T00:00:00+00:00")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def progress(clock: Clock) -> Progress:
    """One unit was done before, two in the 50 s since; one audit failed."""
    found = Progress([*RUNS, *AUDITS], [*RUNS[1:], *AUDITS], clock)
    clock.now = 10.0
    found.ended(attempt(RUNS[1]))
    clock.now = 50.0
    found.ended(attempt(AUDITS[0], seconds=40.0))
    found.ended(attempt(AUDITS[1], ok=False))
    found.begun(RUNS[2], "w1")
    return found


def test_what_is_done_failed_and_in_progress_is_counted_and_the_time_left_told() -> None:
    clock = Clock()
    status = progress(clock).as_status()
    assert status["units"] == {"all": 8, "done": 3, "done_in_this_session": 2, "failed": 1, "in_progress": 1}
    assert (status["units_per_hour"], status["requests_per_second"], status["tokens_per_second"]) == (144.0, 6.0, 60.0)
    assert [one["unit"] for one in status["failures"]] == [AUDITS[1].id]
    assert [one["worker"] for one in status["in_progress"]] == ["w1"]
    assert progress(Clock()).seconds_left == 5 * 50.0 / 2  # at the pace of the session


def test_before_the_first_unit_is_done_no_time_is_known_and_what_succeeds_at_last_has_not_failed() -> None:
    assert Progress(RUNS, RUNS).seconds_left is None
    found = progress(Clock())
    found.ended(attempt(AUDITS[1]))
    assert found.failed == []


# ---------------------------------------------------------------------- the status as text


def written(folder: Path, age: float = 1.0, **given: object) -> CampaignFolder:
    time = datetime.now(timezone.utc) - timedelta(seconds=age)
    who = {"state": "running", "time": time.isoformat(), "engine": "local, 1 worker", "host": "elsewhere", "pid": 1}
    campaign = CampaignFolder(folder)
    campaign.write_status(who | given | progress(Clock()).as_status())
    return campaign


def test_the_status_names_units_in_progress_and_failures_with_their_logs(tmp_path: Path) -> None:
    lines = status_as_text(written(tmp_path)).splitlines()
    assert lines[0].startswith(f"{tmp_path}: running on elsewhere (process 1), 1 s ago")
    assert lines[2] == "units: 3 of 8 done, 1 in progress, 1 failed"
    assert lines[3] == "speed: 144 units per hour, 60 tokens per second, about 2 min left"
    assert lines[4].startswith(f"in progress: {RUNS[2].id}")
    assert lines[5] == f"failed: {AUDITS[1].id}: why (log: {tmp_path / 'logs' / AUDITS[1].id}.log)"


def test_a_driver_that_is_silent_or_gone_was_killed(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert "killed since; the same command goes on" in status_as_text(written(tmp_path, age=300.0))
    told = status_as_text(written(tmp_path, host=os.uname().nodename, pid=child))
    assert "killed since" in told
    assert "in progress: " not in told
