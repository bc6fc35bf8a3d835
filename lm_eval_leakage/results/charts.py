"""Geometry of the charts; the templates draw them, the style sheet colours them.

Histograms of one benchmark's questions by the rank of their published order and by their margin, and dot plots with
intervals.

Null hypothesis of the ranks: without leakage and without natural orders, all ranks are equally likely. Where people
wrote the orders, that does not hold: there the ranks of the same questions in a control form, or by the reference
model, are what to compare with, among the orders that the verdict compares.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import binom

from lm_eval_leakage.results.formatting import counted, number
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.stats.pooling import Estimate

WIDTH = 340  # that of a phone, so that text is not scaled down there


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


HEIGHT = 210
LEFT, RIGHT, TOP, BOTTOM = 36, 4, 8, 36
N_X_TICKS = 6
N_BINS_NAMED = 12  # up to so many bars, each is labelled
MOST_STEPS = 6


@dataclass(frozen=True)
class BarChart:
    """Maps values of a histogram to coordinates of its chart. The template draws the two series of each bin, stacked,
    and the null hypothesis as a band around the line of its mean."""

    histogram: Histogram

    @cached_property
    def steps(self) -> list[float]:
        bins = self.histogram.bins
        tallest = (max(sum(one.counts), one.expected.high if one.expected else 0, one.compared or 0) for one in bins)
        return nice_steps(max(1.0, *tallest))

    def x(self, value: float) -> float:
        low, high = self.histogram.bins[0].low, self.histogram.bins[-1].high
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 2)

    def y(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - value / self.steps[-1] * (HEIGHT - TOP - BOTTOM), 2)

    @property
    def x_ticks(self) -> list[Tick]:
        """Ranks are labelled under their bars, margins under the edges of the bars, zero always included."""
        bins = self.histogram.bins
        every = math.ceil(len(bins) / N_X_TICKS)
        if bins[0].expected:
            every = every if len(bins) > N_BINS_NAMED else 1
            return [Tick(self.x((one.low + one.high) / 2), one.label) for one in bins[::every]]
        zero = next((place for place, one in enumerate(bins) if one.low == 0), 0)
        return [Tick(self.x(one.low), f"{one.low:g}".replace("-", "−")) for one in bins[zero % every :: every]]


def _round_step(smallest: float, fits: Callable[[float], bool]) -> float:
    """The smallest of 1, 2 or 5 times a power of ten that fits."""
    powers = range(math.floor(math.log10(smallest)), 308)
    return next(filter(fits, (base * 10.0**power for power in powers for base in (1, 2, 5))))


def nice_steps(top: float) -> list[float]:
    """Ticks from 0 to at least `top`, in up to 6 round steps, of 1 at least."""
    step = max(1.0, _round_step(top / 10, lambda step: math.ceil(top / step) <= MOST_STEPS))
    return [step * i for i in range(math.ceil(top / step) + 1)]


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
    chances: x, top and bottom of the lines at what chance gives
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
    chances: tuple[tuple[float, float, float], ...]
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
    smallest = max(high - low, 1e-3) / 10
    step = _round_step(smallest, lambda step: math.ceil(high / step) - math.floor(low / step) <= MOST_TICKS)
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
        tuple((axis.at(row.chance), top, top + depth) for row, top in placed if not math.isnan(row.chance)),
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


N_BINS = 24  # a bar for each order of four options
FEWEST_OF_CHART = 20  # questions with the same number of orders, below which they have no chart of their own
CONTROL, REFERENCE = "without the question, in words", "by the reference model"  # what ranks are compared with
NO_RANK = 0.01  # tolerance: p-value times number of orders must be this close to a whole number to be a rank
TAIL = 0.005  # share of the margins on either side that the outermost bars collect
SMALLEST_BAR = 0.1  # nats


@dataclass(frozen=True)
class Bin:
    """A bar from low to high on the x-axis; counts: of the two series

    expected: mean and central 95 % of its count under the null hypothesis; None without one
    compared: count of the questions without a guard in a control form or by the reference; None without either
    """

    label: str
    low: float
    high: float
    counts: tuple[int, int]
    expected: Estimate | None = None
    compared: int | None = None


@dataclass(frozen=True)
class Histogram:
    """series: the names of the two kinds of questions, the lower part of the bars first
    summary: what it shows, in a sentence; compared_with: what the bars' `compared` are of, empty without it
    """

    title: str
    x_label: str
    series: tuple[str, str]
    bins: tuple[Bin, ...]
    summary: str = ""
    compared_with: str = ""

    @property
    def n(self) -> int:
        return sum(sum(bin_.counts) for bin_ in self.bins)


@dataclass(frozen=True)
class RankHistograms:
    """drawn: a histogram per number of orders, the most common first
    undrawn: (number of orders, questions) where there are too few for a chart
    """

    drawn: tuple[Histogram, ...]
    undrawn: tuple[tuple[int, int], ...]


_Ranked = tuple[int, bool, int | None]  # rank, whether it is guarded, rank in what it is compared with if there is one


def rank(audited: AuditedQuestion) -> int | None:
    """Rank of the published order among all orders, 1 if it is the most likely; None if the p-value is no rank."""
    if audited.pvalue is None or not audited.n_orders:
        return None
    place = audited.pvalue * audited.n_orders
    if not 1 - NO_RANK <= place <= audited.n_orders + NO_RANK or abs(place - round(place)) > NO_RANK:
        return None
    return round(place)


def rank_histograms(audited_questions: Sequence[AuditedQuestion]) -> RankHistograms:
    """Of one benchmark's questions."""
    compared_with = _compared_with(audited_questions)
    ranks: dict[int, list[_Ranked]] = defaultdict(list)
    for audited in audited_questions:
        place = rank(audited)
        if place is not None and audited.n_orders is not None:
            is_guarded = bool(audited.guards)
            n_orders, (own, other) = _among_compared(audited, compared_with) or (audited.n_orders, (place, None))
            ranks[n_orders].append((own, is_guarded, None if is_guarded else other))
    by_size = sorted(ranks.items(), key=lambda found: (-len(found[1]), found[0]))
    drawn = [found for place, found in enumerate(by_size) if place == 0 or len(found[1]) >= FEWEST_OF_CHART]
    undrawn = [(n_orders, len(found)) for n_orders, found in by_size if (n_orders, found) not in drawn]
    return RankHistograms(tuple(_of_ranks(*found, compared_with) for found in drawn), tuple(undrawn))


