"""What `campaign status` prints, from the status file alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import psutil

from lm_eval_leakage.campaign.campaign_folder import RUNNING, STATUS, CampaignFolder
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.results.formatting import about, count, duration

SILENT = 60.0  # seconds without news after which a driver that should be running is taken for killed
SINCE_KILLED = "killed"
WORKING_SHOWN, FAILURES_SHOWN = 20, 20


def status_as_text(folder: CampaignFolder) -> str:
    """Raises ValueError if there is no campaign in the folder."""
    status = folder.status()
    if not status:
        raise ValueError(f"{folder.path} has no {STATUS}; name the folder of a campaign that has begun")
    return "\n".join(_lines(folder, status))


def _lines(folder: CampaignFolder, status: Mapping[str, Any]) -> Iterator[str]:
    units, state = status["units"], status["state"]
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(status["time"])).total_seconds()
    told = f"{state} on {status['host']} (process {status['pid']}), {duration(age)} ago"
    if state == RUNNING and (age > SILENT or not _may_live(status)):
        state = SINCE_KILLED
        told = f"last heard of {duration(age)} ago on {status['host']}, and killed since; the same command goes on"
    yield f"{folder.path}: {told}"
    yield f"engine: {status['engine']}"
    yield (
        f"units: {count(units['done'])} of {count(units['all'])} done, {units['in_progress']} in progress, "
        f"{count(units['failed'])} failed"
    )
    left = status["seconds_left"]
    yield (
        f"speed: {status['units_per_hour']:g} units per hour, {about(round(status['tokens_per_second']))} tokens per "
        f"second{f', about {duration(left)} left' if left and state == RUNNING else ''}"
    )
    for one in status["in_progress"][:WORKING_SHOWN] if state == RUNNING else ():
        yield f"in progress: {one['unit']} for {duration(one['seconds'] + age)} ({one['worker']})"
    for one in status["failures"][:FAILURES_SHOWN]:
        yield f"failed: {one['unit']}: {one['error']} (log: {folder.log_of(Unit.of_id(one['unit']))})"


def _may_live(status: Mapping[str, Any]) -> bool:
    """Whether the driver may be running; on another machine only its silence tells."""
    return bool(status["host"] != socket.gethostname() or psutil.pid_exists(status["pid"]))
