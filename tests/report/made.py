"""Hand-made annotations for the tests of pages."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion, Row
from lm_eval_leakage.results.verdict import Basis, DataVerdict, VerdictWord
from lm_eval_leakage.stats.order_sum import OrderRatio, OrderSum
from lm_eval_leakage.stats.pooling import Estimate

HALF = Estimate(0.5, 0.05, 0.4, 0.6)


def row(task: str = "mmlu", level: str = "task", **changes: Any) -> Row:
    """A row of 100 questions without a natural order, all tested, 25 flagged.

    changes: fields, or columns by their keys
    """
    usual: dict[str, Any] = {
        "model": "M",
        "metric": "acc,none",
        "n_shot": "0",
        "n": 100,
        "accuracy": HALF,
        "n_joined": 100,
        "n_tested": 100,
        "flagged_rate": Estimate(0.25, 0.043, 0.17, 0.34),
        "null_rate": 1 / 24,
        "pvalue": 1e-12,
        "accuracy_unflagged": Estimate(0.4, 0.06, 0.3, 0.5),
        "inflation": Estimate(0.1, 0.05, 0.0, 0.2),
    }
    given = {**usual, **changes}
    given.setdefault("flagged_rate_unguarded", given["flagged_rate"])
    of_row = {field.name for field in fields(Row)}
    values = {key: value for key, value in given.items() if key not in of_row}
    return Row(task=task, level=level, values=values, **{key: value for key, value in given.items() if key in of_row})


ENOUGH, LITTLE = ((1, 0.5), (3, 0.2)), ((1, 0.9), (3, 0.5))  # may have been seen


def verdict(pvalue: float, **changes: Any) -> DataVerdict:
    """Return a verdict on 100 questions with written orders, by the model's own control."""
    tested = OrderSum(100, pvalue, mean=0.5, mean_error=0.1)
    usual = DataVerdict(Basis.CONTROL, OrderStatus.WRITTEN, 100, 100, tested, at_most=ENOUGH, natural=(0.0, 0.05))
    return replace(usual, **changes)


UNDECIDED = DataVerdict(Basis.RATIO, OrderStatus.WRITTEN, n_asked=100, ratio=OrderRatio(60, 1.5, 1.2))
OF_WORD = {
    VerdictWord.NO_VERDICT: UNDECIDED,
    VerdictWord.NONE_FOUND: verdict(0.2),
    VerdictWord.INCONCLUSIVE: verdict(0.2, at_most=LITTLE),
    VerdictWord.EVIDENCE: verdict(0.003),
    VerdictWord.STRONG_EVIDENCE: verdict(2e-5),
}


def audited(number: int = 0, rank: int = 1, n_orders: int = 24, **changes: Any) -> AuditedQuestion:
    """Log-likelihoods of -10 for the published order, of -9 for those above it and of -12 for those below; the
    score is the margin."""
    better, worse = [-9.0] * (rank - 1), [-12.0] * (n_orders - rank)
    usual: dict[str, Any] = {
        "doc_hash": f"h{number}",
        "content": f"c{number}",
        "benchmark": "mmlu",
        "subject": "anatomy",
        "question": f"Question {number}?",
        "options": ("red", "green", "blue", "white"),
        "answer": 1,
        "flagged": rank == 1,
        "pvalue": rank / n_orders,
        "null_rate": 1 / n_orders,
        "margin": 2.0 if rank == 1 else -1.0,
        "n_orders": n_orders,
        "loglikelihoods": (-10.0, *better, *worse),
    }
    values = {**usual, **changes}
    return AuditedQuestion(**{"score": values["margin"], **values})


def answered(of: AuditedQuestion, right: float, task: str = "mmlu") -> AnnotatedQuestion:
    return AnnotatedQuestion(task, 0, of.doc_hash, of.content, of.subject, 10, {"acc,none": right}, of)


def annotation(*audited_questions: AuditedQuestion, rows: tuple[Row, ...] = (row(),), **changes: Any) -> Annotation:
    usual: dict[str, Any] = {"model": "M", "detector": "max_order", "questions": ()}
    return Annotation(rows=rows, audited_questions=audited_questions, **{**usual, **changes})
