"""What `load_run` returns: a record per question, and their verdicts as a table for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.report.plot import Plot, comparison_plot
from lm_eval_leakage.results.column_registry import FLAGGED
from lm_eval_leakage.results.formatting import DASH, count, counted, percent
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.suspicion import benchmarks, suspicion
from lm_eval_leakage.results.written import records
from lm_eval_leakage.texts import visible

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_HEADS = ("model", "task", "questions", "verdict", "flagged")


class LoadedRun(list[dict[str, Scalar]]):
    """One record per question; in a notebook, a table of the verdicts, the most suspicious first.

    annotations: what the records are made from, one per model: rows, questions and problems
    """

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        super().__init__(records(annotations))
        self.annotations = tuple(annotations)

    def to_pandas(self) -> DataFrame:
        """One row per question."""
        import pandas

        return pandas.DataFrame(list(self))

    def plot(self) -> Plot:
        """The plot that compares models and benchmarks, which a notebook shows; `plot().save("plot.svg")` keeps it.

        Raises ValueError if no audit has anything to draw.
        """
        return comparison_plot(self.annotations)

    def __repr__(self) -> str:
        models = ", ".join(visible(annotation.model) for annotation in self.annotations)
        return f"<LoadedRun: {counted(len(self))}, {counted(len(self.annotations), 'model')}: {models}>"

    def _repr_html_(self) -> str:
        rows = [row for annotation in self.annotations for row in benchmarks(annotation.rows)]
        shown = "".join(_html_row(row) for row in sorted(rows, key=lambda row: suspicion(row.verdict)))
        return f"<table><thead>{_html_cells('th', TABLE_HEADS)}</thead><tbody>{shown}</tbody></table>"


def _html_row(row: Row) -> str:
    flagged = percent(FLAGGED.of(row).value) if row.n_tested else DASH
    return _html_cells("td", (row.model, row.name, count(row.n), row.verdict.word or DASH, flagged))


def _html_cells(tag: str, texts: Sequence[Any]) -> str:
    cells = "".join(f'<{tag} style="text-align:left">{escape(visible(text))}</{tag}>' for text in texts)
    return f"<tr>{cells}</tr>"
