"""The registry of results columns: key, heading, meaning, computation and format of each in one entry.

Text tables, Markdown, LaTeX, CSV, JSON, the pages, the harness's results, `verdicts.json` and `--fail-on` read this
module. Columns of a verdict are the numbers of `results.verdict_numbers`. Columns that are computed from the questions
of a row are properties of `results.measured.Measured`. A name that is assigned within a tuple (`MODEL := ...`) is for
other modules. Tables in the docs are made from all columns: `python -m tests.column_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.measured import COMPUTED, Measured, value_by
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.tabulating import (
    BOUND_OF_PVALUE,
    COUNT,
    INTERVAL,
    INTERVAL_AND_ERROR,
    PVALUE,
    TEXT,
    Cell,
    Column,
    Kind,
)
from lm_eval_leakage.results.verdict_numbers import NUMBERS, WORD, VerdictNumber
from lm_eval_leakage.results.verdict_words import aim_beside
from lm_eval_leakage.stats.inflation import without
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, share

METRIC = Kind("", lambda key: Cell(key.removesuffix(",none")))
# ends of meanings
UNCOUNTED = "too long, or without a valid answer; left out if there are none"
TOO_LONG = "they are longer than the model's window; left out if there are none"
ARMS_IN_WORDS = {
    "original": "as published",
    "shuffled": "shuffled",
    "replaced": "options replaced",
    "generalized": "replaced and shuffled",
}
_BY_KEY = {column.key: column for column in COMPUTED}
FLAGGED, FLAGGED_UNGUARDED = _BY_KEY["flagged_rate"], _BY_KEY["flagged_rate_unguarded"]
NULL_RATE = _BY_KEY["null_rate"]
PVALUE_ALL, PVALUE_UNGUARDED = _BY_KEY["pvalue"], _BY_KEY["pvalue_unguarded"]
CONFUSION = _BY_KEY["confusion_delta"]
ACCURACY_FLAGGED, ACCURACY_UNFLAGGED = _BY_KEY["accuracy_flagged"], _BY_KEY["accuracy_unflagged"]
GAP, GAP_ADJUSTED, GAP_PVALUE = _BY_KEY["gap"], _BY_KEY["gap_adjusted"], _BY_KEY["gap_pvalue"]
STRONG = _BY_KEY["strong_rate"]
INFLATION = _BY_KEY["inflation"]


def _of_row(
    key: str, heading: str, kind: Kind, meaning: str, *, is_optional: bool = False, record: str = ""
) -> Column[Row]:
    """Return a field of the row as a column."""
    return Column(heading, kind, attrgetter(key), meaning, key, is_optional=is_optional, record=record)


OF_RUN: Sequence[Column[Row]] = (
    MODEL := _of_row("model", "model", TEXT, "The model, with its revision where one was requested", record="model"),
    TASK := _of_row("task", "task", TEXT, "A group, a task, or a subject of a task as task/subject"),
    Column(
        "",
        TEXT,
        lambda row: row.name,
        "The task or group, with its number of examples if there are any",
        record="task",
    ),
    _of_row("level", "", TEXT, "“group”, “task”, or “subject” of a task"),
    _of_row("group", "", TEXT, "The outermost group that the task or group is in"),
    _of_row(
        "metric",
        "metric",
        METRIC,
        "The metric as the harness names it, with the filter where there is one",
        record="metric",
    ),
    _of_row("n_shot", "shots", TEXT, "The number of examples before each question"),
    _of_row("n", "n", COUNT, "The number of questions of the run", record="n"),
    ACCURACY := _of_row(
        "accuracy",
        "accuracy",
        INTERVAL_AND_ERROR,
        "The accuracy in the run, as the harness gave it, with its 95 % interval: Wilson's where it is a share of the "
        "questions, else that of its standard error",
        record="accuracy",
    ),
)
OF_AUDITS: Sequence[Column[Row]] = (
    _of_row("n_joined", "", COUNT, "The number of questions of the run that were matched to an audit, without copies"),
    _of_row(
        "n_copies",
        "",
        COUNT,
        "The number of copies of questions, which only `n` and the accuracy count",
        record="n_copies",
    ),
    _of_row(
        "n_left_out",
        "",
        COUNT,
        f"The number of questions that the accuracy does not count: {UNCOUNTED}",
        is_optional=True,
        record="n_left_out",
    ),
    _of_row(
        "n_too_long",
        "",
        COUNT,
        f"The number of questions that were not scored, since {TOO_LONG}",
        is_optional=True,
        record="n_too_long",
    ),
    N_TESTED := _of_row(
        "n_tested",
        "tested",
        COUNT,
        "The number of questions of the run that the main detector tested",
        record="n_tested",
    ),
)


def _of_verdict(number: VerdictNumber) -> Column[Row]:
    """Return a number of the verdict as a column of its row."""
    key, kind = number.column, number.kind
    harness = "" if kind.is_text else number.row
    return Column(
        number.heading,
        kind,
        lambda row: number.of(row.verdict),
        number.meaning,
        key,
        _shown(number),
        harness=harness,
        record=number.record,
    )


def _shown(number: VerdictNumber) -> Callable[[Row], Cell] | None:
    """Return how a number is shown that takes more of the row than its value; None for others."""
    if number.kind is WORD:
        return _word_cell
    return (lambda row: _pvalue_cell(row, number.of(row.verdict))) if number.kind is PVALUE else None


def _word_cell(row: Row) -> Cell:
    """Return the word as a badge, with the aim beside it."""
    cell = WORD.cell(row.verdict.word)
    return replace(cell, small=aim_beside(row.verdict.word, row.verdict.detect)) if row.verdict.word else cell


def _pvalue_cell(row: Row, value: float) -> Cell:
    """Return the cell of a p-value, with "<" if the verdict has only a bound of it."""
    return (BOUND_OF_PVALUE if row.verdict.is_bound else PVALUE).cell(value)


OF_VERDICT: Sequence[Column[Row]] = [_of_verdict(number) for number in NUMBERS]
VERDICT = OF_VERDICT[0]
(PVALUE_ADJUSTED,) = (column for column in OF_VERDICT if column.record == "pvalue_adjusted")


def _without_leakage(row: Row) -> Estimate:
    """Return the accuracy minus the inflation; unknown for metrics that are no accuracy."""
    return without(row.accuracy, INFLATION.of(row)) if row.metric.startswith("acc") else UNKNOWN


ACCURACY_CLEAN: Column[Row] = Column(
    "accuracy, clean",
    INTERVAL,
    _without_leakage,
    "The run's accuracy minus the inflation, with its 95 % interval: an estimate without leakage",
    "accuracy_clean",
    record="accuracy_clean",
)


def _arm(name: str) -> Column[Row]:
    """Return the column of the accuracy in an arm of choice confusion."""
    key = f"accuracy_{name}"
    meaning = f"The accuracy in the choice-confusion audit, {ARMS_IN_WORDS[name]}; left out without that audit"
    return Column(
        "",
        INTERVAL,
        value_by(key, INTERVAL),
        meaning,
        key,
        compute=lambda measured: share(measured.arm(name)),
        is_optional=True,
    )


ARM_COLUMNS = {name: _arm(name) for name in ARMS}


def displayed() -> list[Column[Row]]:
    """Return the columns that have a heading, in the order of tables and pages: accuracies come together."""
    by_flag = (ACCURACY_UNFLAGGED, ACCURACY_FLAGGED)
    distinct = dict.fromkeys((*OF_RUN, ACCURACY_CLEAN, INFLATION, *OF_VERDICT, *by_flag, *OF_AUDITS, *COMPUTED))
    return [column for column in distinct if column.heading]


def recorded() -> list[Column[Row]]:
    """Return the columns that have a key, in the order of JSON and CSV: texts, counts, estimates, then other numbers;
    those of one type keep their order."""
    types = (str, int, Estimate, float)
    columns = [column for column in _every() if column.key]
    return sorted(columns, key=lambda column: types.index(type(column.kind.undefined)))


def in_harness() -> list[Column[Row]]:
    """Return the columns that the harness's results have, in their order there."""
    return [column for column in _every() if column.harness]


def _every() -> list[Column[Row]]:
    """Return all columns, section by section."""
    return [*OF_RUN, *OF_VERDICT, *OF_AUDITS, *COMPUTED, ACCURACY_CLEAN, *ARM_COLUMNS.values()]


def in_records() -> list[Column[Row]]:
    """Return the columns that `verdicts.json` has, in its order."""
    return [column for column in _every() if column.record]


def values_of(measured: Measured) -> dict[str, Any]:
    """Return the values, by key, of the columns that are computed from a row's questions."""
    return {column.key: column.compute(measured) for column in recorded() if column.compute is not None}
