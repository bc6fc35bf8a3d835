"""The columns of the table by task, group and subject."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval_leakage.report.table import (
    Cell,
    Column,
    Table,
    count_cell,
    error_cell,
    interval_cell,
    number_cell,
    pvalue_cell,
    tabulate,
    text_cell,
)
from lm_eval_leakage.results.annotation import Row
from lm_eval_leakage.results.flags import P_ADJUSTED, P_UNGUARDED, P

MODEL = "model"
P_MEANING = "probability, by chance, of at least as many flags among all tested questions (exact)"
P_UNGUARDED_MEANING = "the same among the questions whose options have no natural order by their wording"
COLUMNS: tuple[Column[Row], ...] = (
    Column("task", lambda row: Cell(row.task, row.level), is_text=True),
    Column(MODEL, lambda row: text_cell(row.model), is_text=True),
    Column("metric", lambda row: text_cell(row.metric.removesuffix(",none")), is_text=True),
    Column("shots", lambda row: text_cell(row.n_shot), is_text=True),
    Column("n", lambda row: count_cell(row.n), "questions"),
    Column("accuracy", lambda row: error_cell(row.accuracy), "in the run, as the harness gave it, ± standard error"),
    Column(
        "accuracy unflagged",
        lambda row: interval_cell(row.accuracy_unflagged),
        "on unflagged questions, 95 % interval",
    ),
    Column("accuracy flagged", lambda row: interval_cell(row.accuracy_flagged), "on flagged questions, 95 % interval"),
    Column("tested", lambda row: count_cell(row.n_tested), "questions of the run that the main detector tested"),
    Column(
        "flagged",
        lambda row: error_cell(row.flagged),
        "share of the tested questions that the main detector flags (the weak leakage of Hidayat et al. 2025)",
    ),
    Column("by chance", lambda row: number_cell(row.null_rate), "that share without any leakage"),
    Column(P, lambda row: pvalue_cell(row.pvalue), P_MEANING),
    Column(
        P_ADJUSTED,
        lambda row: pvalue_cell(row.pvalue_adjusted),
        "the same, for the number of subjects or tasks that were looked at (Benjamini-Hochberg)",
    ),
    Column(
        "flagged, no guard",
        lambda row: error_cell(row.flagged_unguarded),
        "the share flagged of the questions whose options have no natural order by their wording",
    ),
    Column(P_UNGUARDED, lambda row: pvalue_cell(row.pvalue_unguarded), P_UNGUARDED_MEANING),
    Column("outlier", lambda row: error_cell(row.outlier), "share that the outlier test flags"),
    Column("outlier by chance", lambda row: number_cell(row.outlier_null_rate), "that share without any leakage"),
    Column(
        "calibrated",
        lambda row: error_cell(row.calibrated),
        "share above the threshold that flags the asked rate of questions known to be unseen",
    ),
    Column(
        "prevalence", lambda row: interval_cell(row.prevalence), "estimated share of seen questions, 95 % interval"
    ),
    Column("probability", lambda row: number_cell(row.probability), "mean calibrated probability of having been seen"),
    Column(
        "choice confusion",
        lambda row: error_cell(row.confusion),
        "accuracy with wrong options replaced by other questions' right ones, less the original accuracy; "
        "a model that has not seen the benchmark gains (Yao et al. 2024)",
    ),
    Column("gap", lambda row: interval_cell(row.gap), "accuracy on flagged less on unflagged questions"),
    Column(
        "gap within strata", lambda row: interval_cell(row.gap_adjusted), "the same among questions of like difficulty"
    ),
    Column("p of gap", lambda row: pvalue_cell(row.gap_pvalue), "that the gap within strata is by chance, one-sided"),
    Column(
        "flagged and right",
        lambda row: error_cell(row.strong),
        "share flagged and answered rightly (the strong leakage of Hidayat et al. 2025)",
    ),
)


def rows_table(rows: Sequence[Row]) -> Table:
    """The model has a column where there is more than one."""
    is_one = len({row.model for row in rows}) < 2
    columns = [column for column in COLUMNS if not (is_one and column.title == MODEL)]
    return tabulate(rows, columns, lambda row: row.level)
