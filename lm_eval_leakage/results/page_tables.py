"""The tables of pages: a line for each model and benchmark, every row with all columns, the values of detectors that
have no column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lm_eval_leakage.results import columns
from lm_eval_leakage.results.detector_values import DetectorValue
from lm_eval_leakage.results.formatting import count, counted, whole_percent
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL
from lm_eval_leakage.results.tabulating import (
    COUNT,
    EMPTY,
    INTERVAL,
    NUMBER,
    PERCENT,
    TEXT,
    Cell,
    Column,
    Table,
    tabulate,
)
from lm_eval_leakage.results.verdict_texts import NO_REVISION, has_enough_flagged, n_flagged
from lm_eval_leakage.results.verdict_words import pvalue_parts, ratio_parts
from lm_eval_leakage.stats.pooling import Estimate

OF_FLAGGED_ANSWERS = (columns.ACCURACY_FLAGGED, columns.GAP, columns.GAP_ADJUSTED, columns.GAP_PVALUE, columns.STRONG)
BENCHMARK: Column[Row] = Column("benchmark", TEXT, lambda row: row.name)
MODEL_AND_BENCHMARK: Column[Row] = Column("model", TEXT, lambda row: Cell(row.model, row.name))


def benchmark_table(rows: Sequence[Row], further: Sequence[Column[Row]]) -> Table:
    """Return a table with a line for each model and benchmark."""
    is_one = len({row.model for row in rows}) < 2
    return tabulate(rows, [BENCHMARK if is_one else MODEL_AND_BENCHMARK, *further], lambda row: row.name)


def deciding_cell(row: Row) -> Cell:
    """Return the p-value, sorted by the adjusted one; where none holds, the order ratio, which sorts after all
    p-values."""
    verdict, ratio = row.verdict, row.verdict.ratio
    if not math.isnan(verdict.deciding_pvalue):
        unadjusted, adjusted, _ = pvalue_parts(verdict)
        return Cell(unadjusted, adjusted and f"{adjusted} adjusted", verdict.deciding_pvalue)
    if math.isnan(ratio.value):
        return EMPTY
    value, bound = ratio_parts(ratio)
    return Cell(f"ratio {value}", bound, 1 + 1 / (1 + ratio.low))


def _flagged(row: Row) -> Cell:
    rate: Estimate = columns.FLAGGED.of(row)
    if not rate:
        return EMPTY
    return Cell(whole_percent(rate.value), f"{count(n_flagged(row))} of {count(row.n_tested)}", rate.value)


def _accuracy(row: Row) -> Cell:
    cell = columns.ACCURACY.cell(row)
    metric = row.metric.partition(",")[0]
    if metric in ("acc", "") or cell == EMPTY:
        return cell
    return Cell(cell.text, f"{cell.small} {metric}".lstrip(), cell.order)


def _questions(row: Row) -> Cell:
    n = row.verdict.n_asked or row.n
    if not n:
        return EMPTY
    return Cell(counted(n), "" if row.provenance.seed is None else f"drawn with seed {row.provenance.seed}", n)


FIRST: Sequence[Column[Row]] = (  # what a reader needs first
    columns.VERDICT,
    Column("accuracy", NUMBER, _accuracy, columns.ACCURACY.meaning),
    replace(columns.ACCURACY_CLEAN, heading="accuracy without leakage"),
    Column("flagged", NUMBER, _flagged, columns.FLAGGED.meaning),
    replace(columns.NULL_RATE, heading="expected", kind=PERCENT),
    Column(
        "p or ratio",
        NUMBER,
        deciding_cell,
        "the verdict's p-value and, where several verdicts are shown together or it is a later look, the adjusted "
        "one, which decides; where none holds, how many times as often as by chance the published order is the most "
        "likely one",
    ),
)
CHECKED: Sequence[Column[Row]] = (  # what a verdict rests on
    Column("which model", TEXT, lambda row: row.provenance.revision or NO_REVISION),
    Column("asked as", TEXT, lambda row: row.provenance.asked_as),
    Column("questions", NUMBER, _questions),
    Column("date", TEXT, lambda row: row.provenance.date),
    Column("lm_eval", TEXT, lambda row: row.provenance.lm_eval),
)


def rows_table(rows: Sequence[Row]) -> Table:
    """Return all columns with a heading: the task, the model if there are several, those of the first table, the
    others."""
    is_one = len({row.model for row in rows}) < 2
    verdicts = [column for column in columns.OF_VERDICT if column.heading and column is not columns.VERDICT]
    first = [
        *([] if is_one else [columns.MODEL]),
        columns.VERDICT,
        columns.FLAGGED,
        columns.NULL_RATE,
        *verdicts,
        columns.ACCURACY,
        columns.ACCURACY_CLEAN,
    ]
    others = [
        _with_enough_flagged(column)
        for column in columns.displayed()
        if column not in (columns.TASK, columns.MODEL, *first)
    ]
    task = replace(columns.TASK, of=lambda row: Cell(row.task, f"{row.level} {place_of(row)}".rstrip()))
    return tabulate(rows, [task, *first, *others], lambda row: row.level)


def place_of(row: Row) -> str:
    """Return the group that a row is part of, since its task may also stand there by itself."""
    return f"in {row.group}" if row.group else ""


def _with_enough_flagged(column: Column[Row]) -> Column[Row]:
    """Return the column with empty cells for rows with fewer flagged questions than allow a claim about their
    answers."""
    if column not in OF_FLAGGED_ANSWERS:
        return column
    return replace(column, shown=lambda row: column.cell(row) if has_enough_flagged(row) else EMPTY)


def other_detectors(rows: Sequence[Row]) -> Table | None:
    """Return the values of detectors that have no column: a line per group or task, detector and value."""
    # not for each metric of the run
    once = {(row.group, row.name): row for row in reversed(rows) if row.level != SUBJECT_LEVEL}
    entries = [(row, value) for row in reversed(once.values()) for value in row.others]
    shown: list[Column[tuple[Row, DetectorValue]]] = [
        Column(columns.TASK.heading, TEXT, lambda line: Cell(line[0].name, place_of(line[0]))),
        Column("detector", TEXT, lambda line: line[1].detector),
        Column("value", TEXT, lambda line: line[1].name),
        Column("questions", COUNT, lambda line: line[1].n),
        Column("mean", INTERVAL, lambda line: line[1].estimate),
        Column(columns.NULL_RATE.heading, NUMBER, lambda line: line[1].null_rate),
    ]
    return tabulate(entries, shown) if entries else None
