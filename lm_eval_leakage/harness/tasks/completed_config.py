"""Completes an audit's configuration: the rows of its table, the parameters of its statistics, its seal."""

from __future__ import annotations

from typing import Any

from lm_eval_leakage.harness.table.declared_rows import entries_of, metric_list
from lm_eval_leakage.harness.tasks.parameters import with_parameters
from lm_eval_leakage.inference.calibrated_rows import CALIBRATED_ROWS
from lm_eval_leakage.probes import Probe
from lm_eval_leakage.sealing.seal import COMMITMENT_KEY, Seal


def completed(
    config: dict[str, Any], probe: Probe, seal: Seal | None = None, *, is_calibrated: bool = False
) -> dict[str, Any]:
    """A task's configuration with the rows of its table, its statistics' parameters and its seal's commitment."""
    metadata, rows = config["metadata"], config.get("metric_list")
    if rows is None:
        rows = metric_list(config["filter_list"], with_verdict=probe.asks_orders)
    return config | {
        "metric_list": [*rows, *(entries_of(CALIBRATED_ROWS) if is_calibrated else ())],
        "filter_list": [with_parameters(entry, metadata) for entry in config["filter_list"]],
        "metadata": metadata if seal is None else metadata | {COMMITMENT_KEY: seal.commitment},
    }
