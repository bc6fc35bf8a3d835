"""Writes annotated copies of the harness's files; the originals are never changed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_file, atomic_write
from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.logs.run_shard import OF_ALL_SHARDS
from lm_eval_leakage.results.column_registry import in_harness
from lm_eval_leakage.results.flat import flat_question, flat_row, same_columns
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL

logger = logging.getLogger(__name__)

LEAKAGE_FILTER = "leakage"  # instead of a filter's name in the harness's keys


def write(annotation: Annotation, version: str, folder: Path | None = None) -> list[Path]:
    """`results_*_leakage.json` and `samples_*_leakage.jsonl` of every annotated run.

    folder: for the files, each in a sub-folder named after its model; by default they are next to the originals
    """
    return [*_results(annotation, version, folder), *_samples(annotation, folder)]


def beside(original: Path, folder: Path | None) -> Path:
    """Within `folder`, in a sub-folder named after the model, so that files of several models do not collide."""
    place = original.parent if folder is None else folder / original.parent.name
    return place / f"{original.stem}_{LEAKAGE_FILTER}{original.suffix}"


def _results(annotation: Annotation, version: str, folder: Path | None) -> Iterator[Path]:
    for original in map(Path, annotation.origins.get("runs", ())):
        if original.suffix != ".json":
            continue
        content = json.loads(original.read_text(encoding="utf-8"))
        file = beside(original, folder)
        rows = [row for row in annotation.rows if row.origin == str(original)]
        told = json.dumps(_with_columns(content, rows, annotation, version), indent=2, ensure_ascii=False)
        atomic_write(file, told)
        yield file


def _with_columns(
    content: dict[str, Any], rows: Sequence[Row], annotation: Annotation, version: str
) -> dict[str, Any]:
    for row in [] if _is_of_shard(content) else rows:
        for section in ("results", "groups"):
            found = content.get(section)
            own = found.get(row.task) if isinstance(found, dict) else None
            if isinstance(own, dict) and row.level != SUBJECT_LEVEL:
                own |= keys_of(row)
    return content | {
        LEAKAGE_FILTER: {
            "version": version,
            "detector": annotation.detector,
            "rows": [flat_row(row) for row in annotation.rows],
            "problems": [str(problem) for problem in annotation.problems],
            **annotation.origins,
        }
    }


def _is_of_shard(content: dict[str, Any]) -> bool:
    """Whether the file's own values are those of a shard, next to which columns of all shards would mislead."""
    configs = content.get("configs")
    own = configs.values() if isinstance(configs, dict) else ()
    found = [one.get("metadata") for one in own if isinstance(one, dict)]
    return any(OF_ALL_SHARDS in metadata for metadata in found if isinstance(metadata, dict))


def keys_of(row: Row) -> dict[str, float]:
    """A row's columns under the harness's kind of keys, `name,leakage` and `name_stderr,leakage`, all of them numbers;
    columns about accuracy include the metric's name."""
    flat, metric = flat_row(row), row.metric.partition(",")[0]
    found: dict[str, float] = {}
    for column in in_harness():
        name = column.harness.format(metric=metric)
        if not metric and name != column.harness:
            continue
        for ending in ("", "_stderr"):
            value = flat.get(column.key + ending)
            if isinstance(value, (int, float)):
                found[f"{name}{ending},{LEAKAGE_FILTER}"] = float(value)
    return found


def _samples(annotation: Annotation, folder: Path | None) -> Iterator[Path]:
    by_log: dict[str, list[AnnotatedQuestion]] = {}
    for question in annotation.questions:
        by_log.setdefault(question.log, []).append(question)
    for log, questions in by_log.items():
        file = beside(Path(log), folder)
        with atomic_file(file) as lines:
            for record in same_columns([flat_question(question) for question in questions]):
                lines.write(json.dumps(record, ensure_ascii=False) + "\n")
        yield file


def records(annotations: Sequence[Annotation]) -> list[dict[str, Scalar]]:
    """Every question of every model as a flat record, for a data frame."""
    return same_columns(
        [
            {"model": annotation.model, **flat_question(question)}
            for annotation in annotations
            for question in annotation.questions
        ]
    )


def warn_of_problems(annotations: Sequence[Annotation]) -> None:
    for annotation in annotations:
        for problem in annotation.problems:
            logger.warning("%s", problem)
