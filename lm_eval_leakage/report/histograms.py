"""Histograms of questions by the rank of their published order and by their margin.

Null hypothesis of the ranks: without leakage and without natural orders, all ranks are equally likely.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from lm_eval_leakage.results.result_types import AuditedQuestion

N_BINS = 24  # a bar for each order of four options
FEWEST_OF_CHART = 20  # questions with the same number of orders, below which they have no chart of their own
NO_RANK = 0.01  # tolerance: p-value times number of orders must be this close to a whole number to be a rank
TAIL = 0.005  # share of the margins on either side that the outermost bars collect
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class Expected:
    """Under the null hypothesis: mean and central 95 % of the binomial distribution of one bar's count."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """A bar from low to high on the x-axis; counts: of the two series"""

    label: str
    low: float
    high: float
    counts: tuple[int, int]
    expected: Expected | None = None


@dataclass(frozen=True)
class Histogram:
    """series: the names of the two kinds of questions, the lower part of the bars first"""

    title: str
    x_label: str
    series: tuple[str, str]
    bins: tuple[Bin, ...]

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


def rank(audited: AuditedQuestion) -> int | None:
    """Rank of the published order among all orders, 1 if it is the most likely; None if the p-value is no rank."""
    if audited.pvalue is None or not audited.n_orders:
        return None
    place = audited.pvalue * audited.n_orders
    if not 1 - NO_RANK <= place <= audited.n_orders + NO_RANK or abs(place - round(place)) > NO_RANK:
        return None
    return round(place)


def rank_histograms(audited_questions: Sequence[AuditedQuestion]) -> RankHistograms:
    ranks: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for audited in audited_questions:
        place = rank(audited)
        if place is not None and audited.n_orders is not None:
            ranks[audited.n_orders].append((place, bool(audited.guards)))
    by_size = sorted(ranks.items(), key=lambda found: (-len(found[1]), found[0]))
    drawn = [found for place, found in enumerate(by_size) if place == 0 or len(found[1]) >= FEWEST_OF_CHART]
    undrawn = [(n_orders, len(found)) for n_orders, found in by_size if (n_orders, found) not in drawn]
    return RankHistograms(tuple(_of_ranks(*found) for found in drawn), tuple(undrawn))


def _of_ranks(n_orders: int, ranks: Sequence[tuple[int, bool]]) -> Histogram:
    width = math.ceil(n_orders / N_BINS)
    counts = Counter(((place - 1) // width, is_guarded) for place, is_guarded in ranks)
    bins = []
    for start in range(0, n_orders, width):
        last = min(start + width, n_orders)
        label = str(last) if width == 1 else f"{start + 1}–{last}"
        own = counts[start // width, False], counts[start // width, True]
        bins.append(Bin(label, start, last, own, _expected(len(ranks), (last - start) / n_orders)))
    return Histogram(
        f"Rank among {n_orders} orders", "rank of the published order", ("no guard", "guarded"), tuple(bins)
    )


def _expected(n: int, rate: float) -> Expected:
    low, high = binom.interval(0.95, n, rate) if rate < 1 else (n, n)
    return Expected(n * rate, float(low), float(high))


def margin_histogram(audited_questions: Sequence[AuditedQuestion]) -> Histogram | None:
    """None if no tested question has a margin. Zero is always an edge, so that no bar mixes both signs."""
    margins = [
        (audited.margin, bool(audited.flagged))
        for audited in audited_questions
        if audited.flagged is not None and audited.margin is not None and not math.isnan(audited.margin)
    ]
    if not margins:
        return None
    first, n_bins, step = _edges([margin for margin, _ in margins])
    counts = Counter((_place(margin, first, n_bins, step), is_flagged) for margin, is_flagged in margins)
    bins = tuple(
        Bin(
            _name(i, first, n_bins, step),
            (first + i) * step,
            (first + i + 1) * step,
            (counts[i, False], counts[i, True]),
        )
        for i in range(n_bins)
    )
    return Histogram("Margin of the published order", "margin (nats)", ("unflagged", "flagged"), bins)


def _edges(margins: Sequence[float]) -> tuple[int, int, float]:
    """The first edge (in steps), the number of bins, and the step; covers all margins but the outermost."""
    finite = [margin for margin in margins if math.isfinite(margin)] or [0.0]
    low, high = np.quantile(finite, [TAIL, 1 - TAIL], method="nearest")
    low, high = min(0.0, float(low)), max(0.0, float(high))
    step = next((step for step in STEPS if (high - low) / step <= N_BINS - 2), max((high - low) / (N_BINS - 2), 1.0))
    first = math.floor(low / step)
    return first, max(1, math.floor(high / step) + 1 - first), step


def _place(margin: float, first: int, n_bins: int, step: float) -> int:
    if math.isinf(margin):
        return n_bins - 1 if margin > 0 else 0
    return min(n_bins - 1, max(0, math.floor(margin / step) - first))


def _name(i: int, first: int, n_bins: int, step: float) -> str:
    low, high = f"{(first + i) * step:g}", f"{(first + i + 1) * step:g}"
    if n_bins == 1:
        return "all"
    name = f"below {high}" if i == 0 else f"{low} or more" if i == n_bins - 1 else f"{low} to {high}"
    return name.replace("-", "−")
