"""The line of an audit's samples log: its schema (docs/log_format.md). `line_writer` and `line_reader` keep to it.

A line is what one statistic says of one question. The harness writes it, with keys of its own beside ours.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.inference.known_scores import class_of
from lm_eval_leakage.records import Question

Scalar = bool | int | float | str | None

VERSION = 2
VERSION_KEY = "leakage_log"  # in no line of another task; lines of version 1 are without
MARK_OF_VERSION_1 = "ranks_by"
CORE = (  # our keys of every line, in their order; what a statistic adds follows them under names of its own
    VERSION_KEY,
    "benchmark",
    "detector",
    "flagged",
    "pvalue",
    "null_rate",
    "statistic",
    "ranks_by",
    "reason",
    "guards",
    "calibrated_flagged",
    "calibrated_pvalue",
)
OF_HARNESS = (
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
)


@dataclass(frozen=True)
class Arms:
    """Whether the model answers a question correctly in each arm of the choice-confusion audit."""

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool


@dataclass(frozen=True)
class AuditLine:
    """One question as one statistic judged it.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    doc_id: number of the row in the audit, which tells copies of a row apart
    doc: the row
    read: the row as a question; None where it cannot be read
    subject: as the benchmark files it, else the audit's file name
    benchmark: the task that was audited
    detector: id; filter: the statistic's name in tables
    scores: a higher one means more leakage; by name as of `score_names`; empty where the question was not tested
    guards: which natural orders its options have
    flagged, null_rate, pvalue: by the published rule; None where there is no rule, or no rate
    reason: why it was not tested, in words; None where it was
    margin: nats by which what was published beats the best other; None for statistics without one
    loglikelihoods: of the orders that were asked, published first, nats; empty for other probes
    arms: None for other audits
    calibrated_flagged: by the calibration that the run had; None without one
    values: every number that the statistic adds, by its name: what goes into its rows, and what else it measured
    """

    question: str
    doc_id: int | None
    doc: Mapping[str, Any]
    read: Question | None
    subject: str
    benchmark: str
    detector: str
    filter: str
    scores: Mapping[str, float]
    guards: tuple[str, ...]
    flagged: bool | None
    null_rate: float | None
    pvalue: float | None
    reason: str | None
    margin: float | None
    loglikelihoods: array[float]
    arms: Arms | None
    calibrated_flagged: bool | None
    values: Mapping[str, float]

    @property
    def guarded(self) -> bool:
        """Whether its options have a natural order."""
        return bool(self.guards)

    @property
    def of_class(self) -> str:
        """As of `known_scores`."""
        return class_of(0 if self.read is None else len(self.read.options), self.guarded)


def is_audit_line(sample: Mapping[str, Any]) -> bool:
    """Whether a line of a samples log, as the harness holds or writes it, is an audit's."""
    return VERSION_KEY in sample or MARK_OF_VERSION_1 in sample


def looks_like_audit_line(line: bytes) -> bool:
    """The same of a line that may be cut off: the text within it has its quotation marks escaped."""
    return any(f'"{key}"'.encode() in line for key in (VERSION_KEY, MARK_OF_VERSION_1))
