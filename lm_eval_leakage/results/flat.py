"""Rows and questions as flat mappings, for tables, JSON, data frames and conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.results.column_registry import recorded
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Row


def flat_row(row: Row) -> dict[str, Scalar]:
    """Every column by its key, each estimate with `_stderr`, `_low` and `_high`; None where undefined."""
    flat: dict[str, Scalar] = {}
    for column in recorded():
        value = column.of(row)
        if column.is_optional and not value:
            continue
        flat |= _flat_estimate(column.key, value) if isinstance(value, Estimate) else {column.key: _scalar(value)}
    return flat


def flat_question(question: AnnotatedQuestion) -> dict[str, Scalar]:
    """A question's answer and verdicts, in scalars; None where a thing is not known of it."""
    found: dict[str, Scalar] = {
        "task": question.task,
        "n_shot": question.n_shot,
        "doc_id": question.doc_id,
        "doc_hash": question.doc_hash,
        "subject": question.subject,
        **question.scores,
        "audited": question.audited is not None,
    }
    one = question.audited
    if one is None:
        return found
    return found | {
        "flagged": one.flagged,
        "pvalue": one.pvalue,
        "null_rate": one.null_rate,
        "margin": one.margin,
        "n_orders": one.n_orders,
        "reason": one.reason,
        "guards": ",".join(one.guards),
        "outlier_flagged": one.outlier,
        "calibrated_flagged": one.calibrated_flagged,
        "probability": one.probability,
        **({f"right_{arm}": right for arm, right in asdict(one.arms).items()} if one.arms else {}),
    }


def same_columns(records: Sequence[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
    """Every record with the columns that any of them knows something of, so that readers which guess types from the
    first lines (`datasets`, pandas) meet no column that is empty."""
    known = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    return [{name: record.get(name) for name in known} for record in records]


def _flat_estimate(key: str, estimate: Estimate) -> dict[str, Scalar]:
    parts = {"": estimate.value, "_stderr": estimate.stderr, "_low": estimate.low, "_high": estimate.high}
    return {f"{key}{ending}": _scalar(value) for ending, value in parts.items()}


def _scalar(value: str | int | float) -> Scalar:
    return None if isinstance(value, float) and math.isnan(value) else value
