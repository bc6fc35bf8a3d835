"""Carries out a plan: plans every unit once, has an engine run what is left, and ends with verdicts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_remove, atomic_write, published, sole_use
from lm_eval_leakage.harness.models.server_proof import proven
from lm_eval_leakage.harness.preflight import one_at_a_time, scored_by
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.checked_plan import CheckedPlan, resolve_plan
from lm_eval_leakage.jobs.conclusion import conclude, judge_tasks
from lm_eval_leakage.jobs.dtypes import with_dtypes
from lm_eval_leakage.jobs.early_checks import check_plan_early
from lm_eval_leakage.jobs.engines import JobEngine, engine_of
from lm_eval_leakage.jobs.findings import ends_first_stage, read_looks
from lm_eval_leakage.jobs.folder import STEP, Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.inline_engine import InlineEngine
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks
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
from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.jobs.plan import INLINE, Plan, as_settings, plan_as_yaml
from lm_eval_leakage.jobs.plan_table import PlanTable, Steps, plan_table, refuse_above_limit, tokens_of_models
from lm_eval_leakage.jobs.planner import Planner
from lm_eval_leakage.jobs.progress import Progress, status_written
from lm_eval_leakage.jobs.queue import Queue
from lm_eval_leakage.jobs.steps import Step, StepStatus
from lm_eval_leakage.jobs.supervision import carry_out
from lm_eval_leakage.jobs.unit_runner import OnScreen
from lm_eval_leakage.jobs.units import RUN, Role, Unit
from lm_eval_leakage.logs.run import MANIFEST, PLAN, digest_of
from lm_eval_leakage.results.formatting import counted, whole_percent
from lm_eval_leakage.stats.order_power import DETECT_TIMES

EDITED = (
    "other questions, rows or settings of the audit, or lines that a log has lost; answers of an audit are used again"
)

Say = Callable[[str], None]
Watch = Callable[[Progress, Attempt | None], None]  # called before the first unit, and with every attempt as it ends
TasksOfModels = Collection[tuple[str, str]]  # keys of models, each with a task


def silent(text: str) -> None:
    """Prints nothing."""


def run_plan(plan: Plan, *, say: Say = silent, watch: Watch = lambda *_: None) -> CheckOutcome:
    """Carry out what is not done yet in the plan's `output_path`, and return verdicts, which are also written.

    say: called with what the command would print

    Raises ValueError, ImportError or OSError, in one sentence and before a model is loaded where that is possible, for
    what has to be changed. A unit that fails raises nothing: the outcome names it.
    """
    check_plan_early(plan)
    plan, of_dtypes = with_dtypes(plan)
    folder = CampaignFolder(plan.output_path)
    _look_at_servers(plan, folder, say)
    compile_templates_once()
    with nullcontext() if plan.dry_run else sole_use(folder.path):
        return _run_plan(plan, folder, say, watch, of_dtypes)


def _look_at_servers(plan: Plan, folder: CampaignFolder, say: Say) -> None:
    """Print how servers are asked, and what they return for a known text.

    A dry run does not ask them, and a plan that was begun does not ask them again. Models that are loaded have none.
    Raises ValueError if the answers are not what the audits need.
    """
    models = [model for model in plan.all_models if model.loaded is None]
    for slow in dict.fromkeys(one_at_a_time(model.model, model.model_args) for model in models):
        if slow:
            say(slow)
    if plan.dry_run or folder.manifest().get("asked") == as_settings(plan):
        return
    for model in models:
        if (kind := scored_by(model.model, plan.audits)) and (proof := proven(kind, model.model_args)):
            say(proof)


def _run_plan(plan: Plan, folder: CampaignFolder, say: Say, watch: Watch, of_dtypes: Sequence[str]) -> CheckOutcome:
    read_looks(folder.path)  # before hours of asking
    # the same weights under another path are the same model
    plan = plan.with_earlier_keys(folder.manifest().get(MODELS) or {})
    session = _Session(prepare(plan, folder, say), folder, say, watch, of_dtypes)
    units = session.prepared.units
    steps = session.planned(units)
    table = session.table(steps)
    if plan.dry_run and not session.is_here:
        return CheckOutcome((), (), plan_text=session.foreseen(table, steps))
    say(table.as_text)
    if plan.dry_run:
        return CheckOutcome((), (), table)
    refuse_above_limit(plan.max_tokens_asked, plan.questions, steps)
    _record_beginning(folder, as_settings(plan), session.prepared)
    session.begin(units)
    if (decided := session.first_stage(steps)) is not None:
        steps = session.planned(units, decided)
        table = session.table(steps)
        if decided:
            say(f"decided by {session.sizes(steps, decided)}\n\n{table.as_text}")
    remarks = session.make_ready(steps)
    progress = session.carry_out(units)
    for sentence in session.set_apart(units) if progress.n_left_before else ():
        say(f"changed meanwhile: {sentence}; start the same command again")
    if not folder.left(units):
        folder.tidy()
    failed = {attempt.unit: attempt for attempt in progress.failed}
    return replace(conclude(plan, session.prepared, folder, failed, remarks), plan=table)


def prepare(plan: Plan, folder: CampaignFolder, say: Say) -> CheckedPlan:
    """Return the plan as it is carried out.

    Raises ValueError for another plan than that of the folder where one of them compares models; else what differs is
    run again.
    """
    manifest = folder.manifest()
    if not manifest and any(place.exists() for place in folder.done_folders):
        raise ValueError(f"{folder.path} has runs and no {MANIFEST}; give another output_path")
    say("reading the tasks ...")
    prepared = resolve_plan(plan)
    is_fixed = bool(manifest) and (plan.compares_models or folder.plan.compares_models)
    if is_fixed and (reasons := differences(folder.plan, prepared.plan)):
        raise ValueError(f"{folder.path} has another campaign: {'; '.join(reasons)}; give another output_path")
    return prepared


class _Session:
    """One command on a plan: what it carries out, in which folder, and who is notified."""

    def __init__(
        self,
        prepared: CheckedPlan,
        folder: CampaignFolder,
        say: Say,
        watch: Watch,
        of_dtypes: Sequence[str],
    ) -> None:
        self.plan, self.prepared, self.folder, self.say, self.watch = prepared.plan, prepared, folder, say, watch
        self.is_here = self.plan.is_here
        self._of_dtypes = of_dtypes  # sentences for the plan
        self._tasks, self._done = LoadedTasks(prepared.shelf), set[Unit]()
        self._planner: Planner  # of the latest stage

    def planned(self, units: Sequence[Unit], early: TasksOfModels = frozenset()) -> dict[Unit, Step]:
        """Return the step of each unit, which loads tasks and data, and no model.

        early: those of which the questions of the first stage are asked

        Raises ValueError if nothing is possible that a verdict would rest on.
        """
        folder, plan = self.folder, self.plan
        self._planner = Planner(self.prepared, self._tasks, early)
        self._done = {unit for unit in units if folder.done(unit)}
        changed = with_changed_files(folder, plan.unseen, units)
        pairs = dict.fromkeys((task, unit.model) for task in plan.tasks for unit in units if unit.task == task)
        steps: dict[Unit, Step] = {}
        for place, (task, model) in enumerate(pairs, 1):
            if not self.is_here:
                self.say(f"[{place}/{len(pairs)}] {task}, {model}")
            for unit in units:
                if (unit.task, unit.model) == (task, model):
                    places = [] if unit in changed else [folder.run_of(unit), *folder.earlier_of(unit)]
                    steps[unit] = self._planner.step(unit, places)
        _refuse_without_verdict(steps)
        return {unit: steps[unit] for unit in units}

    def table(self, steps: Steps) -> PlanTable:
        is_counted = len(self._planner.counted) == len(self.prepared.models)
        remarks = [*self._of_dtypes, *(f"{task}: {rows}" for task, rows in self.prepared.unread.items())]
        return plan_table(self.prepared, steps, remarks, is_counted=is_counted)

    def foreseen(self, table: PlanTable, steps: Steps) -> str:
        """Return the plan, and what each of its models costs."""
        backends = {key: model.model for key, model in self.prepared.models.items()}
        models = tokens_of_models(backends, steps, self._planner.counted)
        return f"{table.as_text}\n\n{models}"

    # ------------------------------------------------------------------ two stages

    def first_stage(self, steps: Steps) -> TasksOfModels | None:
        """Return the tasks of models for which the first of two stages ends with clear evidence, or excludes what has
        to be excluded; None if there is no first stage to be done. Any other result is not reported, and its answers
        are used by the second stage."""
        audits = [(unit, step) for unit, step in steps.items() if unit.kind == FIRST_AUDIT]
        to_run = [(unit, step) for unit, step in audits if step.status is StepStatus.TO_RUN]
        staged = {(unit.model, unit.task) for unit, step in to_run if step.staged}
        if not staged:
            return None
        of_orders = [unit for unit in steps if unit.suffix == FIRST_AUDIT]
        units = [unit for unit in of_orders if _models_of(unit, staged)]
        early = self.planned(units, staged)
        self.make_ready(early)
        if self.folder.left(units):
            aim = f"the exclusion of {whole_percent(self.plan.detect)} seen {DETECT_TIMES} times"
            self.say(f"\nfirst stage, {self.sizes(early, staged)}: clear evidence ends it, or {aim}")
            self.carry_out(units)
        decided = set[tuple[str, str]]()
        for findings in judge_tasks(self.prepared, self.folder, {}, keep=False):
            if any(ends_first_stage(row.verdict) for row in findings.own_rows):
                model = next(key for key, who in self.prepared.who.items() if who == findings.who)
                decided.add((model, findings.task))
        decided &= staged
        asked_again = {}
        for unit in units:
            if unit.role is not Role.UNSEEN and not _models_of(unit, staged) <= _models_of(unit, decided):
                asked_again[unit] = EDITED
        self.set_apart(asked_again, asked_again)
        return frozenset(decided)

    def sizes(self, steps: Steps, tasks: TasksOfModels) -> str:
        """Return how many questions of each task have their orders asked: "200 questions of arc_easy"."""
        sizes: dict[tuple[str, int], int] = {}
        for unit, step in steps.items():
            if unit.kind == FIRST_AUDIT and (unit.model, unit.task) in tasks:
                key = unit.task, step.n_questions
                sizes[key] = sizes.get(key, 0) + 1
        is_of_several = len(self.plan.models) > 1
        parts = []
        for (task, n), n_models in sorted(sizes.items()):
            whom = f" for {counted(n_models, 'model')}" if is_of_several else ""
            parts.append(f"{counted(n, 'question')} of {task}{whom}")
        return ", ".join(parts)

    # ------------------------------------------------------------------ carrying out

    def begin(self, units: Sequence[Unit]) -> None:
        """Choose the engine, and record that a session begins."""
        folder, plan = self.folder, self.plan
        n_left = len(folder.left(units))
        if self.is_here or plan.engine == INLINE:
            screen = OnScreen(self.say, plan.quiet) if self.is_here else None
            self._engine: JobEngine = InlineEngine(plan, folder, tasks=self._tasks, screen=screen)
        else:
            self._engine = engine_of(plan.engine, plan.address, plan, folder)
        if not self.is_here:
            self.say(f"engine: {self._engine.description}; {len(units)} units, {len(units) - n_left} of them done")
        session = {
            "begun": now(),
            "engine": self._engine.description,
            "host": socket.gethostname(),
            "versions": known_versions(),
        }
        manifest = folder.manifest()
        folder.write_manifest({**manifest, "sessions": [*manifest.get("sessions", []), session]})

    def make_ready(self, steps: Steps) -> list[str]:
        """Leave in the folder what holds for the plan as it is now, and write a file for each unit to run.

        Print, and return, why units that were done are run again.
        """
        folder = self.folder
        there = {unit: Path(step.note).parents for unit, step in steps.items() if step.status is StepStatus.THERE}
        done = [unit for unit in steps if unit in self._done]
        stale = {unit: EDITED for unit in done if folder.run_of(unit) not in there.get(unit, ())}
        for unit in steps:  # what was read of given runs, and of what a backend can answer, may have changed
            if folder.done(unit) and not folder.was_asked(unit):
                atomic_remove(folder.run_of(unit))
        remarks = self.set_apart(steps, stale)
        for unit, step in steps.items():
            earlier = [place for place in folder.earlier_of(unit) if place in there.get(unit, ())]
            if earlier:
                published(earlier[0], folder.run_of(unit))
            elif step.work is None and not folder.done(unit):
                folder.conclude(unit, {STEP: step.as_record})
        to_run = [unit for unit, step in steps.items() if step.work is not None]
        folder.make_ready([self._planner.ready(unit, steps[unit], place) for place, unit in enumerate(to_run)])
        for sentence in remarks:
            self.say(sentence)
        return remarks

    def set_apart(self, units: Iterable[Unit], stale: Mapping[Unit, str] | None = None) -> list[str]:
        """Move units aside that do not hold for the models and files as they are now: see `manifest.set_apart`."""
        present = {key: who.identity for key, who in self.prepared.who.items()}
        return set_apart(self.folder, present, self.plan.unseen, units, stale)

    def carry_out(self, units: Sequence[Unit]) -> Progress:
        """Have the engine's workers run those of the units that are not done."""
        progress = Progress(self.folder, units, self.plan.retries)

        def report(queue: Queue) -> None:
            for attempt in progress.update(queue):
                self.watch(progress, attempt)

        if self.folder.left(units):
            self.watch(progress, None)
            with status_written(self.folder, progress, self._engine.description):
                carry_out(self._engine, report)
        return progress


