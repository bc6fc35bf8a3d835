"""Carries out a plan by workers: checks it, gives an engine what is left, tells how far it is, writes the tables.

How far it is is counted as attempts end, without looking at any file; `check --status` reads the status file alone.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.files import atomic_write, sole_use
from lm_eval_leakage.jobs.engines import CampaignEngine, engine_of, now
from lm_eval_leakage.jobs.estimates import CheckedPlan, Impossible, checked
from lm_eval_leakage.jobs.folder import PLAN, RUNNING, STATUS, Attempt, CampaignFolder
from lm_eval_leakage.jobs.manifest import (
    HOW_FILES,
    HOW_MODELS,
    MANIFEST_VERSION,
    REPLACED,
    TASK_FILES,
    differences,
    set_apart,
    with_units,
)
from lm_eval_leakage.jobs.manifest import versions as known_versions
from lm_eval_leakage.jobs.outcome import gate
from lm_eval_leakage.jobs.plan import Plan, Unit, as_settings, plan_as_yaml
from lm_eval_leakage.jobs.verify import annotations_of, write_tables
from lm_eval_leakage.results.formatting import about, count, duration
from lm_eval_leakage.results.tables import benchmarks

FAILURES_LISTED = 100  # in the status file


class Progress:
    """For several threads.

    units: all that can be done; left: those that are not done when the session begins
    """

    def __init__(
        self, units: Sequence[Unit], left: Collection[Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mutex, self._clock, self._begun = threading.Lock(), clock, clock()
        self.n_units = len(units)
        self.n_done_before = self.n_units - len(left)
        self._n_done = self._n_requests = self._n_tokens = 0
        self._working: dict[Unit, tuple[str, float]] = {}
        self._failed: dict[Unit, Attempt] = {}

    def begun(self, unit: Unit, worker: str) -> None:
        with self._mutex:
            self._working[unit] = (worker, self._clock())

    def ended(self, attempt: Attempt) -> None:
        with self._mutex:
            self._working.pop(attempt.unit, None)
            self._n_requests += attempt.n_requests
            self._n_tokens += attempt.n_tokens
            if attempt.ok:
                self._failed.pop(attempt.unit, None)
                self._n_done += 1
            else:
                self._failed[attempt.unit] = attempt

    # ------------------------------------------------------------------ what is told

    @property
    def n_done(self) -> int:
        return self.n_done_before + self._n_done

    @property
    def failed(self) -> list[Attempt]:
        """The last attempt of each unit whose last attempt failed."""
        with self._mutex:
            return list(self._failed.values())

    @property
    def seconds(self) -> float:
        return max(1e-9, self._clock() - self._begun)

    @property
    def tokens_per_second(self) -> float:
        return self._n_tokens / self.seconds

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the session so far; None before its first unit is done."""
        return (self.n_units - self.n_done) * self.seconds / self._n_done if self._n_done else None

    def as_status(self) -> dict[str, Any]:
        left, failed = self.seconds_left, self.failed
        with self._mutex:
            working = [
                {"unit": unit.id, "worker": worker, "seconds": round(self._clock() - since, 1)}
                for unit, (worker, since) in self._working.items()
            ]
        return {
            "units": {
                "all": self.n_units,
                "done": self.n_done,
                "done_in_this_session": self._n_done,
                "failed": len(failed),
                "in_progress": len(working),
            },
            "seconds": round(self.seconds, 1),
            "units_per_hour": round(3600 * self._n_done / self.seconds, 2),
            "requests_per_second": round(self._n_requests / self.seconds, 2),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "seconds_left": None if left is None else round(left),
            "in_progress": working,
            "failures": [attempt.as_record for attempt in failed[:FAILURES_LISTED]],
        }


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


SECONDS_OF_STATUS = 5.0
KEPT = ("begun", "sessions", "models", "units", REPLACED, "data", "loaded_models", "worker_versions")  # of a manifest
AT_ITS_END, BROKEN_OFF = "ended", "interrupted"

Say = Callable[[str], None]


@dataclass(frozen=True)
class CampaignOutcome:
    """failed: the last attempt of each unit that was given up
    tables: the files that were written
    failed_on, unjudged: as of `CheckOutcome`, by the verdicts of the tables
    """

    folder: CampaignFolder
    n_units: int
    n_done: int
    failed: tuple[Attempt, ...]
    tables: tuple[Path, ...]
    failed_on: tuple[str, ...] = ()
    unjudged: str = ""


Watch = Callable[[Progress, Attempt | None], None]  # called before the first unit, and with every attempt as it ends


