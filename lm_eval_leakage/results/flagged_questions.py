"""The flagged questions of a page, as JSON that its script reads: as many as a budget of bytes allows, the highest
scores first."""

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

MOST_OPTIONS = 5  # all orders of more options are too many to score
LONGEST_QUESTION = 100_000  # bytes; one huge question must not crowd out all others


@dataclass(frozen=True)
class Listed:
    """The flagged questions of one model that a page holds.

    data: a JSON array that is safe within a script element
    n_flagged: flagged questions of the model, listed or not
    """

    data: Markup
    n_listed: int
    n_flagged: int


def n_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def listed(annotation: Annotation, budget: int) -> Listed:
    """Return the flagged questions that fit into `budget` bytes, the highest scores first."""
    flagged = sorted((question for question in annotation.audited_questions if question.flagged), key=_by_score)
    answers = _answers(annotation)
    lines: list[str] = []
    used = 2
    for audited in flagged:
        entry = _entry(audited, answers.get(audited.doc_hash, ()))
        line = htmlsafe_json_dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = n_bytes(line) + 1
        if size <= LONGEST_QUESTION and used + size <= budget:
            lines.append(line)
            used += size
    return Listed(Markup(f"[{','.join(lines)}]"), len(lines), len(flagged))


def _by_score(audited: AuditedQuestion) -> tuple[float, str]:
    is_known = audited.score is not None and math.isfinite(audited.score)
    return -(audited.score or 0.0) if is_known else math.inf, audited.doc_hash


def _entry(audited: AuditedQuestion, answers: Iterable[str]) -> dict[str, Any]:
    """Return a question's entry. Its keys are short because they are repeated for every question; `page.js` reads
    them."""
    subject = benchmark_of(audited.subject)  # the audit's name without subjects
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
        "l": [_rounded(value) for value in audited.loglikelihoods],
        "p": order_names(audited),
    }


def order_names(audited: AuditedQuestion) -> list[str]:
    """Return the name of each order: the letters of the published options in the order in which they were shown.

    Where only some of the orders were scored, the log does not say which; then each is named by the place of the right
    option in it, or not at all.
    """
    n_orders, letters = len(audited.loglikelihoods), ascii_uppercase[: len(audited.options)]
    if len(audited.options) <= MOST_OPTIONS:
        places = list(distinct_orders([option.strip() for option in audited.options]))
        if len(places) == n_orders:
            return ["".join(letters[place] for place in order) for order in places]
    right = audited.orders.right if audited.orders is not None else ()
    if len(right) == n_orders and max(right, default=0) < len(letters):
        return [f"right option at {letters[place]}" for place in right]
    return []


def _rounded(value: float | None, decimals: int = 2) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, decimals)


def _answers(annotation: Annotation) -> Mapping[str, Iterable[str]]:
    """Return how each question was answered in the tasks of the run, each answer once, by the hash of its audited
    row."""
    first_metrics = {row.task: row.metric for row in reversed(annotation.rows) if row.level == TASK_LEVEL}
    by_hash: dict[str, dict[str, None]] = defaultdict(dict)
    for question in annotation.questions:
        if question.audited is not None:
            score = question.scores.get(first_metrics.get(question.task, ""), math.nan)
            scored = "not scored" if math.isnan(score) else f"scored {number(score)}"
            answer = {1.0: "answered correctly", 0.0: "answered incorrectly"}.get(score, scored)
            shots = "" if question.n_shot in {"", "0"} else f" ({question.n_shot}-shot)"
            by_hash[question.audited.doc_hash][f"{answer} in {question.task}{shots}"] = None
    return by_hash
