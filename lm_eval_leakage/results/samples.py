"""Samples logs of leakage audits, line by line."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.questions import question_from_doc
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.statistics.known_scores import class_of

logger = logging.getLogger(__name__)

TASK = re.compile(r"samples_(.*?)_\d{4}-.*")  # the harness puts the time behind the name


@dataclass(frozen=True)
class Judged:
    """One question as one statistic judged it.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    subject: as the benchmark files it, else the audit's file name
    scores: by detector and, after a slash, the value that ranks; empty where the question was not tested
    of_class: as of `known_scores`
    guarded: whether its options have a natural order
    flagged, null_rate: by the published rule; None where there is no rule, or no rate
    """

    question: str
    doc: Mapping[str, Any]
    subject: str
    detector: str
    scores: Mapping[str, float]
    of_class: str
    guarded: bool
    flagged: bool | None
    null_rate: float | None
    reason: str | None


def judged(place: Path) -> Iterator[Judged]:
    """Every line of the logs at `place`, a file or the folder of a run. A broken line is named and left out; those of
    other tasks are passed over. Raises ValueError where there is no log."""
    files = [place] if place.is_file() else sorted(place.rglob("samples_*.jsonl"))
    if not files:
        raise ValueError(f"{place} holds no samples log; run the audit with --log_samples and --output_path")
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    sample = json.loads(line)
                    if "ranks_by" in sample:
                        yield _judged(sample, file)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    logger.warning("%s, line %d is left out: %r", file, number, error)


def model_of(place: Path) -> str | None:
    """The model's name, from the newest results beside the logs that can be read; None where there are none."""
    folder = place.parent if place.is_file() else place
    for results in sorted(folder.rglob("results_*.json"), reverse=True):
        try:
            return str(json.loads(results.read_text(encoding="utf-8"))["model_name"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s names no model: %r", results, error)
    return None


def _judged(sample: Mapping[str, Any], file: Path) -> Judged:
    keys = [key for key in sample["ranks_by"].split(",") if key]
    doc = sample["doc"]
    try:
        question = question_from_doc(doc)
        subject, n_options = question.subject, len(question.options)
    except UntestableQuestion:
        subject, n_options = "", 0
    return Judged(
        sample["doc_hash"],
        doc,
        subject or TASK.sub(r"\1", file.stem),
        sample["detector"],
        {f"{sample['detector']}/{key}": float(sample[key]) for key in keys},
        class_of(n_options, bool(sample["guards"])),
        bool(sample["guards"]),
        sample.get("flagged"),
        sample.get("null_rate"),
        sample.get("reason"),
    )
