from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from lm_eval_leakage.results.comparison import MOST_ROWS, Plot, common_basis, comparison, comparison_plot
from lm_eval_leakage.results.verdict import Basis
from lm_eval_leakage.stats.order_sum import OrderSum
from lm_eval_leakage.stats.pooling import UNKNOWN
from tests.report.made import OF_WORD, UNDECIDED, annotation, row, verdict


def judged(model: str, mean: float = 0.5, **changes):
    return row(model=model, verdict=verdict(0.2, tested=OrderSum(100, 0.2, mean=mean, mean_error=0.1), **changes))


def test_preferences_are_drawn_where_all_verdicts_rest_on_the_same() -> None:
    chart = comparison([judged("A"), judged("B", 0.1)])
    first, second = chart.marks
    # 0.5 ± 1.96 * 0.1
    assert first.title == "A (none found), preference: 0.500 [0.304, 0.696]"
    assert first.x - second.x == pytest.approx((first.x2 - first.x1) * 0.4 / 0.392, rel=0.01)
    assert chart.title == "Preference for the published orders"
    assert chart.caption == "Compared with two control forms, which break memory. Dashed: what clean models reach."
    by_orders = comparison([judged("A", basis=Basis.ORDERS)])
    assert by_orders.caption == "Compared with other orders of the same options. Dashed: no preference."


def test_flags_are_drawn_where_verdicts_rest_on_different_things_or_have_no_test() -> None:
    assert comparison([row(verdict=UNDECIDED), row()]).title == "Share of questions flagged"
    rows = [judged("A"), judged("B", basis=Basis.REFERENCE)]
    assert common_basis(rows) == ""
    chart = comparison(rows)
    assert chart.title == "Share of questions flagged"
    assert [mark.title for mark in chart.marks] == [
        "A (none found), flagged: 0.250 [0.170, 0.340]",
        "B (none found), flagged: 0.250 [0.170, 0.340]",
    ]
    assert len(chart.chances) == 2


def test_without_verdicts_and_flags_there_is_nothing_to_draw() -> None:
    assert comparison([row(flagged_rate=UNKNOWN)]) is None
    assert comparison([]) is None
    with pytest.raises(ValueError, match="no audit of these runs has option orders or flags; run one first"):
        comparison_plot([annotation(rows=(row(flagged_rate=UNKNOWN),))])


def test_labels_are_as_short_as_the_rows_allow() -> None:
    def labels(*rows):
        return [row.shortened for row in comparison(rows).rows]

    label, other = judged("A"), judged("B")
    assert labels(label) == ["A, mmlu"]  # a chart of one dot stands alone, too
    assert labels(label, other) == ["A", "B"]
    assert labels(label, replace(label, task="arc")) == ["mmlu", "arc"]
    assert labels(label, replace(other, task="arc")) == ["A, mmlu", "B, arc"]


def test_of_many_rows_the_first_are_drawn_and_that_is_said() -> None:
    chart = comparison([judged(f"M{i}") for i in range(MOST_ROWS + 9)])
    assert len(chart.marks) == MOST_ROWS
    assert chart.caption.endswith(f"The {MOST_ROWS} most suspicious rows of {MOST_ROWS + 9}.")


# ---------------------------------------------------------------------- as a drawing of its own


def plotted() -> Plot:
    rows = [replace(row(f"t<{i}>&", model="M"), verdict=verdict) for i, verdict in enumerate(OF_WORD.values())]
    return comparison_plot([annotation(rows=tuple(rows))])


def test_a_plot_is_well_formed_svg_with_a_title_a_description_and_an_alternative_text() -> None:
    root = ElementTree.fromstring(plotted()._repr_svg_())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    title, description = (root.find(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc"))
    assert title.text == "Preference for the published orders"
    assert description.text.startswith("Compared with")
    assert root.get("role") == "img"
    assert "t<4>& (strong evidence), preference: 0.500 [0.304, 0.696]" in root.get("aria-label")
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    # the most suspicious first
    assert [text for text in texts if text.startswith("t<")] == ["t<4>&", "t<3>&", "t<2>&", "t<1>&", "t<0>&"]


def test_a_plot_is_saved_as_svg_alone_and_the_same_runs_give_the_same_plot(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot be saved as 'plot.png'; name a file"):
        plotted().save(tmp_path / "plot.png")
    plotted().save(tmp_path / "new" / "plot.svg")
    plotted().save(str(tmp_path / "other.svg"))
    assert (tmp_path / "new" / "plot.svg").read_text("utf-8") == (tmp_path / "other.svg").read_text("utf-8")
    assert ElementTree.parse(tmp_path / "other.svg").getroot().get("width")
