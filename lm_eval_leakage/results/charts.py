"""Computes the geometry of the charts; the templates draw them, the style sheet colours them.

There are histograms of one benchmark's questions, by the rank of their published order and by their margin, and dot
plots with intervals.

Null hypothesis of the ranks: without leakage and without natural orders, all ranks are equally likely. It does not
hold for orders that people wrote. Their ranks are compared with those of the same questions in a control form, or by
the reference model, among the orders that the verdict compares.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from lm_eval_leakage.results.formatting import counted, number
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.stats.pooling import Estimate

WIDTH, HEIGHT = 340, 210  # the width is that of a phone, so that text is not scaled down there
LEFT, RIGHT, TOP, BOTTOM = 36, 4, 8, 36
N_X_TICKS = 6
N_BINS_NAMED = 12  # up to so many bars, each is labelled
MOST_STEPS = 6
SMALLEST_AXIS = 1e-3
LABEL_HEIGHT, POINT_HEIGHT, DOT_GAP = 15, 10, 8
SIDE = 10  # margin left and right of the axis, so that a marker at its end is not cut
LETTER = 5.8  # mean width of a letter of a label, in units of WIDTH
NOTE_GAP = 3  # letters between a label and its note
N_BINS = 24  # a bar for each order of four options
FEWEST_OF_CHART = 20  # questions with the same number of orders, below which they have no chart of their own
CONTROL, REFERENCE = "without the question, in words", "by the reference model"  # what ranks are compared with
RANK_TOLERANCE = 0.01  # a p-value is a rank if it times the number of orders is this close to a whole number
TAIL = 0.005  # share of the margins on either side that the outermost bars collect
SMALLEST_BAR = 0.1  # nats


def _round_step(smallest: float, fits: Callable[[float], bool]) -> float:
    """Return the smallest of 1, 2 or 5 times a power of ten that fits."""
    powers = range(math.floor(math.log10(smallest)), 308)
    return next(filter(fits, (base * 10.0**power for power in powers for base in (1, 2, 5))))


def round_ticks(low: float, high: float, smallest: float = 0.0) -> list[float]:
    """Return ticks from `low` or less to `high` or more, in a few round steps, none of them below `smallest`; 0 is
    among them."""

    def fits(step: float) -> bool:
        return math.ceil(high / step) - math.floor(low / step) <= MOST_STEPS

    step = max(smallest, _round_step((high - low) / 10, fits))
    return [round(step * i, 10) for i in range(math.floor(low / step), math.ceil(high / step) + 1)]


def ticks_of(estimates: Iterable[Estimate]) -> list[float]:
    """Return ticks that cover zero and all intervals; from 0 to 1 if there is nothing to cover."""
    ends = [
        end for estimate in estimates for end in (estimate.low, estimate.value, estimate.high) if math.isfinite(end)
    ]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return round_ticks(low, high) if high - low > SMALLEST_AXIS else round_ticks(0.0, 1.0)


def tick_text(value: float) -> str:
    """Return the label of a tick, with a minus sign instead of a hyphen."""
    return f"{value:g}".replace("-", "−")


# ---------------------------------------------------------------------- dot plots


@dataclass(frozen=True)
class Dots:
    """One row of a dot plot.

    points: its estimates, by the name of the series
    chance: the value expected by chance; NaN if there is none
    ending: end of the label, which stays whole if the label is shortened
    note: a word at the other end of the label's line
    """

    label: str
    points: Mapping[str, Estimate]
    chance: float = math.nan
    ending: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        """Return the whole label with its note."""
        return f"{self.label}{self.ending}{f' ({self.note})' if self.note else ''}"

    @property
    def shortened(self) -> str:
        """Return the label, from the middle of which letters are left out if it is too long; the table has all of it.

        More is kept of its end, which distinguishes names best.
        """
        n_letters = int(WIDTH / LETTER) - len(self.ending) - (len(self.note) + NOTE_GAP if self.note else 0)
        if len(self.label) <= n_letters:
            return f"{self.label}{self.ending}"
        head = max(1, n_letters // 3)
        return f"{self.label[:head]}…{self.label[-max(1, n_letters - head - 1) :]}{self.ending}"


@dataclass(frozen=True)
class Mark:
    """The drawing of one estimate: its interval goes from x1 to x2, and its marker is at x.

    series: number of its series, which decides the colour
    title: the estimate in words
    """

    x1: float
    x: float
    x2: float
    y: float
    series: int
    title: str


@dataclass(frozen=True)
class DotChart:
    """A plot of estimates with their 95 % intervals: a row of them below each label.

    A dashed line in a row is at the value expected by chance.

    ticks: at least two; the axis goes from the first to the last
    caption: what is drawn, and how to read it
    """

    title: str
    x_label: str
    rows: Sequence[Dots]
    ticks: Sequence[float]
    caption: str = ""

    @property
    def series(self) -> list[str]:
        """Return the names of the series that any row has."""
        return list(dict.fromkeys(name for row in self.rows for name in row.points))

    @property
    def depth(self) -> int:
        """Return the height of a row's marks; grid lines are drawn there only, so that they cross no label."""
        return POINT_HEIGHT * max(1, len(self.series))

    def top(self, place: int) -> int:
        """Return y of the upper end of a row's marks, below its label."""
        return place * (LABEL_HEIGHT + self.depth + DOT_GAP) + LABEL_HEIGHT

    @property
    def height(self) -> int:
        """Return the height of all rows, without the axis."""
        return self.top(len(self.rows)) - LABEL_HEIGHT

    def x(self, value: float) -> float:
        """Return x of a value; one beyond the axis is at its end."""
        low, high = self.ticks[0], self.ticks[-1]
        place = min(1.0, max(0.0, (value - low) / (high - low)))
        return round(SIDE + place * (WIDTH - 2 * SIDE), 2)

    @property
    def chances(self) -> list[tuple[float, int]]:
        """Return x and the upper end of each dashed line."""
        rows = enumerate(self.rows)
        return [(self.x(row.chance), self.top(place)) for place, row in rows if not math.isnan(row.chance)]

    @property
    def marks(self) -> list[Mark]:
        marks = []
        for place, row in enumerate(self.rows):
            for i, name in enumerate(self.series):
                estimate = row.points.get(name)
                if estimate:
                    y = self.top(place) + POINT_HEIGHT * (i + 0.5)
                    marks.append(self._mark(y, i, f"{row.title}, {name}", estimate))
        return marks

    def _mark(self, y: float, series: int, name: str, estimate: Estimate) -> Mark:
        """Return the mark of an estimate; an unknown end of its interval is at the value."""
        value = estimate.value
        low, high = (value if math.isnan(end) else end for end in (estimate.low, estimate.high))
        title = f"{name}: {number(value)} [{number(low)}, {number(high)}]"
        return Mark(self.x(low), self.x(value), self.x(high), y, series, title)

    @property
    def caption_lines(self) -> list[str]:
        """Return the caption in lines as wide as the drawing, which wraps no text itself."""
        return wrap(self.caption, int(WIDTH / LETTER))

    @property
    def description(self) -> str:
        """Return all that is drawn, in words; a row without a mark by its name."""
        without = [row.title for row in self.rows if not any(row.points.values())]
        return f"{self.title}; {self.x_label}. " + "; ".join([*(mark.title for mark in self.marks), *without])


