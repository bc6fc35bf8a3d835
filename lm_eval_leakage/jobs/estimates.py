"""What is wrong with a plan, or cannot be done, before any model is loaded.

What a campaign will take: requests and tokens of each model, by its own tokenizer, and GPU hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.harness.backends import why_cannot_answer
from lm_eval_leakage.harness.costs import OPERATIONS, TERA, RunSize, drawn_rows, prepare_to_count, size_of
from lm_eval_leakage.harness.models.model_identity import parameters_on_disk
from lm_eval_leakage.harness.models.request_tokens import SCORED, TokenizerOnly, tokenizer_on_disk
from lm_eval_leakage.harness.preflight import preflight, warn_if_one_at_a_time, why_not
from lm_eval_leakage.harness.task_shelf import LoadedTask, TaskShelf
from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
from lm_eval_leakage.jobs.manifest import UnitQuestions, files_of_tasks
from lm_eval_leakage.jobs.plan import RUN, CampaignModel, CampaignPlan, Unit, units_of
from lm_eval_leakage.jobs.planning import ChosenIndices
from lm_eval_leakage.results.formatting import DASH, about, count, counted, markdown_of

if TYPE_CHECKING:
    from lm_eval_leakage.harness.auditable import Finding
    from lm_eval_leakage.harness.task_shelf import TaskShelf


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

    plan: CampaignPlan
    impossible: tuple[Impossible, ...]
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def units(self) -> list[Unit]:
        """Those that can be done."""
        return possible(units_of(self.plan), self.impossible)


def possible(units: Iterable[Unit], impossible: Iterable[Impossible]) -> list[Unit]:
    known = {(one.model, one.task, one.kind) for one in impossible}
    return [unit for unit in units if known.isdisjoint(_covering(unit))]


def _covering(unit: Unit) -> Iterator[tuple[str, str, str]]:
    """Everything that would make the unit impossible."""
    kinds = (unit.kind,) if unit.kind == RUN else (unit.kind, ANY)
    return product((unit.model, ANY), (unit.task, ANY), kinds)


def checked(plan: CampaignPlan) -> CheckedPlan:
    """Raises ValueError, ImportError or OSError for what has to be changed: what `check_early` finds, and a plan of
    which no unit can be done."""
    from lm_eval_leakage.harness.auditable import findings_of
    from lm_eval_leakage.harness.task_shelf import TaskShelf

    check_early(plan)
    for model in plan.models:
        warn_if_one_at_a_time(model.model, model.model_args)
    shelf = TaskShelf(plan.include_paths)
    named = replace(plan, tasks=tuple(shelf.names(plan.tasks)))
    leaves = {task: findings_of(task, shelf.index) for task in named.tasks}
    impossible = (*_not_audited(named, leaves), *_not_answered(named, leaves, shelf))
    found = CheckedPlan(named, impossible, files_of_tasks(named, shelf.index))
    if not found.units():
        raise ValueError(f"no unit of the plan can be done: {found.impossible[0].reason}; change models or tasks")
    return found


def check_early(plan: CampaignPlan) -> None:
    """Raises ValueError, ImportError or OSError for what can be known before the index of tasks is built, and before
    what runs models is imported, which takes seconds, too: unknown names, missing packages and folders, tasks or
    backends that no audit of the plan fits."""
    check_writable(plan.output_path, folder=True)
    for module in plan.imports:
        _import(module)
    models = [(model.model, model.model_args) for model in plan.models]
    file, place = plan.metadata.get("data_files"), plan.include_path
    preflight(plan.tasks, models, audits=plan.audits, include_path=place, data_files=file, leaves_out=True)
    if plan.audits and (refusal := refusal_of_keys(plan.metadata, of_audits_only=not plan.runs)):
        raise ValueError(f"metadata: {refusal}")


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error


Leaves = Mapping[str, Sequence["Finding"]]  # what the census finds on the tasks in a task or group


def _not_audited(plan: CampaignPlan, leaves: Leaves) -> Iterable[Impossible]:
    """Tasks of which nothing can be audited, as the census judges them from their YAML files."""
    from lm_eval_leakage.harness.auditable import NOT_AUDITED

    for task, found in leaves.items() if plan.audits else ():
        if found and all(one.status == NOT_AUDITED for one in found):
            yield Impossible(ANY, task, ANY, f"{task} cannot be audited: {found[0].reason}")


def _not_answered(plan: CampaignPlan, leaves: Leaves, shelf: TaskShelf) -> Iterable[Impossible]:
    """Audits and runs that a model's backend cannot answer."""
    needs = {task: {_need(shelf, one.task) for one in found} for task, found in leaves.items() if plan.runs}
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


ROWS_COUNTED = 20  # questions of each run or audit that are tokenised; the rest is taken to be like them
HOUR = 3600
ESTIMATED = ("model", "units", "requests", "tokens in rows", "tokens as a tree", "tokens read", "GPU hours")


@dataclass(frozen=True)
class ModelEstimate:
    """Of all units of one model.

    n_requests and the tokens: None if its tokenizer is not on this machine
    n_row_tokens: each text in a row of its own; n_tree_tokens: every shared prefix once
    n_read: what its backend reads
    n_parameters: None if its weights are not on this machine
    """

    model: str
    n_units: int
    n_requests: int | None
    n_row_tokens: int | None
    n_tree_tokens: int | None
    n_read: int | None
    n_parameters: int | None

    def gpu_hours(self, tflops: float) -> float | None:
        """tflops: 10^12 operations per second that a GPU achieves"""
        if self.n_read is None or self.n_parameters is None:
            return None
        return OPERATIONS * self.n_parameters * self.n_read / (tflops * TERA) / HOUR


