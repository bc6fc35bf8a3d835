from __future__ import annotations

import pytest

from lm_eval_leakage.inference.pooling import UNKNOWN, Estimate
from lm_eval_leakage.report.bars import HEIGHT, bar_chart, nice_steps
from lm_eval_leakage.report.charts import WIDTH
from lm_eval_leakage.report.dots import SIDE, Dots, dot_chart, share_end
from lm_eval_leakage.report.histograms import rank_histograms
from tests.report.made import audited


@pytest.mark.parametrize(
    ("top", "last", "n_steps"), [(1, 1, 1), (3, 3, 3), (10, 10, 5), (107, 120, 6), (190, 200, 4), (14042, 15000, 3)]
)
def test_axes_end_at_a_round_number_above_the_tallest_bar(top, last, n_steps) -> None:
    steps = nice_steps(top)
    assert steps[0] == 0
    assert steps[-1] == last
    assert len(steps) == n_steps + 1


def test_heights_are_in_proportion_and_stacked() -> None:
    found = [audited(rank=1)] * 20 + [audited(rank=1, guards=("letters",))] * 10 + [audited(rank=2)] * 10
    (histogram,) = rank_histograms(found).drawn
    unguarded, guarded, second = bar_chart(histogram).boxes
    assert unguarded.height == pytest.approx(2 * guarded.height, abs=0.02)
    assert second.height == pytest.approx(guarded.height, abs=0.02)
    assert guarded.y + guarded.height == pytest.approx(unguarded.y)
    assert (unguarded.series, guarded.series) == (0, 1)
    assert second.x > guarded.x


def test_everything_is_within_the_drawing() -> None:
    (histogram,) = rank_histograms([audited(rank=1 + i % 120, n_orders=120) for i in range(500)]).drawn
    chart = bar_chart(histogram)
    for box in (*chart.boxes, *chart.band):
        assert 0 <= box.x <= box.x + box.width <= WIDTH
        assert 0 <= box.y <= box.y + box.height <= HEIGHT


def test_dots_are_placed_at_their_share() -> None:
    points = {"a": Estimate(0.0, 0, 0.0, 0.5), "b": Estimate(1.0, 0, 0.5, 1.0), "c": UNKNOWN}
    chart = dot_chart("t", "x", [Dots("row", points, chance=0.5)])
    low, high = chart.marks
    assert low.x < high.x
    assert low.x2 == high.x1 == chart.chances[0].x == (low.x + high.x) / 2
    assert chart.series == ("a", "b", "c")


def test_an_axis_that_ends_earlier_is_wider() -> None:
    point = {"a": Estimate(0.25, 0, 0.25, 0.25)}
    (half,), (whole,) = (dot_chart("t", "x", [Dots("row", point)], end).marks for end in (0.5, 1.0))
    middle, quarter = WIDTH / 2, SIDE + (WIDTH - 2 * SIDE) / 4
    assert (half.x, whole.x) == (middle, quarter)


def test_shares_end_where_all_intervals_are_seen() -> None:
    assert share_end([Estimate(0.04, 0, 0.01, 0.09)]) == 0.1
    assert share_end([Estimate(0.04, 0, 0.01, 0.11), UNKNOWN]) == 0.2
    assert share_end([Estimate(0.6)]) == 1.0
    assert share_end([UNKNOWN]) == 1.0


def test_a_long_name_keeps_both_ends() -> None:
    name = "organisation/" + "x" * 60 + "-v0.3"
    (label,) = dot_chart("t", "x", [Dots(name, {})]).labels
    assert label.text.startswith("organisation/")
    assert label.text.endswith("-v0.3")
    assert len(label.text) < 55
