"""Rows and questions as flat mappings, for tables, JSON, data frames and conditions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from lm_eval_leakage.results.annotation import AnnotatedQuestion, Estimate, Row

Cell = str | int | float | bool | None

ESTIMATES = {
    "accuracy": "accuracy",
    "flagged_rate": "flagged",
    "flagged_rate_unguarded": "flagged_unguarded",
    "outlier_rate": "outlier",
    "calibrated_rate": "calibrated",
    "prevalence": "prevalence",
    "confusion_delta": "confusion",
    "accuracy_unflagged": "accuracy_unflagged",
    "accuracy_flagged": "accuracy_flagged",
    "gap": "gap",
    "gap_adjusted": "gap_adjusted",
    "strong_rate": "strong",
}
PLAIN = (
    "null_rate",
    "pvalue",
    "pvalue_adjusted",
    "pvalue_unguarded",
    "outlier_null_rate",
    "probability",
    "gap_pvalue",
)


def flat_row(row: Row) -> dict[str, Cell]:
    """Every column by its name, each estimate with `_stderr`, `_low` and `_high`; None where undefined."""
    flat: dict[str, Cell] = {
        "model": row.model,
        "task": row.task,
        "level": row.level,
        "group": row.group,
        "metric": row.metric,
        "n_shot": row.n_shot,
        "n": row.n,
        "n_joined": row.n_joined,
        "n_tested": row.n_tested,
        "n_pvalue": row.n_pvalue,
        "n_pvalue_unguarded": row.n_pvalue_unguarded,
    }
    estimates = {name: getattr(row, attribute) for name, attribute in ESTIMATES.items()}
    estimates |= {f"accuracy_{arm}": estimate for arm, estimate in row.arms.items()}
    for name, estimate in estimates.items():
        flat |= _flat_estimate(name, estimate)
    return flat | {name: _number(getattr(row, name)) for name in PLAIN}


def flat_question(question: AnnotatedQuestion) -> dict[str, Cell]:
    """A question's answer and verdicts, in scalars; None where a thing is not known of it."""
    found: dict[str, Cell] = {
        "task": question.task,
        "n_shot": question.n_shot,
        "doc_id": question.doc_id,
        "doc_hash": question.doc_hash,
        "subject": question.subject,
        **question.scores,
        "audited": question.suspicion is not None,
    }
    one = question.suspicion
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


def same_columns(records: Sequence[dict[str, Cell]]) -> list[dict[str, Cell]]:
    """Every record with the columns that any of them knows something of, so that readers which guess types from the
    first lines (`datasets`, pandas) meet no column that is empty."""
    known = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    return [{name: record.get(name) for name in known} for record in records]


def _flat_estimate(name: str, estimate: Estimate) -> dict[str, Cell]:
    return {
        name: _number(estimate.value),
        f"{name}_stderr": _number(estimate.stderr),
        f"{name}_low": _number(estimate.low),
        f"{name}_high": _number(estimate.high),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
