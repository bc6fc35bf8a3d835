"""What a campaign will take: requests and tokens of each model, by its own tokenizer, and GPU hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lm_eval_leakage.campaign.plan_checks import CheckedPlan
from lm_eval_leakage.campaign.plan_settings import CampaignModel
from lm_eval_leakage.campaign.unit_questions import UnitQuestions
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.checking.drawing import ChosenIndices
from lm_eval_leakage.harness.models.request_tokens import SCORED
from lm_eval_leakage.harness.models.tokenizer_only import TokenizerOnly, tokenizer_on_disk
from lm_eval_leakage.harness.models.weights_on_disk import parameters_on_disk
from lm_eval_leakage.harness.running.cost_table import OPERATIONS, TERA
from lm_eval_leakage.harness.running.costs import prepare_to_count
from lm_eval_leakage.harness.running.sizes import RunSize, drawn_rows, size_of
from lm_eval_leakage.harness.running.task_shelf import LoadedTask, TaskShelf
from lm_eval_leakage.results.formatting import DASH, about, count, counted
from lm_eval_leakage.results.markup import markdown_of

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
