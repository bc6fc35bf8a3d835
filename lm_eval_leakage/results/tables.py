"""Rows in the order of their verdicts, the most suspicious first, as text table, Markdown, LaTeX, CSV or JSON; and
annotated copies of the harness's files, which are never changed themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_file, atomic_write
from lm_eval_leakage.logs.run import ANNOTATED, RESULTS
from lm_eval_leakage.results.columns import MODEL, displayed, in_harness
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import GROUP_LEVEL, SUBJECT_LEVEL, flat_question, flat_row, same_columns, task_of
from lm_eval_leakage.results.tabulating import (
    INTERVALS_NAMED,
    TAG,
    Cells,
    aligned,
    csv_of,
    latex_of,
    markdown_of,
    tabulate,
)
from lm_eval_leakage.results.verdict import DataVerdict, VerdictWord
from lm_eval_leakage.results.verdict_words import sentence_of
from lm_eval_leakage.texts import as_json, visible

Suspicion = tuple[int, float, float]
LEAST: Suspicion = (1, math.inf, math.inf)
LEAKAGE_FILTER = "leakage"  # instead of a filter's name in the harness's keys


def suspicion(verdict: DataVerdict) -> Suspicion:
    """Return a sort key, the smallest for the most suspicious verdict: by its word, its p-value, and the lower bound
    of the order ratio; rows without a verdict come last."""
    if not verdict.word:
        return LEAST
    pvalue = verdict.deciding_pvalue
    low = verdict.ratio.low
    return (
        -VerdictWord(verdict.word).place,
        math.inf if math.isnan(pvalue) else pvalue,
        math.inf if math.isnan(low) else -low,
    )


def benchmarks(rows: Iterable[Row]) -> list[Row]:
    """Return the first row (that of the first metric) of each task or group that is in no other group, with each
    number of few-shot examples; the most suspicious first."""
    first: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row.level != SUBJECT_LEVEL and not row.group:
            first.setdefault((row.model, row.task, row.n_shot), row)
    return sorted(first.values(), key=lambda row: suspicion(row.verdict))


def by_suspicion(rows: Sequence[Row]) -> list[Row]:
    """Return benchmarks by their verdicts, and within a group its groups, then its tasks by their verdicts, each
    followed by its subjects by theirs."""
    of_task = {(row.model, row.group, row.task): suspicion(row.verdict) for row in rows}
    first: dict[tuple[str, str, str], int] = {}
    for place, row in enumerate(rows):
        first.setdefault((row.model, "", row.group or task_of(row)), place)

    def key(row: Row) -> Any:
        whole, task = (row.model, "", row.group or task_of(row)), (row.model, row.group, task_of(row))
        is_group, is_subject = row.level == GROUP_LEVEL, row.level == SUBJECT_LEVEL
        of_member = (LEAST, "") if is_group else (of_task.get(task, LEAST), task_of(row))
        of_subject = (suspicion(row.verdict), row.task) if is_subject else (LEAST, "")
        return of_task.get(whole, LEAST), first[whole], not is_group, of_member, is_subject, of_subject

    return sorted(rows, key=key)


def as_text(rows: Sequence[Row], style: str) -> str:
    """Return the rows as text in one of the STYLES. Text tables, Markdown and LaTeX leave out columns without any
    value, and say what stands in brackets."""
    if style in ("csv", "json"):
        records = [flat_row(row) for row in rows]
        return csv_of(records) if style == "csv" else as_json(records, indent=1)
    if style == "latex":
        return f"% {INTERVALS_NAMED}.\n{latex_of(cells(rows))}"
    return f"{(aligned if style == 'table' else markdown_of)(cells(rows))}\n\n{INTERVALS_NAMED}."


def verdicts_in_words(rows: Sequence[Row], style: str) -> str:
    """Return a line with the verdict's sentence for each benchmark (a group, or a task outside groups), the most
    suspicious first; empty in styles that programs read."""
    if style not in ("table", "markdown"):
        return ""
    is_one, whole = len({row.model for row in rows}) == 1, benchmarks(rows)
    lines = {(row.model, row.task): sentence_of(row.verdict) for row in whole if row.verdict.word}
    sentences = [visible(f"{task if is_one else f'{model}, {task}'}: {text}") for (model, task), text in lines.items()]
    return "\n".join(sentences if style == "table" else [f"- {TAG.sub('&lt;', line)}" for line in sentences])


def cells(rows: Sequence[Row]) -> Cells:
    """Return the heading and the rows; without the model if it is one."""
    is_one = len({row.model for row in rows}) == 1
    shown = [column for column in displayed() if column.in_text]
    if is_one:
        shown = [column for column in shown if column is not MODEL]
    return tabulate(rows, shown).cells


# ---------------------------------------------------------------------- files


def write(annotation: Annotation, version: str, folder: Path | None = None) -> list[Path]:
    """Write `results_*_leakage.json` and `samples_*_leakage.jsonl` of every run that was joined with an audit.

    Return their paths. Copies of other runs would add nothing.

    Where the run's metrics are from a file that is not named as a results file, only what is added is written.
    folder: for the files, each in a sub-folder named after its model; by default they are next to the originals
    """
    files = []
    for original in map(Path, annotation.origins.get("runs", ())):
        rows = [row for row in annotation.rows if row.origin == str(original)]
        if original.suffix != ".jsonl" and any(row.n_joined for row in rows):
            content = json.loads(original.read_bytes()) if RESULTS.fullmatch(original.name) else {}
            extended = _with_columns(content, rows, annotation, version)
            files.append(_beside(original, ".json", folder))
            atomic_write(files[-1], as_json(extended, indent=2))
    for log, questions in grouped(annotation.questions, lambda question: question.log).items():
        if not any(question.audited is not None for question in questions):
            continue
        files.append(_beside(Path(log), ".jsonl", folder))
        with atomic_file(files[-1]) as lines:
            for record in same_columns([flat_question(question) for question in questions]):
                lines.write(as_json(record) + "\n")
    return files


def _beside(original: Path, suffix: str, folder: Path | None) -> Path:
    """Return a path within `folder`, in a sub-folder named as that of the original, after the model, so that files of
    several models do not collide."""
    place = original.parent if folder is None else folder / original.parent.name
    return place / f"{original.stem}{ANNOTATED}{suffix}"


def _with_columns(
    content: dict[str, Any], rows: Sequence[Row], annotation: Annotation, version: str
) -> dict[str, Any]:
    for row in rows:
        for section in ("results", "groups"):
            entries = content.get(section)
            metrics = entries.get(annotation.names.get(row.task, row.task)) if isinstance(entries, dict) else None
            if isinstance(metrics, dict) and row.level != SUBJECT_LEVEL:
                metrics |= keys_of(row)
    return content | {
        LEAKAGE_FILTER: {
            "version": version,
            "detector": annotation.detector,
            "rows": [flat_row(row) for row in annotation.rows],
            "problems": [str(problem) for problem in annotation.problems],
            **annotation.origins,
        }
    }


def keys_of(row: Row) -> dict[str, float]:
    """Return a row's columns under the harness's kind of keys, `name,leakage` and `name_stderr,leakage`, all of them
    numbers; columns about accuracy include the metric's name."""
    flat, metric = flat_row(row), row.metric.partition(",")[0]
    flat_keys: dict[str, float] = {}
    for column in in_harness():
        name = column.harness.format(metric=metric)
        if not metric and name != column.harness:
            continue
        for ending in ("", "_stderr"):
            value = flat.get(column.key + ending)
            if isinstance(value, (int, float)):
                flat_keys[f"{name}{ending},{LEAKAGE_FILTER}"] = float(value)
    return flat_keys
