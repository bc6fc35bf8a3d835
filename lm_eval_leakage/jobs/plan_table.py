"""The plan as a table, before a model is loaded: what is there, what is run and what it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lm_eval_leakage.harness.costs import ROWS_MEASURED, RunSize
from lm_eval_leakage.harness.models.request_tokens import SCORED
from lm_eval_leakage.jobs.checked_plan import CheckedPlan
from lm_eval_leakage.jobs.plan import ALL_QUESTIONS, Plan
from lm_eval_leakage.jobs.steps import Step, StepStatus
from lm_eval_leakage.jobs.units import Role, Unit
from lm_eval_leakage.results.formatting import DASH, about, count, counted
from lm_eval_leakage.results.tabulating import markdown_of
from lm_eval_leakage.texts import visible, visible_lines

HEADINGS = ("task", "what", "questions", "requests", "tokens, about", "status")
MODELS_HEADING = "models"  # of one more column, for several models
OF_A_MODEL = ("model", "units", "requests", "tokens in rows", "tokens as a tree", "tokens read")
MODELS_NAMED = 5
Steps = Mapping[Unit, Step]


@dataclass(frozen=True)
class PlanTable:
    """The steps of a plan, as a table.

    head: which models are checked, and how
    steps: in the order of tasks and roles, one for each unit
    several: whether it is of several models, so that steps that are the same for some of them are one line
    counted: whether tokens are counted by tokenizers
    remarks: sentences about models and tasks
    """

    head: str
    steps: tuple[Step, ...]
    several: bool = False
    counted: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def to_run(self) -> list[Step]:
        return [step for step in self.steps if step.status is StepStatus.TO_RUN]

    @property
    def as_text(self) -> str:
        heads = [*HEADINGS[:2], MODELS_HEADING, *HEADINGS[2:]] if self.several else [*HEADINGS]
        lines = [heads, *(self._merged() if self.several else map(_cells, self.steps))]
        widths = [max(len(line[place]) for line in lines) for place in range(len(heads) - 1)]
        table = "\n".join(_line(line, widths) for line in lines)
        paragraphs = (visible(self.head), visible_lines(table), visible_lines("\n".join(self.remarks)), self._sum)
        return "\n\n".join(filter(None, paragraphs))

    def _merged(self) -> list[list[str]]:
        """Return a line for all models of which a step is the same, with the tokens of all of them."""
        alike: dict[Step, list[Step]] = defaultdict(list)
        for step in self.steps:
            note = "" if step.status is StepStatus.THERE else step.note  # folders of each model
            alike[replace(step, n_tokens=0, n_requests=0, note=note, files=(), benchmarks={})].append(step)
        lines = []
        for step, steps in alike.items():
            total = replace(
                step,
                n_tokens=sum(step.n_tokens for step in steps),
                n_requests=sum(step.n_requests for step in steps),
            )
            cells = _cells(total)
            lines.append([*cells[:2], count(len(steps)), *cells[2:]])
        return lines

    @property
    def _sum(self) -> str:
        if not self.to_run:
            return "Nothing has to be run."
        n_tokens = sum(step.n_tokens for step in self.to_run)
        n_requests = sum(step.n_requests for step in self.to_run)
        how = "counted in a part of the questions" if self.counted else "taking four bytes for a token"
        return f"To run: {counted(n_requests, 'request')} with about {about(n_tokens)} tokens ({how})."


def plan_table(prepared: CheckedPlan, steps: Steps, remarks: Sequence[str], *, is_counted: bool) -> PlanTable:
    """Return the table of a plan.

    remarks: sentences about its models and tasks
    is_counted: whether the tokenizers of all models are on this machine
    """
    roles, place = [*Role], prepared.plan.tasks.index
    ordered = sorted(steps, key=lambda unit: (place(unit.task), roles.index(unit.role)))
    rows = tuple(replace(steps[unit], work=None) for unit in ordered)
    models = [prepared.who[key] for key in prepared.checked]
    what = f"{models[0].name} ({models[0].model})" if len(models) == 1 else _models_in_words(prepared.checked)
    head = f"Check of {what}; {_which_questions(prepared.plan)}"
    return PlanTable(head, rows, len(models) > 1, is_counted, tuple(remarks))


def _which_questions(plan: Plan) -> str:
    of_runs = ", from those in the runs where a task has any" if plan.runs else ""
    if plan.questions == ALL_QUESTIONS:
        return f"all questions{of_runs}"
    return f"questions are drawn at random with seed {plan.seed}{of_runs}"


def _models_in_words(keys: Sequence[str]) -> str:
    more = ", ..." if len(keys) > MODELS_NAMED else ""
    return f"{counted(len(keys), 'model')} ({', '.join(keys[:MODELS_NAMED])}{more})"


def _cells(step: Step) -> list[str]:
    status = f"{step.status}: {step.note}" if step.note else str(step.status)
    status += f"; {step.remedy}" if step.remedy else ""
    numbers = [step.n_questions, step.n_requests]
    tokens = about(step.n_tokens) if step.n_tokens else DASH
    return [step.task, step.what, *(count(number) if number else DASH for number in numbers), tokens, status]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = [
        f"{cell:{'<' if place < 2 else '>'}{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join([*first, cells[-1]]).rstrip()


# ---------------------------------------------------------------------- requests and tokens


def refuse_above_limit(limit: int | None, questions: int | str, steps: Steps) -> None:
    """Raise ValueError if what is to be run has more tokens than may be asked.

    questions: as the plan has them
    """
    n_tokens = sum(step.work.n_tokens for step in steps.values() if step.work)
    if limit is not None and n_tokens > limit:
        raise ValueError(
            f"max_tokens_asked is {count(limit)}, but the requests that are left have about {about(n_tokens)} "
            f"tokens; raise it, lower questions (now {questions}), or leave out tasks or audits"
        )


def tokens_of_models(backends: Mapping[str, str], steps: Steps, keys: Sequence[str]) -> str:
    """Return a row per model: tokens where each text has a row of its own, where every shared prefix is read once, and
    as read; then sentences about what the numbers rest on.

    backends: of all models, by their keys
    keys: of models whose tokenizers are on this machine
    """
    lines = [list(OF_A_MODEL)]
    for key, backend in backends.items():
        works = [step.work for unit, step in steps.items() if unit.model == key]
        sizes = [work.size for work in works if work is not None]
        numbers = _numbers([size for size in sizes if size is not None], backend)
        cells = [about(number) for number in numbers] if key in keys else [DASH] * 4
        lines.append([key, count(len(sizes)), *cells])
    remarks = [f"{ROWS_MEASURED} questions of each run or audit are tokenised, the rest is taken to be like them"]
    for key in backends:
        if key not in keys:
            remarks.append(f"{key}: tokens are not known, since its tokenizer is not on this machine")
    return "\n".join([markdown_of(lines), "", *(f"- {remark}" for remark in remarks)])


def _numbers(sizes: Sequence[RunSize], backend: str) -> list[int]:
    counts = [(size.tokens.counts, size.method == SCORED) for size in sizes]
    return [
        sum(tokens.n_texts for tokens, _ in counts),
        sum(tokens.n_row_tokens for tokens, _ in counts),
        sum(tokens.n_tree_tokens if shares else tokens.n_row_tokens for tokens, shares in counts),
        sum(size.n_read(backend) for size in sizes),
    ]
