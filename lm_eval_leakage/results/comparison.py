"""The plot that compares models on benchmarks: of the quantity on which the verdicts rest, where all rest on the same.

That is the preference for the published orders, in standard deviations of a question's orders. Where the verdicts rest
on different comparisons, or on none, their preferences cannot be compared; the shares flagged and what chance gives
are drawn instead. On a page, or as one SVG drawing for notebooks and files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results.charts import DotChart, Dots, ticks_of
from lm_eval_leakage.results.columns import FLAGGED, NULL_RATE
from lm_eval_leakage.results.data_verdict import TOLERANCES
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.html import render_template
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.verdict import Basis
from lm_eval_leakage.results.verdict_words import COMPARED
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, normal

MOST_ROWS = 24


def comparison(rows: Sequence[Row]) -> DotChart | None:
    """Return the chart of the given benchmarks' rows, in their order, without those that no audit covers; None if
    there is nothing to draw."""
    basis = common_basis(rows)
    if basis:
        rows = [row for row in rows if row.verdict.word]
    else:
        rows = [row for row in rows if row.verdict.word or FLAGGED.of(row)]
    shown = rows[:MOST_ROWS]
    if basis:
        what, x_label, series = "Preference for the published orders", "standard deviations", "preference"
        estimates, chances = [_preference(row) for row in shown], [row.verdict.threshold for row in shown]
        line = "where evidence begins"
        if all(map(math.isnan, chances)):  # only `check` records the level of each look
            chances = [_reached(row) for row in shown]
            line = "no preference" if basis == Basis.ORDERS else "what clean models reach"
        caption = f"Compared with {COMPARED[basis].caption}. Dashed: {line}."
    else:
        what, x_label, series = "Share of questions flagged", "share", "flagged"
        estimates, chances = [FLAGGED.of(row) for row in shown], [NULL_RATE.of(row) for row in shown]
        caption = "Dashed: expected by chance. Natural orders raise the share without leakage, too."
    if not (basis or any(estimates)):
        return None
    if len(rows) > len(shown):
        caption += f" The {counted(MOST_ROWS, 'most suspicious row')} of {len(rows)}."
    labels = [_label(row, shown) for row in shown]
    dots = [
        Dots(label, {series: estimate} if estimate else {}, chance, ending, row.verdict.word)
        for row, (label, ending), estimate, chance in zip(shown, labels, estimates, chances, strict=True)
    ]
    return DotChart(what, f"{x_label}, 95 % interval", dots, ticks_of([*estimates, *map(Estimate, chances)]), caption)


def common_basis(rows: Sequence[Row]) -> str:
    """Return what all verdicts with a test are computed from; empty if they differ, or if none has a test."""
    bases = {row.verdict.basis for row in rows if not math.isnan(row.verdict.tested.mean)}
    return bases.pop() if len(bases) == 1 else ""


def _label(row: Row, rows: Sequence[Row]) -> tuple[str, str]:
    """Return a label and its ending: the model of several on one benchmark, the benchmark of one model's several; else
    both, the benchmark as the ending."""
    models, benchmarks = len({other.model for other in rows}), len({other.name for other in rows})
    if models == 1 < benchmarks:
        return row.name, ""
    return row.model, "" if benchmarks == 1 < models else f", {row.name}"


def _preference(row: Row) -> Estimate:
    tested = row.verdict.tested
    return UNKNOWN if math.isnan(tested.mean) else normal(tested.mean, tested.mean_error)


def _reached(row: Row) -> float:
    """Return what the published orders of a benchmark that was not seen reach, in standard deviations."""
    if row.verdict.basis in TOLERANCES:
        return TOLERANCES[row.verdict.basis]
    mean, spread = row.verdict.natural
    return normal(mean, spread).high


@dataclass(frozen=True)
class Plot:
    """A plot that notebooks show.

    svg: a drawing that needs no other file; it follows the reader's light or dark mode
    """

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
    """Return the interval plot at the top of a report: each model and benchmark, the most suspicious first.

    Raises ValueError if no audit has anything to draw.
    """
    drawn = comparison(benchmarks(row for annotation in annotations for row in annotation.rows))
    if drawn is None:
        raise ValueError("there is nothing to plot: no audit of these runs has option orders or flags; run one first")
    return Plot(render_template("plot.svg.j2", chart=drawn).strip())
