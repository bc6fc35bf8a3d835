"""Lists a model's flagged questions for the HTML report, as JSON that the page's script reads.

A list has a budget of bytes; the questions with the highest scores come first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from lm_eval_leakage.detectors.option_orders import distinct_orders
from lm_eval_leakage.logs.audit_line import benchmark_of
from lm_eval_leakage.results.formatting import number
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion
from lm_eval_leakage.results.rows import TASK_LEVEL

MOST_OPTIONS = 5  # no audit scores all orders of more options
LONGEST_ENTRY = 100_000  # bytes; one huge question must not crowd out all others


@dataclass(frozen=True)
class FlaggedList:
    """The flagged questions of one model, as far as the page has room for them.

    data: a JSON array of their entries, which is safe within a script element
    n_listed: number of its entries
    n_flagged: number of flagged questions of the model, listed or not
    """

    data: Markup
    n_listed: int
    n_flagged: int


def n_bytes(text: str) -> int:
    """Return the length of a text in UTF-8; a character that UTF-8 lacks counts one byte."""
    return len(text.encode("utf-8", "replace"))


def list_flagged(annotation: Annotation, budget: int) -> FlaggedList:
    """Return the flagged questions of one model, by falling score, until their JSON has `budget` bytes.

    A question whose entry is longer than LONGEST_ENTRY, or than what is left of the budget, is skipped; shorter ones
    with lower scores may follow.
    """
    flagged = sorted((question for question in annotation.audited_questions if question.flagged), key=_by_score)
    answers = _answers_in_words(annotation)
    entries: list[str] = []
    n_used = len("[]")
    for audited in flagged:
        fields = _entry(audited, answers.get(audited.doc_hash, ()))
        entry = htmlsafe_json_dumps(fields, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = n_bytes(entry) + len(",")
        if size <= LONGEST_ENTRY and n_used + size <= budget:
            entries.append(entry)
            n_used += size
    return FlaggedList(Markup(f"[{','.join(entries)}]"), len(entries), len(flagged))


def _by_score(audited: AuditedQuestion) -> tuple[float, str]:
    """Return a sort key: the highest score first, an undefined or infinite one last, equal ones by their hash."""
    if audited.score is None or not math.isfinite(audited.score):
        return math.inf, audited.doc_hash
    return -audited.score, audited.doc_hash


def _answers_in_words(annotation: Annotation) -> Mapping[str, Iterable[str]]:
    """Return how the run's tasks answered each audited question, such as "answered correctly in mmlu (5-shot)", by the
    question's `doc_hash`; equal answers once.

    The answer is correct or not by the first metric that the task has a row for.
    """
    first_metrics: dict[str, str] = {}
    for row in annotation.rows:
        if row.level == TASK_LEVEL:
            first_metrics.setdefault(row.task, row.metric)
    by_hash: dict[str, dict[str, None]] = defaultdict(dict)  # the keys of the inner mapping are an ordered set
    for question in annotation.questions:
        if question.audited is not None:
            score = question.scores.get(first_metrics.get(question.task, ""), math.nan)
            scored = "not scored" if math.isnan(score) else f"scored {number(score)}"
            answer = {1.0: "answered correctly", 0.0: "answered incorrectly"}.get(score, scored)
            shots = "" if question.n_shot in {"", "0"} else f" ({question.n_shot}-shot)"
            by_hash[question.audited.doc_hash][f"{answer} in {question.task}{shots}"] = None
    return by_hash


def _entry(audited: AuditedQuestion, answers: Iterable[str]) -> dict[str, Any]:
    """Return a question's entry, for `page.js`. Its keys are one letter each, since every question repeats them.

    answers: how the run's tasks answered the question, in words
    """
    subject = benchmark_of(audited.subject)  # a benchmark without subjects has its audit's name here
    is_whole = subject in ("", audited.benchmark)
    return {
        "b": audited.benchmark if is_whole else f"{audited.benchmark}/{subject}",
        "z": _rounded(audited.score, 3),
        "r": list(answers),
        "q": audited.question,
        "o": audited.options,
        "a": audited.answer,
        "g": audited.guards,
        "m": _rounded(audited.margin),
        "l": [_rounded(loglikelihood) for loglikelihood in audited.loglikelihoods],
        "p": order_names(audited),
    }


def order_names(audited: AuditedQuestion) -> list[str]:
    """Return a name for each order in which the options were scored, such as "BAC": the letters of the published
    options as they were shown.

    The log of an audit of only some orders does not have them. Such an order is named by the place of the right option
    in it; without known places, the result is empty.
    """
    n_scored, letters = len(audited.loglikelihoods), ascii_uppercase[: len(audited.options)]
    if len(audited.options) <= MOST_OPTIONS:
        orders = list(distinct_orders([option.strip() for option in audited.options]))
        if len(orders) == n_scored:
            return ["".join(letters[place] for place in order) for order in orders]
    right_places = audited.orders.right if audited.orders is not None else ()
    if len(right_places) == n_scored and max(right_places, default=0) < len(letters):
        return [f"right option at {letters[place]}" for place in right_places]
    return []


def _rounded(value: float | None, decimals: int = 2) -> float | None:
    """Return the rounded value; None, which JSON can hold, for a value that is undefined or infinite."""
    return None if value is None or not math.isfinite(value) else round(value, decimals)
