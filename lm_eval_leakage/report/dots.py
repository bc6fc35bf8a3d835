"""Geometry of dot plots of shares with intervals; the templates draw them, the style sheet colours them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.report.charts import CHANCE, WIDTH, Box, Tick
from lm_eval_leakage.results.formatting import number

LABEL_HEIGHT, POINT_HEIGHT, DOT_GAP = 15, 10, 8
SIDE = 8  # margin left and right of the axis, so that a marker at its end is not cut
N_STEPS = 5
SHARE_ENDS = (0.1, 0.2, 0.5)
LONGEST_LABEL = 52  # characters that fit into WIDTH


@dataclass(frozen=True)
class Dots:
    """A row of the plot: its label, its estimates by series, and the share expected by chance."""

    label: str
    points: Mapping[str, Estimate]
    chance: float = math.nan


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
    title: str
    x_label: str
    series: tuple[str, ...]
    labels: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    chances: tuple[Box, ...]
    x_ticks: tuple[Tick, ...]
    height: float


def share_end(estimates: Iterable[Estimate]) -> float:
    """Where an axis of shares can end so that it covers all intervals."""
    ends = [end for found in estimates for end in (found.value, found.high) if not math.isnan(end)]
    return next((end for end in SHARE_ENDS if end >= max(ends, default=1.0)), 1.0)


def dot_chart(title: str, x_label: str, rows: Sequence[Dots], end: float = 1.0) -> DotChart:
    """Shares from 0 to `end`, each row under its label, with 95 % intervals and a tick at the share by chance."""
    series = tuple(dict.fromkeys(name for row in rows for name in row.points))
    row_height = LABEL_HEIGHT + POINT_HEIGHT * len(series) + DOT_GAP
    labels, marks, chances = [], [], []
    for place, row in enumerate(rows):
        top = place * row_height
        labels.append(Tick(top + LABEL_HEIGHT - 4, _shortened(row.label)))
        middle = top + LABEL_HEIGHT
        for i, name in enumerate(series):
            if row.points.get(name):
                marks.append(_mark(row, name, middle + POINT_HEIGHT * (i + 0.5), i, end))
        if not math.isnan(row.chance):
            chances.append(Box(_share(row.chance, end), middle, 0, POINT_HEIGHT * len(series), CHANCE))
    height = row_height * len(rows)
    x_ticks = tuple(Tick(_share(end * i / N_STEPS, end), f"{end * i / N_STEPS:g}") for i in range(N_STEPS + 1))
    return DotChart(title, x_label, series, tuple(labels), tuple(marks), tuple(chances), x_ticks, height)


def _mark(row: Dots, name: str, y: float, series: int, end: float) -> Mark:
    estimate = row.points[name]
    low, high = (estimate.value if math.isnan(x) else x for x in (estimate.low, estimate.high))
    title = f"{row.label}, {name}: {number(estimate.value)} [{number(low)}, {number(high)}]"
    return Mark(_share(low, end), _share(estimate.value, end), _share(high, end), y, series, title)


def _share(value: float, end: float) -> float:
    return round(SIDE + min(1.0, max(0.0, value / end)) * (WIDTH - 2 * SIDE), 2)


def _shortened(label: str) -> str:
    """Keeps both ends of a long name, which distinguish it from others; the table has the whole name."""
    half = LONGEST_LABEL // 2 - 1
    return label if len(label) <= LONGEST_LABEL else f"{label[:half]}…{label[-half:]}"
