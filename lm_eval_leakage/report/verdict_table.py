"""The first table of a report: a line for each model and benchmark, the columns that a reader needs first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lm_eval_leakage.report.page_tables import PageColumn, Table, of_row, tabulate
from lm_eval_leakage.report.told_verdicts import n_flagged
from lm_eval_leakage.results.cells import EMPTY, Cell, error_cell, text_cell
from lm_eval_leakage.results.column_registry import ACCURACY, ACCURACY_UNFLAGGED, FLAGGED, NULL_RATE
from lm_eval_leakage.results.formatting import count, number, pvalue_equation, whole_percent
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict_columns import VERDICT


def verdict_table(rows: Sequence[Row]) -> Table:
    """Of the benchmarks' rows, in their order."""
    is_one = len({row.model for row in rows}) < 2
    return tabulate(rows, [BENCHMARK if is_one else MODEL_AND_BENCHMARK, *FIRST], lambda row: row.name)


def deciding_cell(row: Row) -> Cell:
    """The p-value that decides the verdict; where none holds, the order ratio, which sorts after all p-values."""
    verdict = row.verdict
    if not math.isnan(verdict.deciding_pvalue):
        p = verdict.deciding_pvalue
        return Cell(pvalue_equation(p, verdict.tested.is_bound), order=p)
    ratio = verdict.ratio
    if math.isnan(ratio.value):
        return EMPTY
    return Cell(f"ratio {number(ratio.value, 1)}", f"at least {number(ratio.low, 1)}", 1 + 1 / (1 + ratio.low))


def _flagged(row: Row) -> Cell:
    rate = FLAGGED.of(row)
    if not rate:
        return EMPTY
    return Cell(whole_percent(rate.value), f"{count(n_flagged(row))} of {count(row.n_tested)}", rate.value)


def _expected(row: Row) -> Cell:
    rate = NULL_RATE.of(row)
    return EMPTY if math.isnan(rate) else Cell(whole_percent(rate), order=rate)


def _accuracy(row: Row) -> Cell:
    cell = error_cell(ACCURACY.of(row))
    metric = row.metric.partition(",")[0]
    return cell if metric in ("acc", "") or cell == EMPTY else Cell(cell.text, metric, cell.order)


BENCHMARK = PageColumn[Row]("benchmark", lambda row: text_cell(row.name), is_text=True)
MODEL_AND_BENCHMARK = PageColumn[Row]("model", lambda row: Cell(row.model, row.name), is_text=True)
FIRST: tuple[PageColumn[Row], ...] = (
    of_row(VERDICT),
    PageColumn("flagged", _flagged, FLAGGED.meaning),
    PageColumn("expected", _expected, NULL_RATE.meaning),
    PageColumn(
        "p or ratio",
        deciding_cell,
        "the p-value that decides the verdict, adjusted where several verdicts are shown together; where none holds, "
        "how many times as often as by chance the published order is the most likely one",
    ),
    PageColumn("accuracy", _accuracy, ACCURACY.meaning),
    PageColumn(
        "accuracy without flagged",
        lambda row: ACCURACY_UNFLAGGED.cell(row),
        ACCURACY_UNFLAGGED.meaning,
    ),
)
