from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.charts import (
    HEIGHT,
    LETTER,
    N_BINS,
    WIDTH,
    DotChart,
    Dots,
    margin_histogram,
    rank,
    rank_histograms,
    ticks_of,
)
from lm_eval_leakage.results.html import environment
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import audited


@given(st.lists(st.tuples(*[st.floats(-50, 50)] * 2), max_size=8))
def test_an_axis_has_zero_among_few_equal_steps_and_covers_all_intervals(intervals) -> None:
    ticks = ticks_of([Estimate(sum(ends) / 2, 1.0, *sorted(ends)) for ends in intervals])
    assert 0 in ticks
    assert 2 <= len(ticks) <= 8
    steps = [later - earlier for earlier, later in pairwise(ticks)]
    assert min(steps) == pytest.approx(max(steps))
    for ends in intervals:
        assert ticks[0] - 1e-3 <= min(ends)
        assert max(ends) <= ticks[-1] + 1e-3


def bars(histogram, kind: str) -> list[dict[str, float]]:
    """The places of all shapes of a kind in the drawing."""
    template = '{% from "charts.html.j2" import bars %}{{ bars(chart, "b", "m") }}'
    page = environment().from_string(template).render(chart=histogram)
    shapes = re.findall(rf'<(?:rect|path) class="{kind}[^>]*>', page.partition('role="img"')[2])
    rectangles = [re.sub(r"translate\(([\d.]+) ([\d.]+)\)", r'x="\1" y="\2"', shape) for shape in shapes]
    return [
        {key: float(value) for key, value in re.findall(r'\b(x|y|width|height)="([\d.-]+)"', shape)}
        for shape in rectangles
    ]


def ranked(place: int) -> tuple[float, ...]:
    return (-10.0, *[-9.0] * (place - 1), *[-12.0] * (24 - place))


def controlled(place: int, control: int, **changes):
    """Has rank `place`, and rank `control` in the control forms."""
    orders = OrderAnswers(ranked(place), "written", control=ranked(control) * 2)
    return audited(rank=place, orders=orders, **changes)


def test_bars_are_stacked_in_proportion_and_a_count_in_the_control_form_stands_as_high_as_bars_of_that_count() -> None:
    questions = [controlled(1, 2)] * 20 + [controlled(2, 2)] * 10 + [audited(rank=1, guards=("letters",))] * 10
    (histogram,), _ = rank_histograms(questions)
    (unguarded, second), (guarded,) = bars(histogram, "bar series-0"), bars(histogram, "bar series-1")
    none, thirty, *_ = bars(histogram, "compared")
    assert unguarded["height"] == pytest.approx(2 * guarded["height"], abs=0.02)
    assert second["height"] == pytest.approx(guarded["height"], abs=0.02)
    assert guarded["y"] + guarded["height"] == pytest.approx(unguarded["y"], abs=0.01)
    assert second["x"] > guarded["x"] == unguarded["x"]
    assert thirty["y"] == pytest.approx(guarded["y"], abs=0.01)
    assert none["y"] == pytest.approx(unguarded["y"] + unguarded["height"], abs=0.01)
    assert thirty["x"] > none["x"] == pytest.approx(unguarded["x"] + unguarded["width"] / 2, abs=0.5)


def test_everything_is_within_the_drawing() -> None:
    (histogram,), _ = rank_histograms([audited(rank=1 + i % 120, n_orders=120) for i in range(500)])
    shapes = bars(histogram, "bar") + bars(histogram, "band")
    assert len(shapes) == 48
    for shape in shapes:
        assert 0 <= shape["x"] <= shape["x"] + shape["width"] <= WIDTH
        assert 0 <= shape["y"] <= shape["y"] + shape["height"] <= HEIGHT


def dots(*rows: Dots) -> DotChart:
    return DotChart("t", "x", rows, (0.0, 0.5, 1.0))


def test_dots_are_placed_at_their_share_below_their_label() -> None:
    points = {"a": Estimate(0.0, 0, 0.0, 0.5), "b": Estimate(1.0, 0, 0.5, 1.0), "c": UNKNOWN}
    chart = dots(Dots("row", points, chance=0.5), Dots("other", {"b": UNKNOWN}))
    low, high = chart.marks
    ((chance, top),) = chart.chances
    assert low.x < high.x
    assert low.x2 == high.x1 == chance == (low.x + high.x) / 2
    assert chart.series == ["a", "b", "c"]
    assert chart.top(0) == top < low.y < high.y < top + chart.depth < chart.top(1) < chart.height
    assert chart.description.endswith("row, b: 1.000 [0.500, 1.000]; other")


def test_a_long_name_keeps_both_ends_and_its_ending_whole() -> None:
    name = "organisation/" + "x" * 60 + "-v0.3"
    label = Dots(name, {}).shortened
    assert (label[:13], label[-5:]) == ("organisation/", "-v0.3")
    assert len(label) < 60
    label = Dots(name, {}, ending=", arc_challenge", note="strong evidence").shortened
    assert label.startswith("organ")
    assert label.endswith("-v0.3, arc_challenge")
    assert (len(label) + len("strong evidence")) * LETTER < WIDTH


# ---------------------------------------------------------------------- ranks and margins


def counts(histogram) -> list[tuple[int, int]]:
    return [bin_.counts for bin_ in histogram.bins]