def _models_of(unit: Unit, tasks: TasksOfModels) -> set[str]:
    """Return for which models' verdicts on their tasks a unit is run: a reference for those of all models."""
    models = {model for model, task in tasks if task == unit.task}
    return models if unit.role is Role.REFERENCE else models & {unit.model}


def _refuse_without_verdict(steps: Steps) -> None:
    """Raise ValueError if no audit is possible, which an accuracy alone would not make up for, or nothing is."""
    runs = {unit: step for unit, step in steps.items() if unit.role is Role.RUNS}
    audits = [step for unit, step in runs.items() if unit.kind != RUN]
    judged_steps = audits or [*runs.values()]
    if judged_steps and all(step.status is StepStatus.NOT_POSSIBLE for step in judged_steps):
        first = judged_steps[0]
        raise ValueError(
            f"{first.task} cannot be checked: {first.note}; {first.remedy or 'choose another benchmark or model'}"
        )


def _record_beginning(folder: CampaignFolder, given: Mapping[str, Any], prepared: CheckedPlan) -> None:
    """Write the plan, and into the manifest what it was made from.

    given: the settings that the plan was given with
    """
    manifest = folder.manifest()
    recorded: Mapping[str, Mapping[str, str]] = manifest.get(TASK_FILES) or {}
    atomic_write(folder.path / PLAN, plan_as_yaml(prepared.plan))
    beginning = {
        "format": MANIFEST_VERSION,
        "begun": manifest.get("begun", now()),
        "versions": known_versions(),
        "asked": given,
        AUDITS: {task: [*audits] for task, audits in sorted(prepared.audits.items())},
        CONTROLLED: sorted(prepared.controlled),
        "seeds": {"drawing": prepared.plan.seed, "lm_eval": "its defaults; each results file has them"},
        "sessions": manifest.get("sessions", []),
        MODELS: (manifest.get(MODELS) or {}) | {digest_of(who.identity): key for key, who in prepared.who.items()},
        TASK_FILES: {
            task: {**prepared.files.get(task, {}), **recorded.get(task, {})} for task in {**prepared.files, **recorded}
        },
    }
    folder.write_manifest(beginning | {key: value for key, value in manifest.items() if key not in beginning})