# ---------------------------------------------------------------------- histograms


@dataclass(frozen=True)
class Bin:
    """A bar of a histogram, from low to high on the x-axis.

    counts: number of questions of each of the two series
    expected: mean and central 95 % of its count under the null hypothesis; None without one
    compared: number of questions without a guard whose rank in a control form, or by the reference, is in the bar;
        None without either
    """

    label: str
    low: float
    high: float
    counts: tuple[int, int]
    expected: Estimate | None = None
    compared: int | None = None


@dataclass(frozen=True)
class Histogram:
    """A histogram with two series. The template draws the two series of each bin, stacked, and the null hypothesis as
    a band around its mean.

    series: the names of the two kinds of questions, the lower part of the bars first
    summary: what it shows, in a sentence
    compared_with: what the bars' `compared` are counts of; empty without it
    """

    title: str
    x_label: str
    series: tuple[str, str]
    bins: Sequence[Bin]
    summary: str = ""
    compared_with: str = ""

    @property
    def n(self) -> int:
        """Return the number of questions."""
        return sum(sum(bin_.counts) for bin_ in self.bins)

    @cached_property
    def steps(self) -> list[float]:
        """Return ticks of the counts."""
        tallest = (
            max(sum(bar.counts), bar.expected.high if bar.expected else 0, bar.compared or 0) for bar in self.bins
        )
        return round_ticks(0.0, max(1.0, *tallest), smallest=1.0)

    def x(self, value: float) -> float:
        """Return x of a rank or margin."""
        low, high = self.bins[0].low, self.bins[-1].high
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 2)

    def y(self, value: float) -> float:
        """Return y of a count."""
        return round(HEIGHT - BOTTOM - value / self.steps[-1] * (HEIGHT - TOP - BOTTOM), 2)

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        """Return x and text of each label: under bars of ranks, or under edges of bars of margins, among them zero."""
        stride = math.ceil(len(self.bins) / N_X_TICKS)
        if self.bins[0].expected:
            stride = stride if len(self.bins) > N_BINS_NAMED else 1
            return [(self.x((bar.low + bar.high) / 2), bar.label) for bar in self.bins[::stride]]
        zero = next((place for place, bar in enumerate(self.bins) if bar.low == 0), 0)
        return [(self.x(bar.low), tick_text(bar.low)) for bar in self.bins[zero % stride :: stride]]


