from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.data_verdict import BY_REFERENCE
from lm_eval_leakage.results.leaderboard import Board, Leaderboard, Standing, as_page
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import UNDECIDED, row, verdict
from tests.report.parsed import Parsed


def standing(model: str, rate: float, first: int, last: int | None = None, **changes) -> Standing:
    flagged = Estimate(rate, 0.02, rate - 0.04, rate + 0.04)
    return Standing(row(model=model, **{"flagged_rate": flagged, **changes}), first, last or first)


BY_ANOTHER = verdict(0.2, basis=BY_REFERENCE)
BOARD = Board("mmlu", (standing("A", 0.3, 1), standing("B", 0.2, 2, 3), standing("C", 0.19, 2, 3)), 90)


def test_a_rank_is_shown_as_an_interval_with_how_to_read_it() -> None:
    parsed = Parsed(as_page(Leaderboard((BOARD,))))
    assert "rank by flags" in parsed.heads()
    assert "A mmlu 30 % 30 of 100 4 % 0.500 ± 0.050 0.400 [0.30, 0.50] 1 B mmlu" in parsed.text
    assert "[0.30, 0.50] 2–3 C mmlu" in parsed.text
    assert "1 means flagged most often" in parsed.text
    assert "differ significantly only if one is listed as flagged more often" in parsed.text


def test_each_benchmark_has_a_chart_with_a_dot_per_model() -> None:
    found = Parsed(as_page(Leaderboard((BOARD, Board("arc", (standing("A", 0.1, 1),), 50)))))
    (first, second) = [dict(attributes) for tag, attributes in found.elements if tag == "svg" and "role" in attributes]
    assert first["aria-label"].count("flagged: ") == 3
    described = "arc; share of questions flagged, 95 % interval. A, flagged: 0.100 [0.060, 0.140]"
    assert second["aria-label"] == described


def judged(*pvalues: float) -> Board:
    models = [standing(f"M{i}", 0.1, 1, verdict=verdict(pvalue), pvalue=1e-9) for i, pvalue in enumerate(pvalues)]
    return Board("mmlu", tuple(models), 90)


def test_each_verdict_is_a_badge_before_its_models_the_most_suspicious_first() -> None:
    undecided = Standing(row(model="U", verdict=UNDECIDED), 1, 5)
    board = judged(2e-5, 0.003, 0.2, 0.3)
    page = as_page(Leaderboard((replace(board, standings=(*board.standings, undecided)),)))
    parsed = Parsed(page)
    assert "mmlu strong evidence M0 evidence M1 none found M2, M3 cannot be told U " in parsed.text
    assert page.count('<p><span class="badge') == 4
    first = ["verdict", "flagged", "expected", "p or ratio", "accuracy", "accuracy without flagged", "rank by flags"]
    assert parsed.heads()[:8] == ["model", *first]
    assert "M0 mmlu strong evidence 10 % 10 of 100 4 % p = 2e-05 " in parsed.text


def test_preferences_are_compared_where_all_verdicts_rest_on_the_same() -> None:
    parsed = Parsed(as_page(Leaderboard((judged(2e-5, 0.2),))))
    names = [attributes["aria-label"] for tag, attributes in parsed.elements if tag == "svg" and "role" in attributes]
    assert [name.partition(";")[0] for name in names] == ["Preference for the published orders", "mmlu"]
    other = replace(judged(0.2), standings=(*judged(0.2).standings, standing("R", 0.1, 1, verdict=BY_ANOTHER)))
    assert "Preference for the published orders" not in Parsed(as_page(Leaderboard((other,)))).text


def test_at_most_five_models_of_a_verdict_are_named() -> None:
    text = Parsed(as_page(Leaderboard((judged(*[0.5] * 7),)))).text
    assert "none found M0, M1, M2, M3, M4, 2 more 10 % of questions flagged (4 % expected by chance)." in text


def test_a_model_without_flags_has_a_verdict_and_no_rank() -> None:
    two_options = standing("T", 0.1, 1, n_tested=0, flagged_rate=UNKNOWN, verdict=verdict(0.003))
    parsed = Parsed(as_page(Leaderboard((Board("winogrande", (two_options,), 0),))))
    assert "winogrande evidence T Preference for the published orders" in parsed.text
    assert "rank by flags" not in parsed.heads()
    assert "flagged" not in parsed.heads()


def test_choice_confusion_has_a_table_where_it_was_asked() -> None:
    assert "Choice confusion" not in Parsed(as_page(Leaderboard((BOARD,)))).text
    arms = {"accuracy_original": Estimate(0.4, 0.02), "accuracy_generalized": Estimate(0.45, 0.02)}
    asked = standing("D", 0.1, 1, **arms, confusion_delta=Estimate(0.05, 0.01))
    boards = (Board("mmlu", (asked, standing("E", 0.1, 1)), 9),)
    for found in (Leaderboard(boards, (asked.row,)), Leaderboard((), (asked.row,))):
        parsed = Parsed(as_page(found))
        assert "D mmlu 0.400 ± 0.020 0.450 ± 0.020 +0.050 ± 0.010" in parsed.text


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
