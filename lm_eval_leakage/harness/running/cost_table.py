"""Costs as a table with sentences, and as records for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lm_eval_leakage.harness.models.request_tokens import ALONE, AS_TREE, IN_BLOCKS, MERGED, READ_BY, SCORED
from lm_eval_leakage.harness.running.costs import TaskCost
from lm_eval_leakage.harness.running.sizes import RunSize, size_together
from lm_eval_leakage.results.formatting import DASH, about, count, counted, duration
from lm_eval_leakage.results.markup import markdown_of
from lm_eval_leakage.scoring.token_counts import ENGINE_BLOCK

COLUMNS = ("task", "questions", "requests", "tokens in rows", "tokens as a tree", f"in blocks of {ENGINE_BLOCK}")
TOKENS = ("n_row_tokens", "n_tree_tokens", "n_block_tokens")
OPERATIONS = 2  # floating-point operations per parameter and token: one multiplication and one addition
TERA = 1e12
READ_IN_WORDS = {
    ALONE: "each text in a row of its own",
    MERGED: "texts that differ only in their last token in one row, others in rows of their own",
    IN_BLOCKS: f"full blocks of {ENGINE_BLOCK} tokens that begin several texts once",
    AS_TREE: "every shared prefix once",
}
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})
AS_GIVEN = "the tokens per second that were given"


@dataclass(frozen=True)
class Speed:
    """tokens_per_second: that the user's machine reads; 0 if unknown
    source: where that is from, in words
    """

    tokens_per_second: float = 0.0
    source: str = ""


def speed_of(parameters: float, tflops: float) -> Speed:
    """Of a model with so many parameters at so many 10^12 floating-point operations per second, without attention."""
    found = tflops * TERA / (OPERATIONS * parameters)
    return Speed(found, f"{parameters:.3g} parameters at {tflops:g} TFLOP/s, which is {about(round(found))} tokens/s")


def as_markdown(costs: Sequence[TaskCost], model: str, speed: Speed, refusals: Mapping[str, str] = NO_REFUSALS) -> str:
    """A row per task, their sum, and in sentences what the numbers rest on.

    refusals: why the model cannot answer requests of a method
    """
    total = size_together([cost.size for cost in costs])
    named = [(cost.task, cost.size) for cost in costs] + ([("all", total)] if len(costs) > 1 else [])
    further = [
        (heading, cell) for heading, cell in _further(model, speed) if any(cell(size) != DASH for _, size in named)
    ]
    lines = [[*COLUMNS, *(heading for heading, _ in further)]]
    lines += [[*_cells(task, size), *(cell(size) for _, cell in further)] for task, size in named]
    remarks = [f"- {line}" for line in _remarks(costs, total, model, speed, refusals)]
    return "\n".join([markdown_of(lines), "", *remarks])


def _further(model: str, speed: Speed) -> list[tuple[str, Callable[[RunSize], str]]]:
    """Columns that only some tables have."""
    return [
        ("ratio", _ratio),
        ("generated at most", lambda size: about(size.n_generated) if size.n_generated else DASH),
        (f"time, {model}", lambda size: _time(size, model, speed)),
    ]


def _cells(task: str, size: RunSize) -> list[str]:
    tokens, shared = size.tokens, size.method == SCORED
    cells = [_with_error(getattr(tokens.counts, name), getattr(tokens.errors, name)) for name in TOKENS]
    requests = _with_error(tokens.counts.n_texts, tokens.errors.n_texts)
    return [task, count(tokens.n_questions), requests, cells[0], *(cells[1:] if shared else [DASH, DASH])]


def _with_error(value: int, error: int) -> str:
    """With a digit more than the error has; with all digits where there is no error."""
    if not error or not value:
        return count(value)
    unit = 10 ** max(0, len(str(error)) - 2)
    return f"{count(round(value / unit) * unit)} ± {100 * error / value:.1f} %"


def _ratio(size: RunSize) -> str:
    counts = size.tokens.counts
    if size.method != SCORED or not counts.n_tree_tokens:
        return DASH
    return f"{counts.n_row_tokens / counts.n_tree_tokens:.2f}"


def _time(size: RunSize, model: str, speed: Speed) -> str:
    return duration(size.n_read(model) / speed.tokens_per_second) if speed.tokens_per_second else DASH


def _remarks(
    costs: Sequence[TaskCost], total: RunSize, model: str, speed: Speed, refusals: Mapping[str, str]
) -> list[str]:
    tokens, found = total.tokens, []
    if tokens.n_measured < tokens.n_questions:
        found.append(
            f"{count(tokens.n_measured)} of {counted(tokens.n_questions)} tokenised; ± is a standard error; "
            "`--questions all` counts them all"
        )
    found.append(f"`{model}` reads {about(total.n_read(model))} tokens: {READ_IN_WORDS[READ_BY.get(model, ALONE)]}")
    if speed.tokens_per_second:
        found.append(f"time: {speed.source}; an estimate of reading alone, without loading and starting")
    for cost in costs:
        if why_not := refusals.get(cost.size.method):
            found.append(f"{cost.task} cannot run: {why_not}")
        found += [
            f"{cost.task}: about {counted(n)} not asked: {reason}" for reason, n in cost.size.untestable.most_common(3)
        ]
    return found


def as_records(
    costs: Sequence[TaskCost], model: str, speed: Speed, refusals: Mapping[str, str] = NO_REFUSALS
) -> list[dict[str, object]]:
    """A record per task, for JSON."""
    return [
        {
            "task": cost.task,
            "method": cost.size.method,
            "n_questions": cost.size.tokens.n_questions,
            "n_measured": cost.size.tokens.n_measured,
            "n_requests": cost.size.n_requests,
            **{name: getattr(cost.size.tokens.counts, name) for name in TOKENS},
            "errors": {name: getattr(cost.size.tokens.errors, name) for name in ("n_texts", *TOKENS)},
            "block": ENGINE_BLOCK,
            "model": model,
            "n_read": cost.size.n_read(model),
            "n_generated": cost.size.n_generated,
            "seconds": cost.size.n_read(model) / speed.tokens_per_second if speed.tokens_per_second else None,
            "untestable": dict(cost.size.untestable),
            "why_not": refusals.get(cost.size.method) or None,
        }
        for cost in costs
    ]
