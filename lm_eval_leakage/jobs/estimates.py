"""What is wrong with a plan, or cannot be done, before any model is loaded.

What a campaign will take: requests and tokens of each model, by its own tokenizer, and GPU hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.harness.backends import why_cannot_answer
from lm_eval_leakage.harness.costs import ROWS_MEASURED, RunSize, size_of_chosen, speed_of
from lm_eval_leakage.harness.models.model_identity import parameters_on_disk
from lm_eval_leakage.harness.models.request_tokens import SCORED, tokenizer_on_disk
from lm_eval_leakage.harness.preflight import preflight, warn_if_one_at_a_time, why_not
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.data import ENDINGS
from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
from lm_eval_leakage.jobs.engines import entry_of
from lm_eval_leakage.jobs.manifest import UnitQuestions, files_of_tasks
from lm_eval_leakage.jobs.plan import RUN, Plan, PlanModel, Unit, units_of
from lm_eval_leakage.results.formatting import DASH, about, count, counted, markdown_of

if TYPE_CHECKING:
    from lm_eval_leakage.harness.auditable import Finding


ANY = "*"


@dataclass(frozen=True)
class Impossible:
    """Units that cannot be done, and why. `*` stands for any model, task or audit."""

    model: str
    task: str
    kind: str
    reason: str


@dataclass(frozen=True)
class CheckedPlan:
    """plan: with tasks and groups instead of tags and patterns
    files: digests of the user's own files that each task is made of
    """

    plan: Plan
    impossible: tuple[Impossible, ...]
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def units(self) -> list[Unit]:
        """Those that can be done."""
        known = {(one.model, one.task, one.kind) for one in self.impossible}
        return [
            unit
            for unit in units_of(self.plan)
            if known.isdisjoint(
                product((unit.model, ANY), (unit.task, ANY), (unit.kind, *([] if unit.kind == RUN else [ANY])))
            )
        ]


def checked(plan: Plan) -> CheckedPlan:
    """Raises ValueError, ImportError or OSError for what has to be changed: what `check_early` finds, and a plan of
    which no unit can be done."""
    from lm_eval_leakage.harness.auditable import findings_of

    check_early(plan)
    for model in plan.models:
        warn_if_one_at_a_time(model.model, model.model_args)
    shelf = TaskShelf(plan.include_paths)
    named = plan.changed(tasks=tuple(shelf.names(plan.tasks)))
    leaves = {task: findings_of(task, shelf.index) for task in named.tasks}
    impossible = (*_not_audited(named, leaves), *_not_answered(named, leaves, shelf))
    found = CheckedPlan(named, impossible, files_of_tasks(named, shelf.index))
    if not found.units():
        raise ValueError(f"no unit of the plan can be done: {found.impossible[0].reason}; change models or tasks")
    return found


def check_early(plan: Plan) -> None:
    """Raises ValueError, ImportError or OSError for what can be known before the index of tasks is built, and before
    what runs models is imported, which takes seconds, too: unknown names, missing packages and folders, tasks or
    backends that no audit of the plan fits."""
    check_writable(plan.output_path, folder=True)
    if plan.engine is not None:
        entry_of(plan.engine, plan.address)
    for module in plan.imports:
        _import(module)
    told = [(one.model, one.model_args) for one in plan.models]
    told += [(plan.models[0].model, plan.reference)] if isinstance(plan.reference, Mapping) else []
    files = [task for task in plan.tasks if task.endswith(ENDINGS)]
    preflight(
        [task for task in plan.tasks if task not in files],
        told,
        audits=() if plan.runs else plan.audits,
        include_path=plan.include_path,
        data_files=plan.metadata.get("data_files"),
        files=files,
        device=plan.models[0].device,
        leaves_out=not plan.is_here,
    )
    if plan.unseen is not None:
        preflight(plan.tasks, audits=plan.audits, include_path=plan.include_path, data_files=plan.unseen)
    if plan.audits and (refusal := refusal_of_keys(plan.metadata, of_audits_only=not plan.accuracy)):
        raise ValueError(f"metadata: {refusal}")


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error


Leaves = Mapping[str, Sequence["Finding"]]  # what `ls` finds on the tasks in a task or group


def _not_audited(plan: Plan, leaves: Leaves) -> Iterable[Impossible]:
    """Tasks of which nothing can be audited, as `ls` finds them."""
    from lm_eval_leakage.harness.auditable import NOT_AUDITED

    for task, found in leaves.items() if plan.audits else ():
        if found and all(one.status == NOT_AUDITED for one in found):
            yield Impossible(ANY, task, ANY, f"{task} cannot be audited: {found[0].reason}")


def _not_answered(plan: Plan, leaves: Leaves, shelf: TaskShelf) -> Iterable[Impossible]:
    """Audits and runs that a model's backend cannot answer."""
    needs = {task: {_need(shelf, one.task) for one in found} for task, found in leaves.items() if plan.accuracy}
    for model in plan.models:
        for audit in plan.audits:
            if reason := why_not(model.model, audit):
                yield Impossible(model.name, ANY, audit, f"{audit} cannot run: {reason}")
        for task, own in needs.items():
            reasons = [why_cannot_answer(model.model, need) if need else "" for need in own]
            if reasons and all(reasons):
                yield Impossible(model.name, task, RUN, f"{task} cannot run: {reasons[0]}")


