"""The registry of per-question columns, in annotated samples and `load_run`: key, meaning and value of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lm_eval_leakage.logs.audit_line import Arms, Scalar
from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion


@dataclass(frozen=True)
class QuestionColumn:
    """of_run: the value from the run's answer; of_audit: from the audits; exactly one of the two is given"""

    key: str
    meaning: str
    of_run: Callable[[AnnotatedQuestion], Scalar] | None = None
    of_audit: Callable[[AuditedQuestion], Scalar] | None = None


def _arm(name: str) -> QuestionColumn:
    def right(one: AuditedQuestion) -> Scalar:
        arms: Arms | None = one.arms
        return None if arms is None else bool(getattr(arms, name))

    return QuestionColumn(
        f"right_{name}", f"whether choice confusion's arm `{name}` was answered correctly", None, right
    )


RUN_COLUMNS: Sequence[QuestionColumn] = (
    QuestionColumn("task", "as the harness names it", lambda question: question.task),
    QuestionColumn("n_shot", "number of examples before the question", lambda question: question.n_shot),
    QuestionColumn("doc_id", "number of the row in the task", lambda question: question.doc_id),
    QuestionColumn("doc_hash", "hash of the row, by which audits are joined", lambda question: question.doc_hash),
    QuestionColumn("subject", "as the benchmark files the question", lambda question: question.subject),
)
IS_AUDITED = QuestionColumn(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[QuestionColumn] = (
    QuestionColumn("flagged", "by the main detector; null where it was not tested", of_audit=lambda one: one.flagged),
    QuestionColumn("pvalue", "of the main detector on this question alone", of_audit=lambda one: one.pvalue),
    QuestionColumn("null_rate", "probability of a flag under its null hypothesis", of_audit=lambda one: one.null_rate),
    QuestionColumn("score", "what the main detector ranks questions by", of_audit=lambda one: one.score),
    QuestionColumn("margin", "published order minus the best other order, nats", of_audit=lambda one: one.margin),
    QuestionColumn("n_orders", "number of orders that were scored", of_audit=lambda one: one.n_orders),
    QuestionColumn("reason", "why it was not tested", of_audit=lambda one: one.reason),
    QuestionColumn("guards", "natural orders of its options", of_audit=lambda one: ",".join(one.guards)),
    QuestionColumn("outlier_flagged", "by the outlier test", of_audit=lambda one: one.outlier),
    QuestionColumn("calibrated_flagged", "by the calibration", of_audit=lambda one: one.calibrated_flagged),
    *map(_arm, ARMS),
)


def question_columns() -> list[QuestionColumn]:
    """All of them in the order of the files, where the run's metrics come before IS_AUDITED and the values of other
    detectors last."""
    return [*RUN_COLUMNS, IS_AUDITED, *AUDIT_COLUMNS]
