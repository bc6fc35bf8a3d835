"""Rows and questions as flat mappings, for tables, JSON, data frames and conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.results.column_registry import recorded
from lm_eval_leakage.results.question_columns import AUDIT_COLUMNS, IS_AUDITED, RUN_COLUMNS
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Row


def flat_row(row: Row) -> dict[str, Scalar]:
    """Every column by its key, each estimate with `_stderr`, `_low` and `_high`; None where undefined. The values of
    other detectors follow, as `token_evidence.min_k`."""
    flat: dict[str, Scalar] = {}
    for column in recorded():
        value = column.of(row)
        if column.is_optional and not value:
            continue
        flat |= _flat_estimate(column.key, value) if isinstance(value, Estimate) else {column.key: _scalar(value)}
    for other in row.others:
        flat[f"{other.detector}.n"] = max(other.n, int(flat.get(f"{other.detector}.n") or 0))
        flat |= _flat_estimate(other.key, other.estimate)
        if not math.isnan(other.pvalue):
            flat |= {f"{other.detector}.null_rate": other.null_rate, f"{other.detector}.pvalue": other.pvalue}
    return flat


def flat_question(question: AnnotatedQuestion) -> dict[str, Scalar]:
    """A question's answer and verdicts as scalars; None for what is unknown."""
    of_run = {column.key: column.of_run(question) for column in RUN_COLUMNS if column.of_run}
    found: dict[str, Scalar] = {**of_run, **question.scores, IS_AUDITED.key: question.audited is not None}
    one = question.audited
    if one is None:
        return found
    found |= {column.key: column.of_audit(one) for column in AUDIT_COLUMNS if column.of_audit}
    return found | {f"{detector}.{name}": value for detector, own in one.others.items() for name, value in own.items()}


def same_columns(records: Sequence[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
    """Every record with the columns that any of them has a value for, so that readers that guess types from the first
    lines (`datasets`, pandas) meet no empty column."""
    known = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    return [{name: record.get(name) for name in known} for record in records]


def _flat_estimate(key: str, estimate: Estimate) -> dict[str, Scalar]:
    parts = {"": estimate.value, "_stderr": estimate.stderr, "_low": estimate.low, "_high": estimate.high}
    return {f"{key}{ending}": _scalar(value) for ending, value in parts.items()}


def _scalar(value: str | int | float) -> Scalar:
    return None if isinstance(value, float) and math.isnan(value) else value