@dataclass(frozen=True)
class Estimates:
    """problems: why a task or audit could not be counted"""

    models: tuple[ModelEstimate, ...]
    problems: tuple[str, ...]


def estimates(prepared: CheckedPlan, say: Callable[[str], None]) -> Estimates:
    """Loads tasks, their data and tokenizers, and no model."""
    plan = prepared.plan
    tokenizers = {model.name: tokenizer_on_disk(model.model_args) for model in plan.models}
    units = prepared.units()
    sizes: dict[str, list[RunSize]] = {model.name: [] for model in plan.models}
    problems: dict[str, None] = {}
    shelf = TaskShelf(plan.include_paths)
    questions = {model.name: UnitQuestions(plan, model, shelf) for model in plan.models}
    wholes = dict.fromkeys(Unit(unit.model, unit.task, unit.kind, 0, 1) for unit in units)
    for place, unit in enumerate(sorted(wholes, key=lambda one: (one.task, one.kind)), 1):
        tokenizer = tokenizers[unit.model]
        say(f"[{place}/{len(wholes)}] {unit.asked}, {unit.model}")
        if tokenizer is not None:
            try:
                sizes[unit.model].append(_size(*questions[unit.model].of(unit), plan.model(unit.model), tokenizer))
            except (ValueError, OSError, KeyError) as error:
                problems[f"{unit.asked}: {error}"] = None
    n_units = Counter(unit.model for unit in units)
    found = [_together(one, n_units[one.name], sizes[one.name], tokenizers[one.name]) for one in plan.models]
    return Estimates(tuple(found), tuple(problems))


def _size(loaded: LoadedTask, samples: ChosenIndices, model: CampaignModel, tokenizer: TokenizerOnly) -> RunSize:
    for task in loaded.leaves.values():
        prepare_to_count(task, tokenizer)
    rows = [(loaded.leaves[name], row) for name, own in samples.items() for row in own]
    some = [rows[place] for place in drawn_rows(len(rows), ROWS_COUNTED)]
    return size_of(some, len(rows), tokenizer, tokenizer.apply_chat_template if model.apply_chat_template else None)


def _together(
    model: CampaignModel, n_units: int, sizes: Sequence[RunSize], tokenizer: TokenizerOnly | None
) -> ModelEstimate:
    if tokenizer is None:
        return ModelEstimate(model.name, n_units, None, None, None, None, parameters_on_disk(model.model_args))
    counts = [size.tokens.counts for size in sizes]
    return ModelEstimate(
        model.name,
        n_units,
        sum(one.n_texts for one in counts),
        sum(one.n_row_tokens for one in counts),
        sum(
            one.n_tree_tokens if size.method == SCORED else one.n_row_tokens
            for one, size in zip(counts, sizes, strict=True)
        ),
        sum(size.n_read(model.model) for size in sizes),
        parameters_on_disk(model.model_args),
    )


def as_text(prepared: CheckedPlan, found: Estimates, tflops: float) -> str:
    """A row per model, their sum, and in sentences what the numbers rest on."""
    lines = [list(ESTIMATED), *(_cells(one, tflops) for one in found.models)]
    return "\n".join([_units(prepared), "", markdown_of(lines), "", *_remarks(prepared, found, tflops)])


def _units(prepared: CheckedPlan) -> str:
    plan, kinds = prepared.plan, Counter(unit.kind for unit in prepared.units())
    told = ", ".join(f"{kind} {count(n)}" for kind, n in kinds.items())
    return (
        f"{counted(kinds.total(), 'unit')} ({told}): {counted(len(plan.models), 'model')}, "
        f"{counted(len(plan.tasks), 'task')}, {counted(plan.shards, 'shard')} each"
    )


def _cells(one: ModelEstimate, tflops: float) -> list[str]:
    tokens = (one.n_requests, one.n_row_tokens, one.n_tree_tokens, one.n_read)
    hours = one.gpu_hours(tflops)
    return [
        one.model,
        count(one.n_units),
        *(DASH if n is None else about(n) for n in tokens),
        DASH if hours is None else f"{hours:.2g}",
    ]


def _remarks(prepared: CheckedPlan, found: Estimates, tflops: float) -> Sequence[str]:
    hours = [one.gpu_hours(tflops) for one in found.models]
    known = [value for value in hours if value is not None]
    told = [
        f"- about {sum(known):.2g} GPU hours for {len(known)} of {counted(len(hours), 'model')}: 2 operations per "
        f"parameter and token at {tflops:g} TFLOP/s (--tflops), without loading models and starting workers",
        f"- {ROWS_COUNTED} questions of each run or audit are tokenised, the rest is taken to be like them",
    ]
    told += [
        f"- {one.model}: tokens are not known, since its tokenizer is not on this machine"
        for one in found.models
        if one.n_requests is None
    ]
    told += [
        f"- {one.model}: GPU hours are not known, since no safetensors files of it are on this machine"
        for one in found.models
        if one.n_parameters is None
    ]
    told += [f"- left out: {one.reason}" for one in prepared.impossible]
    return [*told, *(f"- not counted: {problem}" for problem in found.problems)]
