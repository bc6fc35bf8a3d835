"""Columns of a question, in annotated samples and in what `load_run` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion
from lm_eval_leakage.results.tabulating import TEXT, Column


def _of_question(key: str, meaning: str, of: Callable[[Any], Any] | None = None) -> Column[Any]:
    """Return a column by an attribute of the question, or by a function of it."""
    return Column("", TEXT, of or attrgetter(key), meaning, key)


def _of_arm(name: str) -> Column[AuditedQuestion]:
    """Return the column of an arm of choice confusion."""
    meaning = f"whether choice confusion's arm `{name}` was answered correctly"
    return _of_question(
        f"right_{name}", meaning, lambda question: question.arms and bool(getattr(question.arms, name))
    )


# In the files the run's metrics come before IS_AUDITED, and the values of other detectors last.
RUN_COLUMNS: Sequence[Column[AnnotatedQuestion]] = (
    _of_question("task", "as the harness names it"),
    _of_question("n_shot", "number of examples before the question"),
    _of_question("doc_id", "number of the row in the task"),
    _of_question(
        "doc_hash",
        "hash of the row, by which audits are joined; null where the run does not record it",
        lambda question: question.doc_hash or None,
    ),
    _of_question("subject", "as the benchmark files the question"),
)
IS_AUDITED = _of_question(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[Column[AuditedQuestion]] = (
    _of_question("flagged", "by the main detector; null where it was not tested"),
    _of_question("pvalue", "of the main detector on this question alone"),
    _of_question("null_rate", "probability of a flag under its null hypothesis"),
    _of_question("score", "what the main detector ranks questions by"),
    _of_question("margin", "published order minus the best other order, nats"),
    _of_question("n_orders", "number of orders that were scored"),
    _of_question("reason", "why it was not tested"),
    _of_question("guards", "natural orders of its options", lambda question: ",".join(question.guards)),
    _of_question("outlier_flagged", "by the outlier test", attrgetter("outlier")),
    *map(_of_arm, ARMS),
)
