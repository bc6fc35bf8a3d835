from __future__ import annotations

import math

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.leaderboard import Board, Leaderboard, Standing, as_page
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import row, verdict
from tests.report.parsed import Parsed


def standing(model: str, rate: float, first: int, last: int | None = None, **changes) -> Standing:
    flagged = Estimate(rate, 0.02, rate - 0.04, rate + 0.04)
    return Standing(row(model=model, **{"flagged_rate": flagged, **changes}), first, last or first)


def test_a_model_without_flags_has_a_verdict_and_no_rank() -> None:
    two_options = standing("T", 0.1, 1, n_tested=0, flagged_rate=UNKNOWN, verdict=verdict(0.003))
    parsed = Parsed(as_page(Leaderboard((Board("winogrande", (two_options,), 0),))))
    assert "winogrande evidence T Preference for the published orders" in parsed.text
    assert "rank by flags" not in parsed.heads()
    assert "flagged" not in parsed.heads()


@pytest.mark.parametrize(
    "found",
    [
        Leaderboard(()),
        Leaderboard((Board("mmlu", (), 0),)),
        Leaderboard((Board("mmlu", (standing("A", 0.1, 1, flagged_rate=UNKNOWN, null_rate=math.nan),), 0),)),
    ],
    ids=["no board", "no model", "nothing tested"],
)
def test_there_is_a_page_whatever_is_missing(found) -> None:
    assert Parsed(as_page(found)).text


def test_names_are_text() -> None:
    evil = "<script>alert(1)</script>{{ 7*7 }}\"'"
    board = Board(evil, (standing(evil, 0.1, 1, accuracy_original=Estimate(0.5)),), 1)
    parsed = Parsed(as_page(Leaderboard((board,), problems=(Problem(evil),))))
    assert [attributes for tag, attributes in parsed.elements if tag == "script"] == [{}]
    assert evil in parsed.text
