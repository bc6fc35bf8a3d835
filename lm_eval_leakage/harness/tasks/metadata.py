"""Reads the parameters of a task's probe and statistics from its `metadata` (YAML or `--metadata`).

Refuses unknown keys of `--metadata` before the model is loaded, and suggests the nearest known key.

All tasks of a run share its `--metadata`, and the harness adds the model's arguments to it. So in a run that also has
other tasks (RULER takes `max_seq_lengths`), only a key that closely resembles one of ours is refused.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from lm_eval_leakage.detectors import Probe, probes, statistics
from lm_eval_leakage.logs.reference_log import ReferenceLog, read_reference

logger = logging.getLogger(__name__)
SWITCHES = {
    "resume": "false to save no answers and reuse none",
    "control_form": "false not to score the control forms",
}
OWN_KEYS = {
    "data_files": "a local file of questions instead of the task's own data",
    "fields": "a mapping from question, options and answer to the names of their fields in data_files",
    "split": "train, to audit a task's training split instead of the one that it is scored on",
    "reference_log": "a reference model's samples log, whose log-likelihoods are subtracted",
    "resume": "whether answers are saved, so that an interrupted audit can be resumed",
    "control_form": "whether option orders are also scored in the control forms where the verdict needs them",
    "published_orders": "what the author documents about the published orders, as STATUS: SOURCE",
    "seal": "the private folder of a sealed benchmark, whose key makes the tests of its draws exact",
    "probe": "name of the probe",
    "version": "version of the task, for the results file",
    "description": "description of the task",
    "audit_of": "the task that is audited",
}
CLOSE = 0.8  # difflib ratio: one letter added, dropped or replaced in a word of five


def probe_of(metadata: Mapping[str, Any]) -> Probe:
    """Return the probe that `metadata` names. Other keys are ignored, since the harness adds the model's arguments to
    it."""
    if "probe" not in metadata:
        raise ValueError(f"metadata names no probe; add `probe:` with one of: {', '.join(probes.names())}")
    chosen: Any = probes.get(metadata["probe"])
    probe: Probe = chosen(**{field.name: metadata[field.name] for field in fields(chosen) if field.name in metadata})
    return probe


def reference_of(metadata: Mapping[str, Any], probe: Probe) -> ReferenceLog | None:
    """Return the log of a reference model, whose log-likelihoods are subtracted from those of the run's model.

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


def switch_of(metadata: Mapping[str, Any], key: str) -> bool:
    """Return the value of one of `SWITCHES`, which are on by default."""
    value = metadata.get(key, True)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; give true, or {SWITCHES[key]}")
    return value


def with_parameters(pipeline: dict[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pipeline of the YAML, with the parameters of its statistic that `metadata` (or the command line)
    sets."""
    filters = []
    for entry in pipeline["filter"]:
        chosen: Any = statistics.get(entry["statistic"]) if "statistic" in entry else None
        names = [field.name for field in fields(chosen)] if chosen else []
        filters.append(entry | {name: metadata[name] for name in names if name in metadata})
    return pipeline | {"filter": filters}


@functools.cache
def known_keys() -> frozenset[str]:
    """Return every key that an audit reads: our own, and the parameters of all probes and statistics."""
    registered = [probes.get(name) for name in probes.names()] + [statistics.get(name) for name in statistics.names()]
    with_parameters: Any = filter(is_dataclass, registered)  # those of other packages may not be dataclasses
    return frozenset({*OWN_KEYS, *(field.name for kind in with_parameters for field in fields(kind) if field.repr)})


def refusal_of_keys(keys: Iterable[str], *, of_audits_only: bool) -> str | None:
    """Return why a run with these user-given keys is refused; None if each is known or may belong to another task."""
    for key in keys:
        close = get_close_matches(key, known_keys(), n=1, cutoff=CLOSE)
        if key in known_keys() or not (close or of_audits_only):
            continue
        nearest = close or get_close_matches(key, known_keys(), n=1, cutoff=0.5)
        remedy = f"did you mean {nearest[0]!r}" if nearest else f"choose from: {', '.join(sorted(known_keys()))}"
        return f"--metadata has the key {key!r}, which no audit knows; {remedy}"
    return None


@functools.cache
def warn_of_misspelled_keys(keys: frozenset[str]) -> None:
    """Warn of misspelled keys. Only warns: when called from Python, a task manager's metadata also holds the model's
    arguments, one of which may resemble one of our keys."""
    if refusal := refusal_of_keys(sorted(keys), of_audits_only=False):
        logger.warning("%s", refusal.replace("--metadata", "metadata"))
