"""Reads the parameters of a task's probe and statistics from its `metadata` (YAML or `--metadata`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lm_eval_leakage.logs.reference_log import ReferenceLog, read_reference
from lm_eval_leakage.probes import Probe, probes
from lm_eval_leakage.statistics import statistics

logger = logging.getLogger(__name__)


def probe_of(metadata: Mapping[str, Any]) -> Probe:
    """The probe that `metadata` names. Other keys are ignored, since the harness adds the model's arguments to it."""
    if "probe" not in metadata:
        raise ValueError(f"metadata names no probe; add `probe:` with one of: {', '.join(probes.names())}")
    chosen: Any = probes.get(metadata["probe"])
    probe: Probe = chosen(**{field.name: metadata[field.name] for field in fields(chosen) if field.name in metadata})
    return probe


def reference_of(metadata: Mapping[str, Any], probe: Probe) -> ReferenceLog | None:
    """The log of a reference model, whose log-likelihoods are subtracted from those of the run's model.

    All audits of a run share its `--metadata`; an audit that does not score given texts ignores the reference.
    """
    if metadata.get("reference_log") is None:
        return None
    if probe.needs != "loglikelihood":
        logger.warning(
            "reference_log is %r, but the probe %r requests no log-likelihoods of given texts from which a reference "
            "could be subtracted; its audit ignores the reference",
            metadata["reference_log"],
            metadata["probe"],
        )
        return None
    return read_reference(str(metadata["reference_log"]))


SWITCHES = {
    "resume": "false to save no answers and reuse none",
    "control_form": "false not to ask the control form",
}


def switch_of(metadata: Mapping[str, Any], key: str) -> bool:
    """One of `SWITCHES`, which are on by default."""
    found = metadata.get(key, True)
    if not isinstance(found, bool):
        raise ValueError(f"{key} is {found!r}; give true, or {SWITCHES[key]}")
    return found


def with_parameters(pipeline: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline of the YAML, with the parameters of its statistic that `metadata` (or the command line) sets."""
    filters = []
    for entry in pipeline["filter"]:
        chosen: Any = statistics.get(entry["statistic"]) if "statistic" in entry else None
        names = [field.name for field in fields(chosen)] if chosen else []
        filters.append(entry | {name: metadata[name] for name in names if name in metadata})
    return pipeline | {"filter": filters}
