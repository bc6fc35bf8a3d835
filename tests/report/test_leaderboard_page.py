from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from lm_eval_leakage.inference.pooling import UNKNOWN, Estimate
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.report.leaderboard_page import render
from lm_eval_leakage.results.standings import Board, Leaderboard, Standing
from tests.report.made import UNDECIDED, row, verdict
from tests.report.parsed import Parsed


def standing(model: str, rate: float, first: int, last: int | None = None, **changes) -> Standing:
    flagged = Estimate(rate, 0.02, rate - 0.04, rate + 0.04)
    return Standing(row(model=model, **{"flagged_rate": flagged, **changes}), first, last or first)


BOARD = Board("mmlu", (standing("A", 0.3, 1), standing("B", 0.2, 2, 3), standing("C", 0.19, 2, 3)), 90)


def test_a_leaderboard_is_well_formed_and_says_who_is_flagged_most_and_least() -> None:
    text = Parsed(render(Leaderboard((BOARD,)))).text
    assert (
        "On mmlu, by 90 questions that all of 3 models were tested on: A is flagged on a share of 0.30 ± 0.02, "
        "by chance 0.042; C on 0.19 ± 0.02."
    ) in text


def test_a_rank_is_shown_as_an_interval_with_how_to_read_it() -> None:
    text = Parsed(render(Leaderboard((BOARD,)))).text
    assert "A mmlu 1 0.300" in text
    assert "B mmlu 2–3 0.200" in text
    assert "C mmlu 2–3 0.190" in text
    assert "differ significantly only if one is listed as flagged more often" in text


def test_each_benchmark_has_a_chart_with_a_dot_per_model() -> None:
    found = Parsed(render(Leaderboard((BOARD, Board("arc", (standing("A", 0.1, 1),), 50)))))
    (first, second) = [dict(attributes) for tag, attributes in found.elements if tag == "svg" and "role" in attributes]
    assert first["aria-label"].count("flagged: ") == 3
    assert second["aria-label"] == "arc; A, flagged: 0.100 [0.060, 0.140]; "


def judged(*pvalues: float) -> Board:
    models = [standing(f"M{i}", 0.1, 1, verdict=verdict(pvalue), pvalue=1e-9) for i, pvalue in enumerate(pvalues)]
    return Board("mmlu", tuple(models), 90)


def test_the_verdicts_come_first_with_the_most_suspicious_one_as_badge() -> None:
    undecided = Standing(row(model="U", verdict=UNDECIDED), 1, 5)
    board = judged(2e-5, 0.003, 0.2, 0.3)
    page = render(Leaderboard((replace(board, standings=(*board.standings, undecided)),)))
    parsed = Parsed(page)
    assert (
        "strong evidence On mmlu: strong evidence for M0; evidence for M1; none found for M2, M3; "
        "cannot be told for U. By 90 questions that all of 5 models were tested on: "
    ) in parsed.text
    assert parsed.heads()[:6] == ["model", "benchmark", "verdict", "p", "order ratio", "rank"]
    assert "M0 mmlu strong evidence 2e-05 – 1 0.100" in parsed.text


def test_a_headline_names_five_models_of_a_verdict() -> None:
    text = Parsed(render(Leaderboard((judged(*[0.5] * 7),)))).text
    assert "none found for M0, M1, M2, M3, M4, 2 more. By" in text


def test_no_pvalue_of_flags_is_on_the_page() -> None:
    (board,) = (judged(0.2),)
    assert not re.findall(r"\de-\d", Parsed(render(Leaderboard((board,)))).text)


def test_a_model_without_flags_has_a_verdict_and_no_rank() -> None:
    two_options = standing("T", 0.1, 1, n_tested=0, flagged_rate=UNKNOWN, verdict=verdict(0.003))
    parsed = Parsed(render(Leaderboard((Board("winogrande", (two_options,), 0),))))
    assert "evidence On winogrande: evidence for T." in parsed.text
    assert "rank" not in parsed.heads()
    assert "of 1 model" not in parsed.text


def test_choice_confusion_has_a_table_where_it_was_asked() -> None:
    assert "Choice confusion" not in Parsed(render(Leaderboard((BOARD,)))).text
    arms = {"accuracy_original": Estimate(0.4, 0.02), "accuracy_generalized": Estimate(0.45, 0.02)}
    asked = standing("D", 0.1, 1, **arms, confusion_delta=Estimate(0.05, 0.01))
    boards = (Board("mmlu", (asked, standing("E", 0.1, 1)), 9),)
    for found in (Leaderboard(boards, (asked.row,)), Leaderboard((), (asked.row,))):
        parsed = Parsed(render(found))
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
    assert Parsed(render(found)).text


def test_names_are_text() -> None:
    evil = "<script>alert(1)</script>{{ 7*7 }}\"'"
    board = Board(evil, (standing(evil, 0.1, 1, accuracy_original=Estimate(0.5)),), 1)
    parsed = Parsed(render(Leaderboard((board,), problems=(Problem(evil),))))
    assert [attributes for tag, attributes in parsed.elements if tag == "script"] == [{}]
    assert evil in parsed.text


def test_the_same_boards_give_the_same_page() -> None:
    assert render(Leaderboard((BOARD,))) == render(Leaderboard((BOARD,)))
