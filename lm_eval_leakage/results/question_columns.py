"""Declares the columns that describe one question in `samples_*_leakage.jsonl` and in what `load_run` returns.

The metrics of the run stand between RUN_COLUMNS and IS_AUDITED, and the values of other detectors after AUDIT_COLUMNS
(`results.rows.flat_question`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion

Record = TypeVar("Record", AnnotatedQuestion, AuditedQuestion)


@dataclass(frozen=True)
class QuestionColumn(Generic[Record]):
    """A column with one value per question.

    key: its name in the files
    meaning: what the docs say about it
    compute: returns its value; None where the value is the question's attribute `key`
    """

    key: str
    meaning: str
    compute: Callable[[Record], Any] | None = None

    def value(self, question: Record) -> Any:
        """Return the question's value in this column."""
        return getattr(question, self.key) if self.compute is None else self.compute(question)


def _arm_column(arm: str) -> QuestionColumn[AuditedQuestion]:
    """Return the column of an arm of choice confusion; its value is None for a question without that audit."""
    return QuestionColumn(
        f"right_{arm}",
        f"whether choice confusion's arm `{arm}` was answered correctly",
        lambda question: None if question.arms is None else bool(getattr(question.arms, arm)),
    )


RUN_COLUMNS: Sequence[QuestionColumn[AnnotatedQuestion]] = (
    QuestionColumn("task", "as the harness names it"),
    QuestionColumn("n_shot", "number of examples before the question"),
    QuestionColumn("doc_id", "number of the row in the task"),
    QuestionColumn(
        "doc_hash",
        "hash of the row, by which audits are joined; null where the run does not record it",
        lambda question: question.doc_hash or None,
    ),
    QuestionColumn("subject", "as the benchmark files the question"),
)
IS_AUDITED: QuestionColumn[AnnotatedQuestion] = QuestionColumn(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[QuestionColumn[AuditedQuestion]] = (
    QuestionColumn("flagged", "by the main detector; null where it was not tested"),
    QuestionColumn("pvalue", "of the main detector on this question alone"),
    QuestionColumn("null_rate", "probability of a flag under its null hypothesis"),
    QuestionColumn("score", "what the main detector ranks questions by"),
    QuestionColumn("margin", "published order minus the best other order, nats"),
    QuestionColumn("n_orders", "number of orders that were scored"),
    QuestionColumn("reason", "why it was not tested"),
    QuestionColumn("guards", "natural orders of its options", lambda question: ",".join(question.guards)),
    QuestionColumn("outlier_flagged", "by the outlier test", lambda question: question.outlier),
    *map(_arm_column, ARMS),
)