@pytest.mark.parametrize("changes", [{"pvalue": None}, {"pvalue": 0.5 / 24}, {"pvalue": 1.5 / 24}])
def test_a_pvalue_that_is_not_a_rank_has_none(changes) -> None:
    assert rank(audited(**changes)) is None
    assert rank(replace(audited(), n_orders=None)) is None


@pytest.mark.parametrize(
    ("n_orders", "compared", "by_reference"),
    [(24, (), False), (24, (), True), (120, (), False), (24, (0, 3, 7, 20), False), (24, (0, 3, 7, 20), True)],
)
def test_a_bar_counts_its_ranks_and_those_of_the_questions_without_a_guard_in_what_they_are_compared_with(
    n_orders, compared, by_reference
) -> None:
    rng = Random(n_orders)
    places, questions, ranks = compared or range(n_orders), [], []

    def drawn(n: int) -> tuple[float, ...]:
        """Return log-likelihoods with ties."""
        return tuple(-float(rng.randrange(20)) for _ in range(n))

    def rank_of_first(values) -> int:
        return sum(value >= values[0] for value in values)

    for number in range(60):
        loglikelihoods, reference = drawn(n_orders), drawn(n_orders) if by_reference else ()
        orders = OrderAnswers(loglikelihoods, "written", False, drawn(2 * len(places)), reference, compared=compared)
        guards = ("in_order",) if number % 3 == 0 else ()
        questions.append(audited(rank=rank_of_first(loglikelihoods), n_orders=n_orders, orders=orders, guards=guards))
        other = [reference[place] for place in places] if by_reference else orders.control[: len(places)]
        ranks.append((rank_of_first([loglikelihoods[place] for place in places]), rank_of_first(other), bool(guards)))
    (histogram,), _ = rank_histograms([*questions, audited(rank=1, n_orders=len(places))])
    ranks.append((1, 0, False))  # which was not asked in what the others are compared with
    assert histogram.title == f"Rank among {len(places)} orders"
    assert len(histogram.bins) == min(24, len(places))
    for bar in histogram.bins:
        loglikelihoods = [guarded for rank, _, guarded in ranks if bar.low < rank <= bar.high]
        assert bar.counts == (loglikelihoods.count(False), loglikelihoods.count(True))
        assert bar.compared == sum(bar.low < rank <= bar.high and not guarded for _, rank, guarded in ranks)
        assert bar.label == (f"{bar.low + 1}–{bar.high}" if n_orders == 120 else str(bar.high))
        assert bar.expected.value == pytest.approx(61 * (bar.high - bar.low) / len(places))
    both = [(loglikelihoods, other) for loglikelihoods, other, guarded in ranks[:-1] if not guarded]
    first = [sum(pair_of_ranks[place] == 1 for pair_of_ranks in both) for place in (0, 1)]
    what = "by the reference model" if by_reference else "without the question, in words"
    sentence = f"Rank 1: {first[0]} of 40 questions without a guard, {first[1]} {what}; "
    assert histogram.summary == f"{sentence}{40 / len(places):.1f} by chance."


def test_the_null_hypothesis_gives_each_bar_its_share() -> None:
    (histogram,), _ = rank_histograms([audited(rank=1)] * 240)
    expected = histogram.bins[7].expected
    assert expected.value == pytest.approx(10)
    # normal approximation: 10 ± 1.96 * sqrt(240 * 23) / 24 = 10 ± 6.07
    assert expected.low in {4, 5}
    assert expected.high in {16, 17}


def test_each_number_of_orders_has_a_chart_of_its_own_and_few_questions_have_none() -> None:
    questions = [audited(n_orders=120)] * 30 + [audited()] * 40 + [audited(n_orders=6)] * 3
    drawn, undrawn = rank_histograms(questions)
    assert [histogram.n for histogram in drawn] == [40, 30]
    assert undrawn == [(6, 3)]


def test_the_only_number_of_orders_is_drawn_however_few_there_are() -> None:
    (histogram,), _ = rank_histograms([audited(n_orders=1)])
    assert counts(histogram) == [(1, 0)]
    assert rank_histograms([]) == ([], [])


def test_margins_are_counted_on_their_side_of_zero() -> None:
    margins = [-1.5, -0.5, -0.5, 0.5, 1.5, 1.6]
    histogram = margin_histogram([audited(margin=m, flagged=m > 0) for m in margins])
    below = [bin_ for bin_ in histogram.bins if bin_.high <= 0]
    above = [bin_ for bin_ in histogram.bins if bin_.low >= 0]
    assert len(below) + len(above) == len(histogram.bins) <= N_BINS
    assert sum(bin_.counts[0] for bin_ in below) == 3
    assert sum(bin_.counts[1] for bin_ in above) == 3
    assert histogram.n == 6


@pytest.mark.parametrize("huge", [1e6, 1e300, math.inf])
def test_one_huge_margin_is_in_the_last_bar_and_does_not_hide_the_others(huge) -> None:
    questions = [audited(margin=float(i % 5), flagged=True) for i in range(999)] + [audited(margin=huge, flagged=True)]
    histogram = margin_histogram(questions)
    assert histogram.n == 1000
    assert len([bin_ for bin_ in histogram.bins if sum(bin_.counts) >= 199]) == 5


def test_undefined_margins_and_untested_questions_are_not_drawn() -> None:
    assert margin_histogram([audited(margin=None), audited(margin=math.nan), audited(flagged=None)]) is None
