"""Writes the lines of an audit's samples log; nothing else does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.logs.audit_line import (
    COMPARED_ORDERS,
    CORE,
    LINE_VERSION,
    OF_HARNESS,
    OF_ORDERS,
    QUESTION_KEY,
    RIGHT_PLACES,
    SHARED_TEXTS,
    VERSION_KEY,
    Scalar,
)
from lm_eval_leakage.records import Measurement, OrderAnswers, Skipped, Verdict


def written_line(
    verdict: Verdict,
    *,
    benchmark: str,
    detector: str,
    guards: Sequence[str] = (),
    question_key: str = "",
    contributions: Mapping[str, float | None] = MappingProxyType({}),
    calibrated: Calibrated | Skipped | None = None,
    orders: OrderAnswers | None = None,
) -> dict[str, Scalar]:
    """Our keys of one line: JSON scalars, those of CORE first.

    question_key: as of `questions.copies`, by which a reader recognises copies
    contributions: what the question adds to each row of the task, by the row's name, since the harness's loggers read
        it; None where it adds nothing by itself
    orders: its answers to all orders, of which the line holds what `resps` does not
    """
    core: dict[str, object] = dict.fromkeys(CORE) | {
        VERSION_KEY: LINE_VERSION,
        "benchmark": benchmark,
        "detector": detector,
        "guards": ",".join(guards),
        **({QUESTION_KEY: question_key} if question_key else {}),
        **_decision(verdict),
        **(_calibrated(calibrated) if isinstance(calibrated, Calibrated) else {}),
        **({} if orders is None else _orders(orders)),
    }
    reserved = {*core, *OF_HARNESS}
    values = {field.name: getattr(verdict, field.name) for field in fields(verdict)}
    values |= {name: contributions[name] for name in sorted(contributions)}
    own = {name: value for name, value in values.items() if name not in reserved and _is_scalar(value)}
    return {key: _in_json(value) for key, value in (core | own).items()}


def _decision(verdict: Verdict) -> dict[str, object]:
    """The decision, and the keys of the line by which questions can be ranked, a higher value meaning more leakage."""
    if isinstance(verdict, Skipped):
        return {"reason": verdict.reason, "ranks_by": ""}
    if isinstance(verdict, Measurement):
        return {"flagged": verdict.flagged, "ranks_by": ",".join(verdict.ranks_by)}
    own = ("flagged", "pvalue", "null_rate", "statistic")
    return {"ranks_by": "statistic"} | {key: getattr(verdict, key) for key in own}


def _calibrated(calibrated: Calibrated) -> dict[str, object]:
    return {"calibrated_flagged": calibrated.flagged, "calibrated_pvalue": calibrated.pvalue}


def _orders(orders: OrderAnswers) -> dict[str, object]:
    reference = ",".join(map(repr, orders.reference))
    own: dict[str, object] = dict(zip(OF_ORDERS, (orders.orders, reference or None), strict=True))
    for key, places in ((COMPARED_ORDERS, orders.compared), (RIGHT_PLACES, orders.right)):
        own |= {key: ",".join(map(str, places))} if places else {}
    return own | ({SHARED_TEXTS: " ".join(orders.shared)} if orders.shared else {})


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _in_json(value: Any) -> Scalar:
    """None for a number that is undefined: JSON has no NaN."""
    found: Scalar = None if isinstance(value, float) and not math.isfinite(value) else value
    return found
