"""The plot that compares models on benchmarks: of the quantity on which the verdicts rest, where all rest on the same.

That is the preference for the published orders, in standard deviations of a question's orders. Where the verdicts rest
on different comparisons, or on none, their preferences cannot be compared; the shares flagged and what chance gives
are drawn instead.

The comparison plot as one SVG drawing, for notebooks and files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results.charts import LETTER, WIDTH, DotChart, Dots, dot_chart, share_axis, signed_axis
from lm_eval_leakage.results.columns import FLAGGED, NULL_RATE
from lm_eval_leakage.results.data_verdict import BY_CONTROL, BY_ORDERS, BY_REFERENCE, TOLERANCES
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.html import render
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.tables import benchmarks, suspicion
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, normal

MOST_ROWS = 24
COMPARED_WITH = {
    BY_ORDERS: "other orders of the same options",
    BY_REFERENCE: "the reference model",
    BY_CONTROL: "two control forms, which break memory",
}


@dataclass(frozen=True)
class Comparison:
    """caption: what is drawn, and how to read it"""

    chart: DotChart
    caption: str

    @property
    def caption_lines(self) -> list[str]:
        """As wide as the drawing, which wraps no text itself."""
        return wrap(self.caption, int(WIDTH / LETTER))


def comparison(rows: Sequence[Row]) -> Comparison | None:
    """Of the given benchmarks' rows, in their order, without those that no audit covers; None if there is nothing to
    draw."""
    basis = common_basis(rows)
    rows = [row for row in rows if row.verdict.word or (FLAGGED.of(row) and not basis)]
    shown = rows[:MOST_ROWS]
    found = _of_preferences(shown, basis) if basis else _of_flags(shown)
    if found is None or len(rows) == len(shown):
        return found
    return Comparison(found.chart, f"{found.caption} The {counted(MOST_ROWS, 'most suspicious row')} of {len(rows)}.")


def common_basis(rows: Sequence[Row]) -> str:
    """What all verdicts with a test are computed from; empty if they differ, or if none has a test."""
    bases = {row.verdict.basis for row in rows if not math.isnan(row.verdict.tested.mean)}
    return bases.pop() if len(bases) == 1 else ""


def _label(row: Row, rows: Sequence[Row]) -> tuple[str, str]:
    """As short as the rows allow: the model, the benchmark, or both; the benchmark is the ending then."""
    if len({one.model for one in rows}) == 1:
        return row.name, ""
    return row.model, "" if len({one.name for one in rows}) == 1 else f", {row.name}"


def _dots(row: Row, rows: Sequence[Row], series: str, estimate: Estimate, chance: float) -> Dots:
    label, ending = _label(row, rows)
    return Dots(label, {series: estimate} if estimate else {}, chance, ending, row.verdict.word)


def _of_preferences(rows: Sequence[Row], basis: str) -> Comparison:
    estimates = [_preference(row) for row in rows]
    dots = [_dots(row, rows, "preference", own, _reached(row)) for row, own in zip(rows, estimates, strict=True)]
    what = "Preference for the published orders"
    chart = dot_chart(what, "standard deviations, 95 % interval", dots, signed_axis(estimates))
    without = "no preference" if basis == BY_ORDERS else "what clean models reach"
    return Comparison(chart, f"Compared with {COMPARED_WITH[basis]}. Dashed: {without}.")


def _reached(row: Row) -> float:
    """What the published orders of a benchmark that was not seen reach, in standard deviations."""
    if row.verdict.basis in TOLERANCES:
        return TOLERANCES[row.verdict.basis]
    mean, spread = row.verdict.natural
    return normal(mean, spread).high


def _preference(row: Row) -> Estimate:
    tested = row.verdict.tested
    return UNKNOWN if math.isnan(tested.mean) else normal(tested.mean, tested.mean_error)


def _of_flags(rows: Sequence[Row]) -> Comparison | None:
    estimates = [FLAGGED.of(row) for row in rows]
    if not any(estimates):
        return None
    dots = [_dots(row, rows, "flagged", own, NULL_RATE.of(row)) for row, own in zip(rows, estimates, strict=True)]
    chart = dot_chart("Share of questions flagged", "share, 95 % interval", dots, share_axis(estimates))
    return Comparison(chart, "Dashed: expected by chance. Natural orders raise the share without leakage, too.")


@dataclass(frozen=True)
class Plot:
    """svg: a drawing that needs no other file; it follows the reader's light or dark mode"""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Writes the drawing to a file.

        Raises ValueError if its name does not end in .svg.
        """
        file = Path(path)
        if file.suffix.lower() != ".svg":
            raise ValueError(f"the plot is an SVG drawing and cannot be saved as {file.name!r}; name a file *.svg")
        atomic_write(file, f"{self.svg}\n")


def comparison_plot(annotations: Sequence[Annotation]) -> Plot:
    """The interval plot at the top of a report: each model and benchmark, the most suspicious first.

    Raises ValueError if no audit has anything to draw.
    """
    rows = [row for annotation in annotations for row in benchmarks(annotation.rows)]
    found = comparison(sorted(rows, key=lambda row: suspicion(row.verdict)))
    if found is None:
        raise ValueError("there is nothing to plot: no audit of these runs has option orders or flags; run one first")
    return Plot(render("plot.svg.j2", found=found).strip())
