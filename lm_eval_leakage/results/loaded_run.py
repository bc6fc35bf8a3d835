"""The return value of `load_run`: a record per question, and their verdicts as a table for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.comparison import Plot, comparison_plot
from lm_eval_leakage.results.formatting import DASH, count, counted, percent
from lm_eval_leakage.results.html import render_template
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import flat_question, same_columns
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.tabulating import TEXT, Column, tabulate
from lm_eval_leakage.texts import visible

if TYPE_CHECKING:
    from pandas import DataFrame

IN_NOTEBOOKS: Sequence[Column[Row]] = (
    columns.MODEL,
    Column("task", TEXT, lambda row: row.name),
    Column("questions", TEXT, lambda row: count(row.n)),
    Column("verdict", TEXT, lambda row: row.verdict.word),
    Column("flagged", TEXT, lambda row: percent(columns.FLAGGED.of(row).value) if row.n_tested else DASH),
)


class LoadedRun(list[dict[str, Scalar]]):
    """One record per question; in a notebook, a table of the verdicts, the most suspicious first.

    annotations: what the records are made from, one per model: rows, questions and problems
    """

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        pairs = ((annotation.model, question) for annotation in annotations for question in annotation.questions)
        super().__init__(same_columns([{"model": model, **flat_question(question)} for model, question in pairs]))
        self.annotations = tuple(annotations)

    def to_pandas(self) -> DataFrame:
        """Return one row per question."""
        import pandas

        return pandas.DataFrame(list(self))

    def plot(self) -> Plot:
        """Return the plot that compares models and benchmarks, which a notebook shows; `plot().save("plot.svg")` keeps
        it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    def __repr__(self) -> str:
        models = ", ".join(visible(annotation.model) for annotation in self.annotations)
        return f"<LoadedRun: {counted(len(self))}, {counted(len(self.annotations), 'model')}: {models}>"

    def _repr_html_(self) -> str:
        rows = benchmarks(row for annotation in self.annotations for row in annotation.rows)
        return render_template("notebook.html.j2", table=tabulate(rows, IN_NOTEBOOKS))