class _Ranked(NamedTuple):
    """The ranks of one question's published order.

    rank: among the orders that the verdict compares
    is_guarded: whether the question has a guard
    compared: its rank in a control form or by the reference; None without either, and for a guarded question
    """

    rank: int
    is_guarded: bool
    compared: int | None


def rank(audited: AuditedQuestion) -> int | None:
    """Return the rank of the published order among all orders, 1 if it is the most likely; None if the p-value is no
    rank."""
    if audited.pvalue is None or not audited.n_orders:
        return None
    scaled = audited.pvalue * audited.n_orders
    is_in_range = 1 - RANK_TOLERANCE <= scaled <= audited.n_orders + RANK_TOLERANCE
    return round(scaled) if is_in_range and abs(scaled - round(scaled)) <= RANK_TOLERANCE else None


def rank_histograms(audited_questions: Sequence[AuditedQuestion]) -> tuple[list[Histogram], list[tuple[int, int]]]:
    """Return one benchmark's histograms of ranks, one per number of orders, the most common number first.

    The second list has the numbers of orders with too few questions for a chart, each with that of its questions.
    """
    answers = [audited.orders for audited in audited_questions if audited.orders]
    compared_with = ""  # as the verdict compares
    if any(answer.reference for answer in answers):
        compared_with = REFERENCE
    elif any(answer.control for answer in answers):
        compared_with = CONTROL
    ranks: dict[int, list[_Ranked]] = defaultdict(list)
    for audited in audited_questions:
        rank_of_all = rank(audited)
        if rank_of_all is not None:
            n_orders, rank_among, compared = _among_compared(audited, rank_of_all, compared_with)
            is_guarded = bool(audited.guards)
            ranks[n_orders].append(_Ranked(rank_among, is_guarded, None if is_guarded else compared))
    drawn: list[Histogram] = []
    undrawn: list[tuple[int, int]] = []
    for n_orders, ranked in sorted(ranks.items(), key=lambda item: (-len(item[1]), item[0])):
        if not drawn or len(ranked) >= FEWEST_OF_CHART:
            drawn.append(_rank_histogram(n_orders, ranked, compared_with))
        else:
            undrawn.append((n_orders, len(ranked)))
    return drawn, undrawn


def _among_compared(audited: AuditedQuestion, rank_of_all: int, compared_with: str) -> tuple[int, int, int | None]:
    """Return how many orders the verdict compares, and two ranks of the published one among them.

    The first rank is by the audit; the second one is in the control form or by the reference, and None if that was not
    asked. If the verdict does not compare orders of this question, the first rank is among all of them.
    """
    orders, n_orders = audited.orders, audited.n_orders or 0
    if orders is None or not compared_with or len(orders.loglikelihoods) != n_orders:
        return n_orders, rank_of_all, None
    places = orders.compared or range(n_orders)
    published = _rank_of_first([orders.loglikelihoods[place] for place in places])
    if compared_with == REFERENCE:
        others = [orders.reference[place] for place in places] if orders.reference else []
    else:
        others = list(orders.controls[0]) if orders.controls else []
    return len(places), published, _rank_of_first(others) if others else None


