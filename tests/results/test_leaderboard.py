from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.leaderboard import (
    as_csv,
    as_page,
    leaderboard,
    leaderboard_as_markdown,
    short_model_names,
    why_apart,
)
from lm_eval_leakage.results.provenance import Provenance
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, normal
from tests.report.made import OF_WORD, annotation
from tests.report.made import row as made_row
from tests.report.parsed import Parsed
from tests.results.harness_files import audited, row, write_run

N = 60


def audit(folder, model: str, n_flagged: int, task: str = "bench", of=range(N)) -> None:
    write_run(folder, model, {f"{task}_leakage_perm": [audited(row(i), i < n_flagged) for i in of]})


def ranks(folder) -> dict[str, str]:
    (board,) = leaderboard(annotate([folder])).boards
    return {standing.row.model: standing.ranks for standing in board}


def test_models_that_the_questions_cannot_distinguish_share_an_interval_of_ranks(tmp_path) -> None:
    for model, n_flagged in (("clean", 2), ("nearly", 4), ("seen", 30), ("seen too", 33)):
        audit(tmp_path, model, n_flagged)
    assert ranks(tmp_path) == {"seen too": "1–2", "seen": "1–2", "nearly": "3–4", "clean": "3–4"}


def test_a_board_of_one_model_says_nothing_of_ranks(tmp_path) -> None:
    audit(tmp_path, "one", 3)
    text = leaderboard_as_markdown(leaderboard(annotate([tmp_path])))
    assert "\n\n60 questions. Values in brackets are 95 % intervals.\n\n" in text.replace("\u00a0", " ")
    audit(tmp_path, "two", 3)
    text = leaderboard_as_markdown(leaderboard(annotate([tmp_path])))
    assert "\n\n60 questions that both models were tested on. A rank is an interval:" in text


def test_pairs_are_adjusted_for_their_number(tmp_path) -> None:
    audit(tmp_path, "one", 0)
    audit(tmp_path, "two", 6)  # McNemar: 2 / 2^6 = 0.031
    assert ranks(tmp_path) == {"two": "1", "one": "2"}
    audit(tmp_path, "three", 3)
    assert set(ranks(tmp_path).values()) == {"1–3"}  # 0.031 times three pairs


def test_models_that_were_asked_different_numbers_of_questions_are_on_separate_boards(tmp_path) -> None:
    audit(tmp_path, "half", 30, of=range(30))
    audit(tmp_path, "whole", 30)
    audit(tmp_path, "whole too", 20)
    whole, half = boards = leaderboard(annotate([tmp_path])).boards
    assert [[standing.row.model for standing in board] for board in boards] == [["whole", "whole too"], ["half"]]
    assert [(standing.ranks, standing.n_common) for standing in half] == [("1", 30)]
    assert why_apart(whole, boards) == ""
    assert why_apart(half, boards) == (
        "Not ranked against the models above: another number of questions (bench: 30 instead of 60)."
    )


RATES = (0.05, 0.05, 0.15, 0.15, 0.45)


def simulated(rng: np.random.Generator) -> dict[str, tuple[int, int, tuple[str, ...]]]:
    rows = []
    for model, rate in enumerate(RATES):
        flags = dict(zip(map(str, range(150)), (rng.random(150) < rate).tolist(), strict=True))
        rows.append(made_row(model=str(model), flags=flags))
    (board,) = leaderboard([annotation(rows=(standing,), model=standing.model) for standing in rows]).boards
    return {standing.row.model: (standing.first, standing.last, standing.more_than) for standing in board}


