from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.charts import (
    HEIGHT,
    LETTER,
    WIDTH,
    BarChart,
    Dots,
    dot_chart,
    nice_steps,
    rank_histograms,
    share_axis,
    signed_axis,
)
from lm_eval_leakage.results.html import environment
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import audited


@pytest.mark.parametrize(
    ("top", "last", "n_steps"), [(1, 1, 1), (3, 3, 3), (10, 10, 5), (107, 120, 6), (190, 200, 4), (14042, 15000, 3)]
)
def test_axes_end_at_a_round_number_above_the_tallest_bar(top, last, n_steps) -> None:
    steps = nice_steps(top)
    assert steps[0] == 0
    assert steps[-1] == last
    assert len(steps) == n_steps + 1


def bars(histogram, kind: str) -> list[dict[str, float]]:
    """The places of all shapes of a kind in the drawing."""
    template = '{% from "charts.html.j2" import bars %}{{ bars(chart, "b", "m") }}'
    page = environment().from_string(template).render(chart=BarChart(histogram))
    shapes = re.findall(rf'<(?:rect|path) class="{kind}[^>]*>', page.partition('role="img"')[2])
    told = [re.sub(r"translate\(([\d.]+) ([\d.]+)\)", r'x="\1" y="\2"', one) for one in shapes]
    return [{key: float(own) for key, own in re.findall(r'\b(x|y|width|height)="([\d.-]+)"', one)} for one in told]


def test_heights_are_in_proportion_and_stacked() -> None:
    found = [audited(rank=1)] * 20 + [audited(rank=1, guards=("letters",))] * 10 + [audited(rank=2)] * 10
    (histogram,) = rank_histograms(found).drawn
    (unguarded, second), (guarded,) = bars(histogram, "bar series-0"), bars(histogram, "bar series-1")
    assert unguarded["height"] == pytest.approx(2 * guarded["height"], abs=0.02)
    assert second["height"] == pytest.approx(guarded["height"], abs=0.02)
    assert guarded["y"] + guarded["height"] == pytest.approx(unguarded["y"], abs=0.01)
    assert second["x"] > guarded["x"] == unguarded["x"]


def test_a_count_in_the_control_form_is_marked_at_the_height_of_a_bar_of_that_count() -> None:
    ranks = (-10.0, *[-12.0] * 23), (-10.0, -9.0, *[-12.0] * 22)
    orders = OrderAnswers(ranks[0], "written", control=ranks[1] * 2)
    (histogram,) = rank_histograms([audited(rank=1, orders=orders)] * 30).drawn
    (bar,), (first, second, *_) = bars(histogram, "bar"), bars(histogram, "compared")
    assert second["y"] == pytest.approx(bar["y"])
    assert first["y"] == pytest.approx(bar["y"] + bar["height"], abs=0.01)
    assert second["x"] > first["x"] == pytest.approx(bar["x"] + bar["width"] / 2, abs=0.5)


def test_everything_is_within_the_drawing() -> None:
    (histogram,) = rank_histograms([audited(rank=1 + i % 120, n_orders=120) for i in range(500)]).drawn
    shapes = bars(histogram, "bar") + bars(histogram, "band")
    assert len(shapes) == 48
    for one in shapes:
        assert 0 <= one["x"] <= one["x"] + one["width"] <= WIDTH
        assert 0 <= one["y"] <= one["y"] + one["height"] <= HEIGHT


def test_dots_are_placed_at_their_share() -> None:
    points = {"a": Estimate(0.0, 0, 0.0, 0.5), "b": Estimate(1.0, 0, 0.5, 1.0), "c": UNKNOWN}
    chart = dot_chart("t", "x", [Dots("row", points, chance=0.5)])
    low, high = chart.marks
    assert low.x < high.x
    assert low.x2 == high.x1 == chart.chances[0][0] == (low.x + high.x) / 2
    assert chart.series == ("a", "b", "c")


def test_shares_end_where_all_intervals_are_seen() -> None:
    assert share_axis([Estimate(0.04, 0, 0.01, 0.09)]).ticks[-1] == 0.1
    assert share_axis([Estimate(0.04, 0, 0.01, 0.11), UNKNOWN]).ticks[-1] == 0.2
    assert share_axis([Estimate(0.6)]).ticks[-1] == 1.0
    assert share_axis([UNKNOWN]).ticks == (0, 0.2, pytest.approx(0.4), pytest.approx(0.6), 0.8, 1.0)


@given(st.lists(st.tuples(*[st.floats(-50, 50)] * 2), max_size=8))
def test_a_signed_axis_has_zero_among_few_ticks_and_covers_all_intervals(intervals) -> None:
    axis = signed_axis([Estimate(sum(ends) / 2, 1.0, *sorted(ends)) for ends in intervals])
    assert 0 in axis.ticks
    assert 2 <= len(axis.ticks) <= 8
    steps = [later - earlier for earlier, later in zip(axis.ticks, axis.ticks[1:], strict=False)]
    assert min(steps) == pytest.approx(max(steps))
    for ends in intervals:
        assert axis.ticks[0] - 1e-9 <= min(ends)
        assert max(ends) <= axis.ticks[-1] + 1e-9


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (-0.08, 0.57, (-0.2, 0, 0.2, 0.4, 0.6)),
        (0.02, 0.09, (0, 0.02, 0.04, 0.06, 0.08, 0.1)),
        (-3, -1, (-3, -2.5, -2)),
    ],
)
def test_a_signed_axis_has_round_steps(low, high, ticks) -> None:
    assert signed_axis([Estimate((low + high) / 2, 1.0, low, high)]).ticks[: len(ticks)] == pytest.approx(ticks)


def test_a_long_name_keeps_both_ends_and_its_ending_whole() -> None:
    name = "organisation/" + "x" * 60 + "-v0.3"
    (label,) = dot_chart("t", "x", [Dots(name, {})]).labels
    assert label.text.startswith("organisation/")
    assert label.text.endswith("-v0.3")
    assert len(label.text) < 60
    (label,) = dot_chart("t", "x", [Dots(name, {}, ending=", arc_challenge", note="strong evidence")]).labels
    assert label.text.startswith("organ")
    assert label.text.endswith("-v0.3, arc_challenge")
    assert (len(label.text) + len("strong evidence")) * LETTER < WIDTH


def test_grid_lines_are_where_no_name_is() -> None:
    points = {"a": Estimate(0.5, 0, 0.4, 0.6), "b": Estimate(0.5, 0, 0.4, 0.6)}
    chart = dot_chart("t", "x", [Dots(name, points, note="evidence") for name in "ABC"])
    font = 10.5
    for (top, bottom), name, note in zip(chart.bands, chart.labels, chart.notes, strict=True):
        for text in (name, note):
            assert text.at + 0.25 * font <= top  # below the letters' descent
        assert all(top <= mark.y <= bottom for mark in chart.marks if top - 1 <= mark.y <= bottom + 1)
    for (_, bottom), name in zip(chart.bands, chart.labels[1:], strict=False):
        assert bottom <= name.at - 0.75 * font  # above the next row's letters


def test_a_row_without_an_estimate_is_named_in_the_description() -> None:
    chart = dot_chart("t", "x", [Dots("A", {"a": Estimate(0.5, 0.1, 0.3, 0.7)}), Dots("B", {}, note="cannot be told")])
    assert chart.description == "t; x. A, a: 0.500 [0.300, 0.700]; B (cannot be told)"
    assert len(chart.labels) == len(chart.bands) == 2
