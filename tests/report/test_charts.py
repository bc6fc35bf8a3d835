from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.charts import (
    HEIGHT,
    LETTER,
    WIDTH,
    DotChart,
    Dots,
    rank_histograms,
    round_ticks,
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


@pytest.mark.parametrize(
    ("low", "high", "smallest", "ticks"),
    [
        (-0.08, 0.57, 0, [-0.2, 0, 0.2, 0.4, 0.6]),
        (0, 0.09, 0, [0, 0.02, 0.04, 0.06, 0.08, 0.1]),
        (-3, 0, 0, [-3, -2.5, -2, -1.5, -1, -0.5, 0]),
        (0, 1, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 1, 1, [0, 1]),
        (0, 107, 1, [0, 20, 40, 60, 80, 100, 120]),
        (0, 14042, 1, [0, 5000, 10000, 15000]),
    ],
)
def test_ticks_are_round(low, high, smallest, ticks) -> None:
    assert round_ticks(low, high, smallest) == pytest.approx(ticks)


def bars(histogram, kind: str) -> list[dict[str, float]]:
    """The places of all shapes of a kind in the drawing."""
    template = '{% from "charts.html.j2" import bars %}{{ bars(chart, "b", "m") }}'
    page = environment().from_string(template).render(chart=histogram)
    shapes = re.findall(rf'<(?:rect|path) class="{kind}[^>]*>', page.partition('role="img"')[2])
    told = [re.sub(r"translate\(([\d.]+) ([\d.]+)\)", r'x="\1" y="\2"', one) for one in shapes]
    return [{key: float(own) for key, own in re.findall(r'\b(x|y|width|height)="([\d.-]+)"', one)} for one in told]


def test_heights_are_in_proportion_and_stacked() -> None:
    found = [audited(rank=1)] * 20 + [audited(rank=1, guards=("letters",))] * 10 + [audited(rank=2)] * 10
    (histogram,), _ = rank_histograms(found)
    (unguarded, second), (guarded,) = bars(histogram, "bar series-0"), bars(histogram, "bar series-1")
    assert unguarded["height"] == pytest.approx(2 * guarded["height"], abs=0.02)
    assert second["height"] == pytest.approx(guarded["height"], abs=0.02)
    assert guarded["y"] + guarded["height"] == pytest.approx(unguarded["y"], abs=0.01)
    assert second["x"] > guarded["x"] == unguarded["x"]


def test_a_count_in_the_control_form_is_marked_at_the_height_of_a_bar_of_that_count() -> None:
    ranks = (-10.0, *[-12.0] * 23), (-10.0, -9.0, *[-12.0] * 22)
    orders = OrderAnswers(ranks[0], "written", control=ranks[1] * 2)
    (histogram,), _ = rank_histograms([audited(rank=1, orders=orders)] * 30)
    (bar,), (first, second, *_) = bars(histogram, "bar"), bars(histogram, "compared")
    assert second["y"] == pytest.approx(bar["y"])
    assert first["y"] == pytest.approx(bar["y"] + bar["height"], abs=0.01)
    assert second["x"] > first["x"] == pytest.approx(bar["x"] + bar["width"] / 2, abs=0.5)


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
