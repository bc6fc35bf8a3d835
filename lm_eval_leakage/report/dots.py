"""Geometry of dot plots with intervals; the templates draw them, the style sheet colours them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.report.charts import CHANCE, WIDTH, Box, Tick
from lm_eval_leakage.results.formatting import number

LABEL_HEIGHT, POINT_HEIGHT, DOT_GAP = 15, 10, 8
SIDE = 10  # margin left and right of the axis, so that a marker at its end is not cut
N_STEPS = 5
SHARE_ENDS = (0.1, 0.2, 0.5)
MOST_TICKS = 6
LETTER = 5.8  # mean width of a letter of a label, in units of WIDTH
NOTE_GAP = 3  # letters between a label and its note


@dataclass(frozen=True)
class Axis:
    """ticks: at least two; the axis goes from the first to the last"""

    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        place = min(1.0, max(0.0, (value - low) / (high - low)))
        return round(SIDE + place * (WIDTH - 2 * SIDE), 2)


@dataclass(frozen=True)
class Dots:
    """A row of the plot: its label, its estimates by series, the value expected by chance.

    ending: of the label; shown whole where the label is shortened
    note: a word at the other end of the label's line
    """

    label: str
    points: Mapping[str, Estimate]
    chance: float = math.nan
    ending: str = ""
    note: str = ""


@dataclass(frozen=True)
class Mark:
    """One estimate: its interval from x1 to x2, its marker at x."""

    x1: float
    x: float
    x2: float
    y: float
    series: int
    title: str


@dataclass(frozen=True)
class DotChart:
    """notes: words at the right end of the labels
    bands: (top, bottom) of each row's marks; grid lines are drawn there only, so that they cross no label
    without: titles of the rows that have no mark
    """

    title: str
    x_label: str
    series: tuple[str, ...]
    labels: tuple[Tick, ...]
    notes: tuple[Tick, ...]
    bands: tuple[tuple[float, float], ...]
    marks: tuple[Mark, ...]
    chances: tuple[Box, ...]
    x_ticks: tuple[Tick, ...]
    height: float
    without: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """All that is drawn, in words."""
        return f"{self.title}; {self.x_label}. " + "; ".join([*(mark.title for mark in self.marks), *self.without])


def share_axis(estimates: Iterable[Estimate]) -> Axis:
    """From 0 to where all intervals of shares are covered."""
    ends = [end for found in estimates for end in (found.value, found.high) if not math.isnan(end)]
    end = next((end for end in SHARE_ENDS if end >= max(ends, default=1.0)), 1.0)
    return Axis(tuple(end * i / N_STEPS for i in range(N_STEPS + 1)))


def signed_axis(estimates: Iterable[Estimate]) -> Axis:
    """Covers zero and all intervals, in round steps."""
    ends = [end for one in estimates for end in (one.low, one.value, one.high) if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    size = 10.0 ** math.floor(math.log10(max(high - low, 1e-3)))
    sizes = (size / 5, size / 2, size, 2 * size)
    step = next((one for one in sizes if math.ceil(high / one) - math.floor(low / one) <= MOST_TICKS), 5 * size)
    first, last = math.floor(low / step), max(1, math.ceil(high / step))
    return Axis(tuple(round(step * i, 10) for i in range(first, last + 1)))


def dot_chart(title: str, x_label: str, rows: Sequence[Dots], axis: Axis | None = None) -> DotChart:
    """Each row under its label, with 95 % intervals and a dashed line at the value expected by chance."""
    axis = axis or share_axis([])
    series = tuple(dict.fromkeys(name for row in rows for name in row.points))
    depth = POINT_HEIGHT * max(1, len(series))
    row_height = LABEL_HEIGHT + depth + DOT_GAP
    tops = [place * row_height + LABEL_HEIGHT for place in range(len(rows))]
    placed = list(zip(rows, tops, strict=True))
    return DotChart(
        title,
        x_label,
        series,
        tuple(Tick(top - 4, _shortened(row)) for row, top in placed),
        tuple(Tick(top - 4, row.note) for row, top in placed if row.note),
        tuple((top, top + depth) for top in tops),
        tuple(mark for row, top in placed for mark in _marks(row, series, top, axis)),
        tuple(Box(axis.at(row.chance), top, 0, depth, CHANCE) for row, top in placed if not math.isnan(row.chance)),
        tuple(Tick(axis.at(value), f"{value:g}".replace("-", "−")) for value in axis.ticks),
        row_height * len(rows),
        tuple(_title(row) for row in rows if not any(row.points.values())),
    )


def _marks(row: Dots, series: Sequence[str], top: float, axis: Axis) -> Iterable[Mark]:
    for i, name in enumerate(series):
        if estimate := row.points.get(name):
            low, high = (estimate.value if math.isnan(x) else x for x in (estimate.low, estimate.high))
            title = f"{_title(row)}, {name}: {number(estimate.value)} [{number(low)}, {number(high)}]"
            y = top + POINT_HEIGHT * (i + 0.5)
            yield Mark(axis.at(low), axis.at(estimate.value), axis.at(high), y, i, title)


def _title(row: Dots) -> str:
    return f"{row.label}{row.ending}{f' ({row.note})' if row.note else ''}"


def _shortened(row: Dots) -> str:
    """Keeps both ends of a long name, of which the later part distinguishes it best; the table has the whole name."""
    room = int(WIDTH / LETTER) - len(row.ending) - (len(row.note) + NOTE_GAP if row.note else 0)
    if len(row.label) <= room:
        return f"{row.label}{row.ending}"
    head = max(1, room // 3)
    return f"{row.label[:head]}…{row.label[-max(1, room - head - 1) :]}{row.ending}"
