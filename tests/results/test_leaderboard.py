from __future__ import annotations

import csv
import io
import math

import numpy as np
from scipy.stats import binomtest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import as_csv, as_markdown, as_page, leaderboard, shortened
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
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


def test_models_that_the_questions_cannot_tell_apart_share_an_interval_of_ranks(tmp_path) -> None:
    for model, n_flagged in (("clean", 2), ("nearly", 4), ("seen", 30), ("seen too", 33)):
        audit(tmp_path, model, n_flagged)
    assert ranks(tmp_path) == {"seen too": "1–2", "seen": "1–2", "nearly": "3–4", "clean": "3–4"}


def test_pairs_are_adjusted_for_their_number(tmp_path) -> None:
    audit(tmp_path, "one", 0)
    audit(tmp_path, "two", 6)  # McNemar: 2 / 2^6 = 0.031
    assert ranks(tmp_path) == {"two": "1", "one": "2"}
    audit(tmp_path, "three", 3)
    assert set(ranks(tmp_path).values()) == {"1–3"}  # 0.031 times three pairs


def test_models_are_compared_on_the_questions_that_both_were_asked(tmp_path) -> None:
    audit(tmp_path, "half", 30, of=range(30))
    audit(tmp_path, "whole", 30)
    (board,) = leaderboard(annotate([tmp_path])).boards
    assert {(standing.ranks, standing.n_common) for standing in board} == {("1–2", 30)}


RATES = (0.05, 0.05, 0.15, 0.15, 0.45)


def simulated(rng: np.random.Generator) -> dict[str, tuple[int, int, tuple[str, ...]]]:
    rows = []
    for model, rate in enumerate(RATES):
        flags = dict(zip(map(str, range(150)), (rng.random(150) < rate).tolist(), strict=True))
        rows.append(made_row(model=str(model), flags=flags))
    (board,) = leaderboard([annotation(rows=(one,), model=one.model) for one in rows]).boards
    return {one.row.model: (one.first, one.last, one.more_than) for one in board}


def test_what_a_board_says_of_ranks_and_of_pairs_is_true_in_nineteen_of_twenty_cases() -> None:
    """True ranks are within their intervals, and models that are listed, or whose intervals do not overlap, differ.
    A single rank does not say so: ranks 1 and 2 may be those of models that were never shown to differ."""
    rng = np.random.default_rng(0)
    missed, wrong, apart = 0, 0, 0
    for _ in range(100):
        found = simulated(rng)
        above = {model: sum(rate > RATES[int(model)] for rate in RATES) for model in found}
        below = {model: sum(rate < RATES[int(model)] for rate in RATES) for model in found}
        missed += any(one[0] > 1 + above[model] or one[1] < len(RATES) - below[model] for model, one in found.items())
        pairs = [(a, b) for a in found for b in found if found[a][1] < found[b][0]]
        pairs += [(a, b) for a in found for b in found[a][2]]
        wrong += any(RATES[int(a)] <= RATES[int(b)] for a, b in pairs)
        apart += found["4"][:2] == (1, 1)
    for n_false in (missed, wrong):
        assert binomtest(n_false, 100, 0.05, alternative="greater").pvalue > 1e-3
    assert apart > 90


def test_a_model_without_flags_is_on_the_board_by_its_verdict_without_a_rank_and_long_lists_are_cut() -> None:
    gain = Estimate(0.1, 0.05)
    two_options = made_row(n_tested=0, flagged_rate=UNKNOWN, verdict=OF_WORD["evidence"], confusion_delta=gain)
    found = leaderboard([annotation(rows=(two_options,))])
    assert "| – | mmlu |" in as_markdown(found)
    assert "| M | mmlu | +0.100 ± 0.050 |" in as_markdown(found)
    (line,) = csv.DictReader(io.StringIO(as_csv(found)))
    assert (line["rank_low"], line["rank_high"], line["verdict"]) == ("", "", "evidence")
    page = Parsed(as_page(found))
    assert "mmlu evidence M Preference for the published orders" in page.text
    assert not {"rank by flags", "flagged"} & {*page.heads()}
    assert shortened([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"


def test_there_is_a_page_whatever_is_missing() -> None:
    nothing = made_row(n_tested=0, flagged_rate=UNKNOWN, null_rate=math.nan)
    for found in ([], [annotation(rows=())], [annotation(rows=(nothing,))]):
        assert Parsed(as_page(leaderboard(found))).text


def test_names_are_text() -> None:
    evil = "<script>alert(1)</script>{{ 7*7 }}\"'"
    one = made_row(evil, model=evil, accuracy_original=Estimate(0.5))
    page = Parsed(as_page(leaderboard([annotation(rows=(one,), model=evil, problems=(Problem(evil),))])))
    assert [attributes for tag, attributes in page.elements if tag == "script"] == [{}]
    assert evil in page.text
