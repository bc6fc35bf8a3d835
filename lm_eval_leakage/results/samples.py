"""Samples logs of leakage audits, line by line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judged:
    """One question as one statistic judged it.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    scores: by detector and, after a slash, the value that ranks; empty where the question was not tested
    """

    question: str
    doc: Mapping[str, Any]
    scores: Mapping[str, float]
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
                        yield _judged(sample)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    logger.warning("%s, line %d is left out: %r", file, number, error)


def _judged(sample: Mapping[str, Any]) -> Judged:
    keys = [key for key in sample["ranks_by"].split(",") if key]
    scores = {f"{sample['detector']}/{key}": float(sample[key]) for key in keys}
    return Judged(sample["doc_hash"], sample["doc"], scores, sample.get("reason"))
