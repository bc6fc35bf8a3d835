"""The plan of a check: one step per task and kind of run, as a table that is shown before a model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lm_eval_leakage.results.formatting import DASH, about, count, counted
from lm_eval_leakage.texts import visible

TO_RUN, THERE, NOT_NEEDED, NOT_POSSIBLE = "to run", "there already", "not needed", "not possible"
ACCURACY_RUN, ORDERS_RUN = "accuracy", "option orders"
TOKENS_RUN, CONFUSION_RUN = "token-level evidence", "choice confusion"
REFERENCE_RUN, UNSEEN_RUN = "reference: option orders", "unseen questions"
HEADINGS = ("task", "what", "questions", "requests", "tokens, about", "status")


@dataclass(frozen=True)
class PlannedStep:
    """One run.

    n_questions, n_requests, n_tokens: 0 if unknown; tokens are estimated
    status: one of the four above; note: where it is, or why not
    """

    task: str
    what: str
    n_questions: int = 0
    n_requests: int = 0
    n_tokens: int = 0
    status: str = TO_RUN
    note: str = ""


@dataclass(frozen=True)
class CheckPlan:
    """seed: by which questions were drawn; counted: whether tokens are counted by the model's tokenizer"""

    model: str
    backend: str
    seed: int
    steps: tuple[PlannedStep, ...]
    counted: bool = False

    @property
    def to_run(self) -> list[PlannedStep]:
        return [step for step in self.steps if step.status == TO_RUN]

    @property
    def as_text(self) -> str:
        lines = [HEADINGS, *(_cells(step) for step in self.steps)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(HEADINGS) - 1)]
        table = "\n".join(_line(line, widths) for line in lines)
        return f"{visible(self._head)}\n\n{visible_lines(table)}\n\n{self._sum}"

    @property
    def _head(self) -> str:
        return f"Check of {self.model} ({self.backend}); questions are drawn at random with seed {self.seed}"

    @property
    def _sum(self) -> str:
        if not self.to_run:
            return "Nothing has to be run."
        n_tokens = sum(step.n_tokens for step in self.to_run)
        n_requests = sum(step.n_requests for step in self.to_run)
        how = "counted in a part of the questions" if self.counted else "taking four bytes for a token"
        return f"To run: {counted(n_requests, 'request')} with about {about(n_tokens)} tokens ({how})."


def visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


def _cells(step: PlannedStep) -> Sequence[str]:
    status = f"{step.status}: {step.note}" if step.note else step.status
    numbers = [step.n_questions, step.n_requests]
    tokens = about(step.n_tokens) if step.n_tokens else DASH
    return (step.task, step.what, *(count(number) if number else DASH for number in numbers), tokens, status)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = [
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ]
    return "  ".join([*first, cells[-1]]).rstrip()