def test_what_a_board_says_of_ranks_and_of_pairs_is_true_in_nineteen_of_twenty_cases() -> None:
    """True ranks are within their intervals, and models that are listed, or whose intervals do not overlap, differ.
    A single rank does not say so: ranks 1 and 2 may be those of models that were never shown to differ."""
    rng = np.random.default_rng(0)
    missed, wrong, apart = 0, 0, 0
    for _ in range(100):
        places = simulated(rng)
        above = {model: sum(rate > RATES[int(model)] for rate in RATES) for model in places}
        below = {model: sum(rate < RATES[int(model)] for rate in RATES) for model in places}
        missed += any(
            place[0] > 1 + above[model] or place[1] < len(RATES) - below[model] for model, place in places.items()
        )
        pairs = [(a, b) for a in places for b in places if places[a][1] < places[b][0]]
        pairs += [(a, b) for a in places for b in places[a][2]]
        wrong += any(RATES[int(a)] <= RATES[int(b)] for a, b in pairs)
        apart += places["4"][:2] == (1, 1)
    for n_false in (missed, wrong):
        assert binomtest(n_false, 100, 0.05, alternative="greater").pvalue > 1e-3
    assert apart > 90


def test_a_model_without_flags_is_on_the_board_by_its_verdict_without_a_rank_and_long_lists_are_cut() -> None:
    gain = normal(0.1, 0.05)
    two_options = made_row(n_tested=0, flagged_rate=UNKNOWN, verdict=OF_WORD["evidence"], confusion_delta=gain)
    board = leaderboard([annotation(rows=(two_options,))])
    assert "| – | mmlu |" in leaderboard_as_markdown(board)
    assert "| M | mmlu | +0.10 [0.00, 0.20] |" in leaderboard_as_markdown(board)
    (line,) = csv.DictReader(io.StringIO(as_csv(board)))
    assert (line["rank_low"], line["rank_high"], line["verdict"]) == ("", "", "evidence")
    page = Parsed(as_page(board))
    assert "mmlu evidence M Preference for the published orders" in page.text
    assert not {"rank by flags", "flagged"} & {*page.heads()}
    assert short_model_names([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"


# ---------------------------------------------------------------------- one number per model


def models(*rows: Row) -> list[tuple[str, list[tuple[str, int | None, float]]]]:
    """Return each group of models: why it is apart, and its models with place and number."""
    by_model = grouped(rows, lambda row_of_model: row_of_model.model)
    board = leaderboard(
        [annotation(rows=tuple(rows_of_model), model=model) for model, rows_of_model in by_model.items()]
    )
    return [
        (
            group.apart,
            [(row_of_model.model, row_of_model.place, row_of_model.evidence_share) for row_of_model in group.models],
        )
        for group in board.models
    ]


def judged(model: str, task: str, word: str, **changes: Any) -> Row:
    return made_row(task, model=model, verdict=replace(OF_WORD[word], **changes))


def test_a_models_number_is_the_share_of_its_benchmarks_with_evidence_and_the_best_comes_first() -> None:
    rows = [
        *(judged("worst", task, "strong evidence") for task in ("a", "b")),
        *(judged("half", task, word) for task, word in (("a", "evidence"), ("b", "none found"))),
        *(judged("two", task, "inconclusive") for task in ("a", "b")),
        *(judged("one", task, "none found") for task in ("a", "b")),
    ]
    assert models(*rows) == [("", [("one", 1, 0.0), ("two", 1, 0.0), ("half", 3, 0.5), ("worst", 4, 1.0)])]


def test_a_model_without_a_verdict_has_no_number_and_no_place() -> None:
    (first, second) = models(judged("one", "a", "none found"), judged("none", "a", VerdictWord.NO_VERDICT))
    assert first == ("", [("one", 1, 0.0)])
    assert second[0] == "Not ranked, since no benchmark has a verdict."
    ((model, place, share),) = second[1]
    assert (model, place) == ("none", None)
    assert math.isnan(share)


def test_models_asked_in_other_prompt_formats_are_not_ranked_against_each_other() -> None:
    formats = {"plain": "plain text", "too": "plain text", "chat": "chat template", "unknown": ""}
    (_, alike), *apart = models(
        *(
            replace(judged(name, "a", "none found"), provenance=Provenance(prompt_format=prompt_format))
            for name, prompt_format in formats.items()
        )
    )
    assert [model for model, *_ in alike] == ["plain", "too"]
    (note, (chat, *_)), (note_of_unknown, (unknown, *_)) = apart
    assert (chat[0], unknown[0]) == ("chat", "unknown")
    assert "another prompt format (a: chat template instead of plain text)" in note
    assert "another prompt format (a: prompt format not recorded instead of plain text)" in note_of_unknown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layouts": ("audited", "csv_row")}, "other layouts (a: audited, csv_row instead of one layout)"),
        ({"n_asked": 300}, "another number of questions (a: 300 instead of 100)"),
        ({"detect": 0.5}, "another aim (a: 50\u00a0% instead of 25\u00a0%)"),
        ({"basis": "orders"}, "another method (a: max_order and other orders instead of max_order and control forms)"),
    ],
)
def test_models_that_were_audited_in_different_ways_are_not_ranked_against_each_other(changes, said) -> None:
    rows = [
        judged("one", "a", "none found"),
        judged("two", "a", "evidence"),
        judged("apart", "a", "evidence", **changes),
    ]
    first, second = models(*rows)
    assert first == ("", [("one", 1, 0.0), ("two", 2, 1.0)])
    assert second == (f"Not ranked against the models above: {said}.", [("apart", 1, 1.0)])
    both = leaderboard([annotation(rows=(row,), model=row.model) for row in rows])
    assert [len(board) for board in both.boards] == [2, 1]
    text = f"models above: {said}."
    assert text in leaderboard_as_markdown(both)
    assert Parsed(as_page(both)).text.count(text.replace("\u00a0", " ")) == 2  # of the models, and of the benchmark