def run_campaign(
    plan: Plan,
    *,
    say: Say = lambda text: None,
    watch: Watch = lambda progress, attempt: None,
) -> CampaignOutcome:
    """Carries out the units of a plan that are not done in its `output_path`, and writes the tables.

    say: called with what the command would print

    Raises ValueError, ImportError or OSError, in one sentence and before a model is loaded, for what has to be
    changed. A unit that fails raises nothing: the outcome names it.
    """
    folder = CampaignFolder(plan.output_path)
    with sole_use(folder.path):
        prepared = prepare(plan, folder, say)
        units = prepared.units()
        for sentence in set_apart(folder, prepared.plan, units):
            say(sentence)
        left = folder.left(units)
        chosen = engine_of(plan.engine, plan.address, prepared.plan, folder)
        say(f"engine: {chosen.description}; {len(units)} units, {len(units) - len(left)} of them done")
        _begin_session(folder, chosen)
        progress = Progress(units, left)
        try:
            if left:
                _carry_out(chosen, left, progress, folder, watch)
                for sentence in set_apart(folder, prepared.plan, units):
                    say(f"changed while the campaign ran: {sentence}; start the same command again")
        finally:
            done = [unit for unit in units if folder.done(unit)]
            folder.write_manifest(with_units(folder.manifest(), folder, done))
        if len(done) == len(units):
            folder.tidy()
        tables = tuple(write_tables(folder, say))
        failed = tuple(progress.failed)
        found = annotations_of(folder) if plan.fail_on else []
        judged = gate(plan, benchmarks([row for one in found for row in one.rows]))
        return CampaignOutcome(folder, len(units), len(done), failed, tables, *judged)


def prepare(plan: Plan, folder: CampaignFolder, say: Say) -> CheckedPlan:
    """The plan as it is carried out, written to the folder. What was checked when the campaign began is not checked
    again if the plan is the same.

    Raises ValueError for another plan than that of the folder, and whatever `checked` raises.
    """
    manifest, asked = folder.manifest(), as_settings(plan)
    if manifest and manifest.get("asked") == asked:
        return CheckedPlan(folder.plan, tuple(Impossible(**one) for one in manifest["impossible"]))
    say("reading the tasks ...")
    found = checked(plan)
    if not manifest and folder.runs.exists():
        raise ValueError(f"{folder.path} has runs that no engine's workers made; give another output_path")
    if manifest and (told := differences(folder.plan, found.plan)):
        raise ValueError(f"{folder.path} has another campaign: {'; '.join(told)}; give another output_path")
    for one in found.impossible:
        say(f"left out: {one.reason}")
    atomic_write(folder.path / PLAN, plan_as_yaml(found.plan))
    seeds = {"drawing": plan.seed, "lm_eval": "its defaults; each results file has them"}
    beginning = {
        "format": MANIFEST_VERSION,
        "begun": now(),
        "versions": known_versions(),
        "asked": asked,
        "plan": as_settings(found.plan),
        "impossible": [asdict(one) for one in found.impossible],
        "seeds": seeds,
        "how": {"models": HOW_MODELS, "files": HOW_FILES},
        "sessions": [],
        TASK_FILES: {**found.files, **(manifest.get(TASK_FILES) or {})},
    }
    folder.write_manifest({**beginning, **{key: manifest[key] for key in KEPT if key in manifest}})
    return found


def _begin_session(folder: CampaignFolder, engine: CampaignEngine) -> None:
    manifest = folder.manifest()
    session = {
        "begun": now(),
        "engine": engine.description,
        "host": socket.gethostname(),
        "versions": known_versions(),
    }
    folder.write_manifest({**manifest, "sessions": [*manifest.get("sessions", []), session]})


def _carry_out(
    engine: CampaignEngine, left: Sequence[Unit], progress: Progress, folder: CampaignFolder, watch: Watch
) -> None:
    def tell(attempt: Attempt) -> None:
        progress.ended(attempt)
        watch(progress, attempt)

    watch(progress, None)
    with _status_written(folder, progress, engine.description):
        engine.carry_out(left, tell, progress.begun)


@contextmanager
def _status_written(folder: CampaignFolder, progress: Progress, engine: str) -> Iterator[None]:
    """Writes the status file every few seconds, and once more at the end."""
    ended = threading.Event()

    def write(state: str) -> None:
        who = {"state": state, "time": now(), "engine": engine, "host": socket.gethostname(), "pid": os.getpid()}
        folder.write_status(who | progress.as_status())

    def keep_writing() -> None:
        while not ended.wait(SECONDS_OF_STATUS):
            write(RUNNING)

    write(RUNNING)
    thread = threading.Thread(target=keep_writing, daemon=True)
    thread.start()
    state = BROKEN_OFF
    try:
        yield
        state = AT_ITS_END
    finally:
        ended.set()
        thread.join()
        write(state)
