"""Carries out a plan: checks it, gives an engine what is left, tells how far it is, ends with verdicts.

Where the work is done in this process by one model, what there is to do is planned first, and shown.

How far it is is counted as attempts end, without looking at any file; `check --status` reads the status file alone.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from lm_eval_leakage.files import atomic_remove, atomic_write, published, sole_use
from lm_eval_leakage.harness.backends import backend_of_loaded, named_as_loaded
from lm_eval_leakage.harness.models.server_proof import proven
from lm_eval_leakage.harness.own_benchmark import is_file_of_questions
from lm_eval_leakage.harness.preflight import one_at_a_time, scored_by
from lm_eval_leakage.harness.saved_run import random_numbers_kept
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.engines import CampaignEngine, engine_of, now
from lm_eval_leakage.jobs.estimates import (
    CheckedPlan,
    check_early,
    checked,
    foreseen,
    refuse_above_limit,
    tokens_of_units,
    tokens_planned,
)
from lm_eval_leakage.jobs.folder import PLAN, RUNNING, STATUS, STEP, Attempt, CampaignFolder
from lm_eval_leakage.jobs.manifest import (
    AUDITS,
    CONTROLLED,
    MANIFEST_VERSION,
    MODELS,
    TASK_FILES,
    differences,
    set_apart,
    with_changed_files,
)
from lm_eval_leakage.jobs.manifest import versions as known_versions
from lm_eval_leakage.jobs.outcome import CheckOutcome, conclude, ends_first_stage, judged, read_looks
from lm_eval_leakage.jobs.plan import RUN, RUNS, Plan, Unit, as_settings, check_plan, plan_as_yaml
from lm_eval_leakage.jobs.planning import NOT_POSSIBLE, THERE, TO_RUN, CheckPlan, Planned, Planner
from lm_eval_leakage.jobs.unit_worker import InlineEngine, OnScreen
from lm_eval_leakage.logs.run import MANIFEST, UNSEEN, digest_of
from lm_eval_leakage.results.formatting import about, count, counted, duration, whole_percent
from lm_eval_leakage.stats.order_power import DETECT_TIMES
from lm_eval_leakage.texts import in_one_sentence

logger = logging.getLogger(__name__)

FAILURES_LISTED = 100  # in the status file


class Progress:
    """Changed by one thread, and read by another that writes the status file.

    units: all that can be done; left: those that are not done when the session begins
    """

    def __init__(
        self, units: Sequence[Unit], left: Collection[Unit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._begun = clock, clock()
        self.n_units = len(units)
        self.n_done_before = self.n_units - len(left)
        self._n_done = self._n_requests = self._n_tokens = 0
        self._working: dict[Unit, tuple[str, float]] = {}
        self._failed: dict[Unit, Attempt] = {}

    def begun(self, unit: Unit, worker: str) -> None:
        self._working[unit] = (worker, self._clock())

    def ended(self, attempt: Attempt) -> None:
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
        working = [
            {"unit": unit.id, "worker": worker, "seconds": round(self._clock() - since, 1)}
            for unit, (worker, since) in list(self._working.items())
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
WORKING_SHOWN, FAILURES_SHOWN = 20, 20


def status_as_text(folder: CampaignFolder) -> str:
    """Raises ValueError if there is no campaign in the folder."""
    status = folder.status()
    if not status:
        raise ValueError(f"{folder.path} has no {STATUS}; name the folder of a campaign that has begun")
    return "\n".join(_lines(folder, status))


def _lines(folder: CampaignFolder, status: Mapping[str, Any]) -> Iterator[str]:
    units, is_running = status["units"], status["state"] == RUNNING
    age = (datetime.now(timezone.utc) - datetime.fromisoformat(status["time"])).total_seconds()
    told = f"{status['state']} on {status['host']} (process {status['pid']}), {duration(age)} ago"
    # on another machine only its silence tells whether the driver lives
    is_gone = status["host"] == socket.gethostname() and not psutil.pid_exists(status["pid"])
    if is_running and (age > SILENT or is_gone):
        is_running = False
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
        f"second{f', about {duration(left)} left' if left and is_running else ''}"
    )
    for one in status["in_progress"][:WORKING_SHOWN] if is_running else ():
        yield f"in progress: {one['unit']} for {duration(one['seconds'] + age)} ({one['worker']})"
    for one in status["failures"][:FAILURES_SHOWN]:
        yield f"failed: {one['unit']}: {one['error']} (log: {folder.log_of(Unit.of_id(one['unit']))})"


SECONDS_OF_STATUS = 5.0
AT_ITS_END, BROKEN_OFF = "ended", "interrupted"
EDITED = "other questions, rows or settings of the audit, or lines that a log has lost"

Say = Callable[[str], None]
Watch = Callable[[Progress, Attempt | None], None]  # called before the first unit, and with every attempt as it ends


def _silent(text: str) -> None:
    """Prints nothing."""


def run_plan(plan: Plan, *, say: Say = _silent, watch: Watch = lambda *_: None) -> CheckOutcome:
    """Carries out what is not done yet in the plan's `output_path`, and ends with verdicts, which are also written.

    say: called with what the command would print

    Raises ValueError, ImportError or OSError, in one sentence and before a model is loaded where that is possible, for
    what has to be changed. A unit that fails raises nothing: the outcome names it.
    """
    check_early(plan)
    folder = CampaignFolder(plan.output_path, keeps_answers=plan.is_here)
    _look_at_servers(plan, folder, say)
    if plan.dry_run and not plan.is_here:
        say("reading the tasks ...")
        return CheckOutcome((), (), plan_text=foreseen(checked(plan), say))
    compile_templates_once()
    with sole_use(folder.path):
        return _run_plan(plan, folder, say, watch)


def _look_at_servers(plan: Plan, folder: CampaignFolder, say: Say) -> None:
    """Says how servers are asked, and what they give for a known text; a dry run does not ask them, and a plan that
    was begun not again. Raises ValueError if that is not what the audits need. Nothing of models that are loaded."""
    models = [model for model in plan.asked_models if model.loaded is None]
    for slow in dict.fromkeys(one_at_a_time(model.model, model.model_args) for model in models):
        if slow:
            say(slow)
    if plan.dry_run or folder.manifest().get("asked") == as_settings(plan):
        return
    for model in models:
        if (kind := scored_by(model.model, plan.audits)) and (found := proven(kind, model.model_args)):
            say(found)


def _run_plan(plan: Plan, folder: CampaignFolder, say: Say, watch: Watch) -> CheckOutcome:
    read_looks(folder.path)  # before hours of asking
    if plan.is_here:  # the same weights under another path are the same model
        plan = plan.kept_as(folder.manifest().get(MODELS) or {})
    prepared = prepare(plan, folder, say)
    session, units = _Session(prepared, folder, say, watch), prepared.units()
    shown, planned = session.planned(units) if plan.is_here else (None, {})
    if shown is not None:
        say(shown.as_text)
        if plan.dry_run:
            return CheckOutcome((), (), shown)
    if plan.max_tokens_asked is not None:
        left = folder.left(units)
        refuse_above_limit(plan, tokens_planned(planned) if plan.is_here else tokens_of_units(prepared, left))
    _record_beginning(folder, plan, prepared)
    if (decided := session.decided_early(planned)) is not None:
        shown, planned = session.planned(units, decided)
        if decided:
            say(f"decided by {_sizes(planned, decided)}\n\n{shown.as_text}")
    remarks = session.up_to_date(units, planned)
    left = folder.left(units)
    chosen = session.inline(planned, left) if plan.is_here else _engine(plan, session, len(units), len(left))
    _begin_session(folder, chosen)
    progress = Progress(units, left)
    if left:
        session.carry_out(chosen, left, progress)
        for sentence in set_apart(folder, prepared.plan, units):
            say(f"changed meanwhile: {sentence}; start the same command again")
    if not folder.left(units):
        folder.tidy()
    failed = {attempt.unit: attempt for attempt in progress.failed}
    return replace(conclude(plan, prepared, folder, failed, remarks), plan=shown)


def _sizes(planned: Planned, tasks: Collection[str]) -> str:
    """How many questions of each task have their orders asked: "200 questions of arc_easy, 400 questions of mmlu"."""
    sizes = {unit.task: step.n_questions for unit, step in planned.items() if unit.kind == FIRST_AUDIT}
    return ", ".join(f"{counted(sizes[task], 'question')} of {task}" for task in sorted(tasks))


def _engine(plan: Plan, session: _Session, n_units: int, n_left: int) -> CampaignEngine:
    found = engine_of(plan.engine, plan.address, session.prepared.plan, session.folder)
    session.say(f"engine: {found.description}; {n_units} units, {n_units - n_left} of them done")
    return found


@dataclass(frozen=True)
class _Session:
    """What a command carries out, in which folder, and who hears of it."""

    prepared: CheckedPlan
    folder: CampaignFolder
    say: Say
    watch: Watch

    def planned(self, units: Sequence[Unit], early: Collection[str] = ()) -> tuple[CheckPlan, Planned]:
        """What there is to do for each unit, which loads tasks and data, and no model.

        early: tasks of which the questions of the first stage are asked

        Raises ValueError if no audit is possible: an accuracy alone would end without a verdict.
        """
        plan, folder = self.prepared.plan, self.folder
        planner = Planner(plan, self.prepared.shelf, early)
        changed = with_changed_files(folder, plan, units)
        places = {unit: [] if unit in changed else [folder.run_of(unit), *folder.earlier_of(unit)] for unit in units}
        planned = {unit: planner.step(unit, own) for unit, own in places.items()}
        audits = [step for unit, step in planned.items() if unit.kind != RUN and unit.room == RUNS]
        if audits and all(step.status == NOT_POSSIBLE for step in audits):
            raise ValueError(
                f"{audits[0].task} cannot be checked: {audits[0].note}; "
                f"{audits[0].remedy or 'choose another benchmark or model'}"
            )
        prepared = self.prepared
        return planner.table(planned, prepared.impossible, prepared.unread_in_words), planned

    def decided_early(self, planned: Planned) -> frozenset[str] | None:
        """The tasks for which the first of two stages finds clear evidence, or excludes what has to be excluded; None
        if there is no first stage to be done. What it finds otherwise is not told, and its answers are used by the
        second stage."""
        prepared, folder = self.prepared, self.folder
        orders = {unit.task: step for unit, step in planned.items() if unit.kind == FIRST_AUDIT}
        staged = {task for task, step in orders.items() if step.staged and step.status == TO_RUN}
        units = [unit for unit in planned if unit.task in staged and unit.suffix == FIRST_AUDIT]
        if not units:
            return None
        _, early = self.planned(units, staged)
        self.up_to_date(units, early)
        if left := folder.left(units):
            aim = f"the exclusion of {whole_percent(prepared.plan.detect)} seen {DETECT_TIMES} times"
            self.say(f"\nfirst stage, {_sizes(early, staged)}: clear evidence ends it, or {aim}")
            self.carry_out(self.inline(early, left), left, Progress(units, left))
        found = judged(prepared.plan, prepared, folder, {}, keep=False)
        decided = {one.task for one in found if any(ends_first_stage(row.verdict) for row in one.own_rows)}
        undecided = {unit: EDITED for unit in units if unit.task not in decided and unit.room != UNSEEN}
        set_apart(folder, prepared.plan, undecided, undecided)
        return frozenset(staged & decided)

    def up_to_date(self, units: Sequence[Unit], planned: Planned) -> list[str]:
        """Leaves in the folder's rooms what holds for the plan as it is now; says, and returns, what is to be said of
        the rest.

        planned: empty where workers plan
        """
        folder = self.folder
        there = {unit: Path(step.note).parents for unit, step in planned.items() if step.status == THERE}
        stale = {unit: EDITED for unit in planned if folder.run_of(unit) not in there.get(unit, ())}
        for unit in units:  # what was found of given runs, and of what a backend can answer, may have changed
            if folder.done(unit) and not folder.was_asked(unit):
                atomic_remove(folder.run_of(unit))
        remarks = set_apart(folder, self.prepared.plan, units, stale)
        for unit, step in planned.items():
            earlier = [place for place in folder.earlier_of(unit) if place in there.get(unit, ())]
            if earlier:
                published(earlier[0], folder.run_of(unit))
            elif step.job is None and not folder.done(unit):
                folder.complete(unit, {STEP: step.as_record})
        for sentence in remarks:
            self.say(sentence)
        return remarks

    def inline(self, planned: Planned, left: Sequence[Unit]) -> CampaignEngine:
        """The engine whose user looks on."""
        screen = OnScreen(planned, left, self.say, self.prepared.plan.quiet)
        return InlineEngine(self.prepared.plan, self.folder, screen=screen)

    def carry_out(self, engine: CampaignEngine, left: Sequence[Unit], progress: Progress) -> None:
        def tell(attempt: Attempt) -> None:
            progress.ended(attempt)
            self.watch(progress, attempt)

        self.watch(progress, None)
        with _status_written(self.folder, progress, engine.description):
            engine.carry_out(left, tell, progress.begun)


def prepare(plan: Plan, folder: CampaignFolder, say: Say) -> CheckedPlan:
    """The plan as it is carried out. What an engine's workers began is not checked again if the plan is the same and
    names no file of questions, which may have other rows now.

    Raises ValueError for another plan than that of the folder, unless both are of one model in this process: then what
    differs is run again.
    """
    manifest = folder.manifest()
    if not manifest and any(room.exists() for room in folder.rooms):
        raise ValueError(f"{folder.path} has runs and no {MANIFEST}; give another output_path")
    has_files = any(map(is_file_of_questions, plan.tasks))
    if manifest and not plan.is_here and not has_files and manifest.get("asked") == as_settings(plan):
        return CheckedPlan.of(folder)
    say("reading the tasks ...")
    found = checked(plan)
    may_differ = plan.is_here and (not manifest or folder.plan.is_here)
    if manifest and not may_differ and (told := differences(folder.plan, found.plan)):
        raise ValueError(f"{folder.path} has another campaign: {'; '.join(told)}; give another output_path")
    for reason in () if plan.is_here else dict.fromkeys(found.impossible.values()):  # there, a table has them
        say(f"left out: {reason}")
    for sentence in () if plan.is_here else found.unread_in_words:
        say(sentence)
    return found


def _record_beginning(folder: CampaignFolder, plan: Plan, found: CheckedPlan) -> None:
    manifest, asked = folder.manifest(), as_settings(plan)
    known: Mapping[str, Mapping[str, str]] = manifest.get(TASK_FILES) or {}
    if manifest.get("asked") == asked and not plan.is_here:
        return
    atomic_write(folder.path / PLAN, plan_as_yaml(found.plan))
    beginning = {
        "format": MANIFEST_VERSION,
        "begun": manifest.get("begun", now()),
        "versions": known_versions(),
        "asked": asked,
        "impossible": [
            {"model": unit.model, "task": unit.task, "kind": unit.kind, "reason": reason}
            for unit, reason in found.impossible.items()
        ],
        AUDITS: {task: [*audits] for task, audits in sorted(found.audits.items())},
        CONTROLLED: sorted(found.controlled),
        "seeds": {"drawing": plan.seed, "lm_eval": "its defaults; each results file has them"},
        "sessions": manifest.get("sessions", []),
        MODELS: (manifest.get(MODELS) or {}) | {digest_of(one.who.identity): one.key for one in plan.asked_models},
        TASK_FILES: {task: {**found.files.get(task, {}), **known.get(task, {})} for task in {**found.files, **known}},
    }
    folder.write_manifest(beginning | {key: told for key, told in manifest.items() if key not in beginning})


def _begin_session(folder: CampaignFolder, engine: CampaignEngine) -> None:
    manifest = folder.manifest()
    session = {
        "begun": now(),
        "engine": engine.description,
        "host": socket.gethostname(),
        "versions": known_versions(),
    }
    folder.write_manifest({**manifest, "sessions": [*manifest.get("sessions", []), session]})


@contextmanager
def _status_written(folder: CampaignFolder, progress: Progress, engine: str) -> Iterator[None]:
    """Write the status file every few seconds, and once more at the end.

    A disk that is full meanwhile costs only the status: what else is written ends the command with its own reason.
    """
    ended = threading.Event()

    def write(state: str) -> None:
        who = {"state": state, "time": now(), "engine": engine, "host": socket.gethostname(), "pid": os.getpid()}
        folder.write_status(who | progress.as_status())

    def keep_writing() -> None:
        while not ended.wait(SECONDS_OF_STATUS):
            with suppress(OSError):
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
        with suppress(OSError):
            write(state)


def check(
    model: str | object | None = None,
    model_args: str | Mapping[str, Any] | None = None,
    tasks: str | Sequence[str] | None = None,
    *,
    fields: str | Mapping[str, str | Sequence[str]] | None = None,
    config: str | Path | None = None,
    runs: str | Path | Sequence[str | Path] | None = None,
    reference: str | Path | Mapping[str, Any] | None = None,
    unseen: str | Path | None = None,
    positive_control: str | Path | None = None,
    orders: str | None = None,
    questions: int | str | None = None,
    budget: int | None = None,
    detect: float | str | None = None,
    max_tokens_asked: int | None = None,
    seed: int | None = None,
    output_path: str | Path | None = None,
    fail_on: str | None = None,
    allow_untold: bool | None = None,
    export: str | Sequence[str] | None = None,
    batch_size: int | str | None = None,
    device: str | None = None,
    include_path: str | Path | None = None,
    apply_chat_template: bool | str | None = None,
    system_instruction: str | None = None,
    num_fewshot: int | None = None,
    metadata: str | Mapping[str, Any] | None = None,
    dry_run: bool | None = None,
    say: Callable[[str], None] | None = None,
) -> CheckOutcome:
    """Checks models for leakage of benchmarks: runs what is missing and returns one verdict per model and task.

    Parameters are those of the command `lm-eval-leakage check`, with its defaults: model, model_args, tasks as for
    `lm_eval run`, where a task may also be a file of plain questions. `config` is a plan in YAML; what is given beside
    it has precedence. Runs, page and verdicts are written into `output_path` (`leakage`); calling it again continues
    where it was killed.

    model: or one that lm_eval has loaded, such as an HFLM, which is asked as it is and left as it was. It is known by
        its weights; `model_args` name it where it has no name. Then nothing is raised, so that a harness's own loop
        goes on: the outcome's `problems` say why there is no verdict
    say: called with what the command would print meanwhile, such as `print`; by default nothing is printed

    Raises ValueError, in one sentence, for what the caller has to change.
    """
    told = dict(locals())
    given = {name: value for name, value in told.items() if name not in ("config", "say")}
    if model is not None and not isinstance(model, str):
        return _check_loaded(model, given, config, say)
    plan = check_plan(given, config)
    return run_plan(plan.changed(quiet=say is None), say=say or _silent)


def _check_loaded(lm: Any, given: dict[str, Any], config: str | Path | None, say: Say | None) -> CheckOutcome:
    try:
        backend = backend_of_loaded(lm)
        plan = check_plan({**given, "model": backend}, config)
        (model,) = plan.models
        model = model.model_copy(update={"model_args": named_as_loaded(lm, backend, model.model_args)})
        held = plan.changed(models=(model.holding(lm),), quiet=say is None)
        if not held.is_here:
            raise ValueError("a loaded model is asked in this process; leave out engine and workers")
        with random_numbers_kept():
            return run_plan(held, say=say or _silent)
    except (Exception, SystemExit) as error:
        told = in_one_sentence(error)
        logger.warning("the loaded model could not be checked: %s", told)
        return CheckOutcome((), (), problems=(told,))