def _need(shelf: TaskShelf, task: str) -> str:
    """The method of the model that answers a task's requests; empty if only the task itself knows."""
    from lm_eval_leakage.harness.models.request_tokens import SCORED

    output_type = (shelf.index[task].cfg or {}).get("output_type")
    if output_type is None:
        return ""
    return output_type if output_type in ("generate_until", "loglikelihood_rolling") else SCORED


HOUR = 3600
ESTIMATED = ("model", "units", "requests", "tokens in rows", "tokens as a tree", "tokens read", "GPU hours")


@dataclass(frozen=True)
class ModelEstimate:
    """Of all units of one model.

    sizes: of its runs and audits; None if its tokenizer is not on this machine
    n_parameters: None if its weights are not on this machine
    """

    model: PlanModel
    n_units: int
    sizes: Sequence[RunSize] | None
    n_parameters: int | None

    def gpu_hours(self, tflops: float) -> float | None:
        """tflops: 10^12 operations per second that a GPU achieves"""
        if self.sizes is None or self.n_parameters is None:
            return None
        n_read = sum(size.n_read(self.model.model) for size in self.sizes)
        return n_read / speed_of(self.n_parameters, tflops).tokens_per_second / HOUR

    def cells(self, tflops: float) -> list[str]:
        """With tokens where each text has a row of its own, where every shared prefix is read once, and as read."""
        hours, numbers = self.gpu_hours(tflops), [DASH] * 4
        if self.sizes is not None:
            counts = [(size.tokens.counts, size.method == SCORED) for size in self.sizes]
            told = [
                sum(one.n_texts for one, _ in counts),
                sum(one.n_row_tokens for one, _ in counts),
                sum(one.n_tree_tokens if shares else one.n_row_tokens for one, shares in counts),
                sum(size.n_read(self.model.model) for size in self.sizes),
            ]
            numbers = [about(n) for n in told]
        return [self.model.name, count(self.n_units), *numbers, DASH if hours is None else f"{hours:.2g}"]


def estimates(prepared: CheckedPlan, say: Callable[[str], None]) -> tuple[list[ModelEstimate], list[str]]:
    """The second are the reasons why a task or audit could not be counted. Loads tasks, their data and tokenizers, and
    no model."""
    plan = prepared.plan
    tokenizers = {model.name: tokenizer_on_disk(model.model_args) for model in plan.models}
    units = prepared.units()
    sizes: dict[str, list[RunSize]] = {name: [] for name, found in tokenizers.items() if found is not None}
    problems: dict[str, None] = {}
    shelf = TaskShelf(plan.include_paths)
    questions = {model.name: UnitQuestions(plan, model, shelf) for model in plan.models}
    wholes = dict.fromkeys(Unit(unit.model, unit.task, unit.kind, 0, 1) for unit in units)
    for place, unit in enumerate(sorted(wholes, key=lambda one: (one.task, one.kind)), 1):
        tokenizer = tokenizers[unit.model]
        say(f"[{place}/{len(wholes)}] {unit.asked}, {unit.model}")
        if tokenizer is not None:
            try:
                loaded, samples = questions[unit.model].of(unit)
                chat_template = plan.model(unit.model).apply_chat_template
                sizes[unit.model].append(size_of_chosen(loaded.leaves, samples, tokenizer, chat_template))
            except (ValueError, OSError, KeyError) as error:
                problems[f"{unit.asked}: {error}"] = None
    n_units = Counter(unit.model for unit in units)
    found = [
        ModelEstimate(one, n_units[one.name], sizes.get(one.name), parameters_on_disk(one.model_args))
        for one in plan.models
    ]
    return found, list(problems)


def as_text(prepared: CheckedPlan, found: Sequence[ModelEstimate], problems: Sequence[str], tflops: float) -> str:
    """A row per model, their sum, and in sentences what the numbers rest on."""
    plan, kinds = prepared.plan, Counter(unit.kind for unit in prepared.units())
    told = ", ".join(f"{kind} {count(n)}" for kind, n in kinds.items())
    head = (
        f"{counted(kinds.total(), 'unit')} ({told}): {counted(len(plan.models), 'model')}, "
        f"{counted(len(plan.tasks), 'task')}, {counted(plan.shards, 'shard')} each"
    )
    lines = [list(ESTIMATED), *(one.cells(tflops) for one in found)]
    known = [hours for one in found if (hours := one.gpu_hours(tflops)) is not None]
    remarks = [
        f"- about {sum(known):.2g} GPU hours for {len(known)} of {counted(len(found), 'model')}: 2 operations per "
        f"parameter and token at {tflops:g} TFLOP/s (--tflops), without loading models and starting workers",
        f"- {ROWS_MEASURED} questions of each run or audit are tokenised, the rest is taken to be like them",
    ]
    remarks += [
        f"- {one.model.name}: tokens are not known, since its tokenizer is not on this machine"
        for one in found
        if one.sizes is None
    ]
    remarks += [
        f"- {one.model.name}: GPU hours are not known, since no safetensors files of it are on this machine"
        for one in found
        if one.n_parameters is None
    ]
    remarks += [f"- left out: {one.reason}" for one in prepared.impossible]
    remarks += [f"- not counted: {problem}" for problem in problems]
    return "\n".join([head, "", markdown_of(lines), "", *remarks])