def _rank_of_first(values: Sequence[float]) -> int:
    """Return the rank of the first value, 1 being the highest; in a tie the worst one, as in the audits."""
    first, *others = values
    return 1 + sum(other >= first for other in others)


def _rank_histogram(n_orders: int, ranks: Sequence[_Ranked], compared_with: str) -> Histogram:
    """Return the histogram of the questions with one number of orders."""
    from scipy.stats import binom  # takes half a second

    width = math.ceil(n_orders / N_BINS)
    counts = Counter(((ranked.rank - 1) // width, ranked.is_guarded) for ranked in ranks)
    compared = Counter((ranked.compared - 1) // width for ranked in ranks if ranked.compared is not None)
    if not compared:
        compared_with = ""
    bins = []
    for i, start in enumerate(range(0, n_orders, width)):
        last = min(start + width, n_orders)
        label = str(last) if width == 1 else f"{start + 1}–{last}"
        share = (last - start) / n_orders
        low, high = map(float, binom.interval(0.95, len(ranks), share))
        expected = Estimate(len(ranks) * share, low=low, high=high)
        heights = counts[i, False], counts[i, True]
        bins.append(Bin(label, start, last, heights, expected, compared[i] if compared else None))
    title, x_label = f"Rank among {n_orders} orders", "rank of the published order"
    summary = _summary(n_orders, ranks, compared_with)
    return Histogram(title, x_label, ("no guard", "guarded"), bins, summary, compared_with)


def _summary(n_orders: int, ranks: Sequence[_Ranked], compared_with: str) -> str:
    """Return a sentence on how many questions have rank 1, and how many would by chance.

    If ranks are compared, it counts only the questions that have both, and says how many are 1 in either.
    """
    both = [ranked for ranked in ranks if ranked.compared is not None] or ranks
    first = sum(ranked.rank == 1 for ranked in both)
    which = counted(len(both)) + (" without a guard" if compared_with else "")
    there = f", {sum(ranked.compared == 1 for ranked in both)} {compared_with}" if compared_with else ""
    return f"Rank 1: {first} of {which}{there}; {number(len(both) / n_orders, 1)} by chance."


def margin_histogram(audited_questions: Sequence[AuditedQuestion]) -> Histogram | None:
    """Return the histogram of margins; None if no tested question has a margin. Zero is always an edge, so that no bar
    mixes both signs."""
    margins = []
    for question in audited_questions:
        margin, flagged = question.margin, question.flagged
        if flagged is not None and margin is not None and not math.isnan(margin):
            margins.append((margin, bool(flagged)))
    if not margins:
        return None
    finite = [margin for margin, _ in margins if math.isfinite(margin)] or [0.0]
    ends = np.quantile(finite, [TAIL, 1 - TAIL], method="nearest").tolist()
    low, high = min(0.0, *ends), max(0.0, *ends)  # the outermost bars collect what is beyond
    step = _round_step(SMALLEST_BAR, lambda step: (high - low) / step <= N_BINS - 2)
    first, last = math.floor(low / step), math.floor(high / step)
    counts = Counter((math.floor(min(max(margin, low), high) / step), flagged) for margin, flagged in margins)
    bins = [
        Bin(label, i * step, (i + 1) * step, (counts[i, False], counts[i, True]))
        for i, label in zip(range(first, last + 1), _labels(first, last, step), strict=True)
    ]
    return Histogram("Margin of the published order", "margin (nats)", ("unflagged", "flagged"), bins)


def _labels(first: int, last: int, step: float) -> list[str]:
    """Return the labels of bars of margins; the outermost bars are open."""
    edges = [tick_text(step * i) for i in range(first, last + 2)]
    inner = [f"{low} to {high}" for low, high in pairwise(edges[1:-1])]
    return [f"below {edges[1]}", *inner, f"{edges[-2]} or more"] if first < last else ["all"]