def test_other_draws_and_other_benchmarks_are_named() -> None:
    first = made_row("a", model="one", verdict=OF_WORD["evidence"], provenance=Provenance(seed=0, digest="d"))
    drawn = replace(first, model="two", provenance=Provenance(seed=1, digest="d"))
    other = replace(first, model="three", task="b")
    _, of_draw, of_benchmark = sorted(apart for apart, _ in models(first, replace(first, model="zero"), drawn, other))
    assert "other questions drawn (a: digest d, seed 1 instead of digest d, seed 0)." in of_draw
    assert "verdicts on other benchmarks (b instead of a)." in of_benchmark


def test_chosen_columns_are_those_of_every_format_and_an_unknown_one_is_refused() -> None:
    board = leaderboard([annotation(rows=(judged("M", "a", "evidence"),))])
    chosen = ["verdict", "accuracy", "rank"]
    assert as_csv(board, chosen).splitlines() == [
        "benchmark,model,verdict,accuracy,accuracy_stderr,accuracy_low,accuracy_high,rank_low,rank_high",
        "a,M,evidence,0.5,0.05,0.4,0.6,1,1",
    ]
    assert "| model | verdict | accuracy | rank by flags |\n" in leaderboard_as_markdown(board, chosen)
    assert Parsed(as_page(board, chosen)).text
    with pytest.raises(ValueError, match=r"--columns has 'acuracy', which is no column; did you mean accuracy"):
        leaderboard_as_markdown(board, ["acuracy"])


def test_there_is_a_page_whatever_is_missing() -> None:
    nothing = made_row(n_tested=0, flagged_rate=UNKNOWN, null_rate=math.nan)
    for of_models in ([], [annotation(rows=())], [annotation(rows=(nothing,))]):
        assert Parsed(as_page(leaderboard(of_models))).text


def test_names_are_text() -> None:
    evil = "<script>alert(1)</script>{{ 7*7 }}\"'"
    row_of_evil = made_row(evil, model=evil, accuracy_original=Estimate(0.5))
    page = Parsed(as_page(leaderboard([annotation(rows=(row_of_evil,), model=evil, problems=(Problem(evil),))])))
    assert [attributes for tag, attributes in page.elements if tag == "script"] == [{}]
    assert evil in page.text