def _compared_with(audited_questions: Sequence[AuditedQuestion]) -> str:
    """What the verdict compares with."""
    answers = [audited.orders for audited in audited_questions if audited.orders]
    if any(one.reference for one in answers):
        return REFERENCE
    return CONTROL if any(one.control for one in answers) else ""


def _among_compared(audited: AuditedQuestion, compared_with: str) -> tuple[int, tuple[int, int | None]] | None:
    """The number of orders that the verdict compares, the published order's rank among them, and its rank there in
    what it is compared with, where that was asked. None if the verdict compares nothing, or not this question."""
    orders = audited.orders
    if orders is None or not compared_with or len(orders.loglikelihoods) != audited.n_orders:
        return None
    places = orders.compared or range(len(orders.loglikelihoods))
    own = _rank_of_first([orders.loglikelihoods[place] for place in places])
    if compared_with == REFERENCE:
        others = [orders.reference[place] for place in places] if orders.reference else []
    else:
        others = list(orders.controls[0]) if orders.controls else []
    return len(places), (own, _rank_of_first(others) if others else None)


def _rank_of_first(values: Sequence[float]) -> int:
    """A tie ranks it lower, as the audits' own ranks."""
    first, *others = values
    return 1 + sum(other >= first for other in others)


def _of_ranks(n_orders: int, ranks: Sequence[_Ranked], compared_with: str) -> Histogram:
    width = math.ceil(n_orders / N_BINS)
    counts = Counter(((place - 1) // width, is_guarded) for place, is_guarded, _ in ranks)
    compared = Counter((other - 1) // width for _, _, other in ranks if other is not None)
    bins = []
    for start in range(0, n_orders, width):
        last = min(start + width, n_orders)
        label = str(last) if width == 1 else f"{start + 1}–{last}"
        own = counts[start // width, False], counts[start // width, True]
        expected = _expected(len(ranks), (last - start) / n_orders)
        bins.append(Bin(label, start, last, own, expected, compared[start // width] if compared else None))
    return Histogram(
        f"Rank among {n_orders} orders",
        "rank of the published order",
        ("no guard", "guarded"),
        tuple(bins),
        _summary(n_orders, ranks, compared_with if compared else ""),
        compared_with if compared else "",
    )


def _summary(n_orders: int, ranks: Sequence[_Ranked], compared_with: str) -> str:
    """How many questions have rank 1; where there is something to compare with, of those that have both ranks."""
    both = [one for one in ranks if one[2] is not None] or ranks
    first = sum(place == 1 for place, _, _ in both)
    which = counted(len(both)) + (" without a guard" if compared_with else "")
    there = f", {sum(other == 1 for _, _, other in both)} {compared_with}" if compared_with else ""
    return f"Rank 1: {first} of {which}{there}; {number(len(both) / n_orders, 1)} by chance."


def _expected(n: int, rate: float) -> Estimate:
    low, high = binom.interval(0.95, n, rate) if rate < 1 else (n, n)
    return Estimate(n * rate, low=float(low), high=float(high))


def margin_histogram(audited_questions: Sequence[AuditedQuestion]) -> Histogram | None:
    """None if no tested question has a margin. Zero is always an edge, so that no bar mixes both signs."""
    margins = [
        (audited.margin, bool(audited.flagged))
        for audited in audited_questions
        if audited.flagged is not None and audited.margin is not None and not math.isnan(audited.margin)
    ]
    if not margins:
        return None
    finite = [margin for margin, _ in margins if math.isfinite(margin)] or [0.0]
    ends = np.quantile(finite, [TAIL, 1 - TAIL], method="nearest").tolist()
    low, high = min(0.0, *ends), max(0.0, *ends)  # the outermost bars collect what is beyond
    step = _round_step(SMALLEST_BAR, lambda step: (high - low) / step <= N_BINS - 2)
    first, last = math.floor(low / step), math.floor(high / step)
    counts = Counter((math.floor(min(max(margin, low), high) / step), flagged) for margin, flagged in margins)
    bins = tuple(
        Bin(_name(i, first, last, step), i * step, (i + 1) * step, (counts[i, False], counts[i, True]))
        for i in range(first, last + 1)
    )
    return Histogram("Margin of the published order", "margin (nats)", ("unflagged", "flagged"), bins)


def _name(i: int, first: int, last: int, step: float) -> str:
    low, high = f"{i * step:g}", f"{(i + 1) * step:g}"
    if first == last:
        return "all"
    name = f"below {high}" if i == first else f"{low} or more" if i == last else f"{low} to {high}"
    return name.replace("-", "−")
