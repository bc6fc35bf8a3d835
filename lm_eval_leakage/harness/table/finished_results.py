"""What `evaluate` returns of our tasks: strict JSON, without rows that have no value, and with leakage columns on the
tasks that were asked beside their audits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lm_eval_leakage.harness.patches.evaluate_results import on_results
from lm_eval_leakage.harness.table.aggregations import JudgedQuestion, RowValue
from lm_eval_leakage.harness.table.leakage_columns import add_columns
from lm_eval_leakage.logs.line_writer import written_line

OF_AN_ERROR = "_stderr_stderr"  # the harness gives each of our errors a place for an error of its own


def finish_results() -> None:
    """Have the results of every run with our tasks finished, where the harness puts them together."""
    on_results(finish)


def finish(results: dict[str, Any]) -> None:
    """Changes rows of our tasks and their groups only; adds columns to others that were audited beside."""
    for section in ("results", "groups"):
        for row in (results.get(section) or {}).values():
            if any(isinstance(value, RowValue) for value in row.values()):
                finished = {key: _plain(value) for key, value in row.items() if OF_AN_ERROR not in key}
                row.clear()
                row.update({key: value for key, value in finished.items() if value is not None})
    samples = results.get("samples") or {}
    audits = [task for task, lines in samples.items() if any(map(is_judged, lines))]
    for task in audits:
        samples[task] = [finished_sample(line) for line in samples[task]]
    if audits and len(audits) < len(samples):
        add_columns(results, audits)


def _plain(value: object) -> object:
    """None for what has no value: JSON knows no NaN."""
    if isinstance(value, RowValue):
        if value.words is not None:
            return int(value) if value.words.isdigit() else value.words
        return float(value) if math.isfinite(value) else None
    return value


def finished_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of one of our tasks as it is logged, with the verdict in flat scalars."""
    of_harness = {key: value for key, value in sample.items() if key not in sample["metrics"]}
    responses = {"filtered_resps": [first for first, *_ in sample["resps"]]}
    judged = sample["filtered_resps"][0]
    return (
        of_harness
        | responses
        | written_line(
            judged.verdict,
            benchmark=judged.benchmark,
            detector=judged.detector,
            guards=judged.guards,
            contributions=judged.contributions,
            calibrated=judged.calibrated,
        )
    )


def is_judged(sample: Mapping[str, Any]) -> bool:
    responses = sample.get("filtered_resps")
    return isinstance(responses, list) and bool(responses) and isinstance(responses[0], JudgedQuestion)
