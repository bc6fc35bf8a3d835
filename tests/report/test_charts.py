from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise

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
    told = [re.sub(r"translate\(([\d.]+) ([\d.]+)\)", r'x="\1" y="\2"', one) for one in shapes]
    return [{key: float(own) for key, own in re.findall(r'\b(x|y|width|height)="([\d.-]+)"', one)} for one in told]


def ranked(place: int) -> tuple[float, ...]:
    return (-10.0, *[-9.0] * (place - 1), *[-12.0] * (24 - place))


def controlled(place: int, control: int, **changes):
    """Has rank `place`, and rank `control` in the control forms."""
    orders = OrderAnswers(ranked(place), "written", control=ranked(control) * 2)
    return audited(rank=place, orders=orders, **changes)


def test_bars_are_stacked_in_proportion_and_a_count_in_the_control_form_stands_as_high_as_bars_of_that_count() -> None:
    found = [controlled(1, 2)] * 20 + [controlled(2, 2)] * 10 + [audited(rank=1, guards=("letters",))] * 10
    (histogram,), _ = rank_histograms(found)
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
    for one in shapes:
        assert 0 <= one["x"] <= one["x"] + one["width"] <= WIDTH
        assert 0 <= one["y"] <= one["y"] + one["height"] <= HEIGHT


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


def test_every_rank_of_24_orders_has_a_bar_with_its_guarded_questions_apart() -> None:
    found = [audited(rank=1)] * 5 + [audited(rank=1, guards=("in_order",))] * 2 + [audited(rank=24)] * 3
    (histogram,), _ = rank_histograms(found)
    assert counts(histogram) == [(5, 2), *[(0, 0)] * 22, (3, 0)]
    assert [bin_.label for bin_ in histogram.bins] == [str(place) for place in range(1, 25)]


def test_the_same_questions_without_a_guard_are_counted_by_their_rank_in_the_control_form() -> None:
    found = [controlled(1, 1)] * 4 + [controlled(1, 3)] * 2 + [controlled(2, 1)] * 5
    found += [controlled(1, 2, guards=("in_order",))] * 7 + [audited(rank=1)] * 3
    (histogram,), _ = rank_histograms(found)
    assert counts(histogram)[:3] == [(9, 7), (5, 0), (0, 0)]
    assert [bin_.compared for bin_ in histogram.bins] == [9, 0, 2, *[0] * 21]
    assert (
        histogram.summary
        == "Rank 1: 6 of 11 questions without a guard, 9 without the question, in words; 0.5 by chance."
    )


def test_a_tie_in_the_control_form_ranks_the_published_order_lower() -> None:
    tied = audited(orders=OrderAnswers(ranked(1), "written", control=(-9.0,) * 48))
    (histogram,), _ = rank_histograms([tied])
    assert [bin_.compared for bin_ in histogram.bins] == [*[0] * 23, 1]


def test_with_a_reference_the_ranks_are_compared_with_its_own() -> None:
    one = controlled(1, 1)
    found = replace(one, orders=replace(one.orders, reference=(-10.0, *[-9.0] * 23)))
    (histogram,), _ = rank_histograms([found])
    assert histogram.bins[23].compared == 1
    assert "0 by the reference model" in histogram.summary


def test_the_null_hypothesis_gives_each_bar_its_share() -> None:
    (histogram,), _ = rank_histograms([audited(rank=1)] * 240)
    expected = histogram.bins[7].expected
    assert expected.value == pytest.approx(10)
    # normal approximation: 10 ± 1.96 * sqrt(240 * 23) / 24 = 10 ± 6.07
    assert expected.low in {4, 5}
    assert expected.high in {16, 17}


def test_120_orders_are_in_24_bins_of_5() -> None:
    found = [audited(rank=place, n_orders=120) for place in range(1, 121)]
    (histogram,), _ = rank_histograms(found)
    assert counts(histogram) == [(5, 0)] * 24
    assert (histogram.bins[0].label, histogram.bins[-1].label) == ("1–5", "116–120")
    assert all(bin_.expected.value == pytest.approx(5) for bin_ in histogram.bins)


def test_each_number_of_orders_has_a_chart_of_its_own_and_few_questions_have_none() -> None:
    found = [audited(n_orders=120)] * 30 + [audited()] * 40 + [audited(n_orders=6)] * 3
    drawn, undrawn = rank_histograms(found)
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
    found = [audited(margin=float(i % 5), flagged=True) for i in range(999)] + [audited(margin=huge, flagged=True)]
    histogram = margin_histogram(found)
    assert histogram.n == 1000
    assert len([bin_ for bin_ in histogram.bins if sum(bin_.counts) >= 199]) == 5


def test_undefined_margins_and_untested_questions_are_not_drawn() -> None:
    assert margin_histogram([audited(margin=None), audited(margin=math.nan), audited(flagged=None)]) is None


def test_ranks_are_among_the_orders_that_the_verdict_compares() -> None:
    own, control = (-5.0, -1.0, -7.0, -6.0), (-5.0, -6.0, -4.0, -4.5, -9.0, -9.0)
    orders = OrderAnswers(own, "written", control=control, compared=(0, 2, 3))
    (histogram,), _ = rank_histograms([audited(rank=2, n_orders=4, orders=orders)])
    assert histogram.title == "Rank among 3 orders"
    assert counts(histogram) == [(1, 0), (0, 0), (0, 0)]
    assert [bin_.compared for bin_ in histogram.bins] == [0, 1, 0]
