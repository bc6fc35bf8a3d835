"""From synthetic audits of option orders to what every output says about the data set."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lm_eval_leakage.results import page
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import as_csv, as_markdown, as_page, leaderboard
from lm_eval_leakage.results.tables import as_text, verdicts_in_words, write
from lm_eval_leakage.results.verdict_words import WORDS, in_words
from tests.report.parsed import Parsed
from tests.results.harness_files import answered, audited, row, write_run

N, N_ORDERS = 60, 24
COMPARED = ",".join(map(str, range(N_ORDERS)))
N_SEEN = {"cannot be told": 0, "none found": 0, "inconclusive": 0, "evidence": 4, "strong evidence": N}


def plain(text: str) -> str:
    """With plain spaces, as a parsed page has them."""
    return " ".join(text.split())


def asked(n_seen: int, orders: str | None = "drawn", *, control: bool = False, natural: float = 0.0) -> list[Any]:
    """Lines of an audit in which the published orders of the first `n_seen` questions are by far the most likely ones;
    all are more likely by `natural` nats, in the control form, too."""
    rng = np.random.default_rng(5)
    lines = []
    for i in range(N):
        own = rng.normal(size=N_ORDERS)
        of_control = rng.normal(size=(2, N_ORDERS) if control else (2, 0))
        own[0] += natural
        of_control[:, :1] += natural
        if i < n_seen:
            own[0] = own.max() + 1
        flagged = bool(own[0] > own[1:].max())
        answers = [[[str(value), "False"]] for value in (*own, *of_control.ravel())]
        known = {} if orders is None else {"published_orders": orders, "compared_orders": COMPARED}
        lines.append(audited(row(i), flagged, resps=answers, **known))
    return lines


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_in_every_output(tmp_path: Path, word: str) -> None:
    write_run(tmp_path, "m", {"bench": [answered(i, row(i), i < 20) for i in range(N)]})
    is_written = word in ("cannot be told", "inconclusive")
    lines = asked(N_SEEN[word], "written" if is_written else "drawn", control=word == "inconclusive")
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    found = annotate([tmp_path])
    (judged,) = found[0].rows
    assert judged.verdict.word == word
    for style in ("table", "markdown", "latex", "csv"):
        assert word in as_text(found[0].rows, style)
    (record,) = json.loads(as_text(found[0].rows, "json"))
    assert (record["verdict"], record["verdict_sentence"]) == (word, judged.verdict.sentence)
    assert verdicts_in_words(found[0].rows, "table") == f"bench: {judged.verdict.sentence}"
    assert f"{word} bench {plain(in_words(judged.verdict, short=True))}" in Parsed(page.render(found)).text
    board = leaderboard(found)
    assert f"bench {word} m " in Parsed(as_page(board)).text
    assert f"| {word} |" in as_markdown(board)
    assert [line["verdict"] for line in csv.DictReader(io.StringIO(as_csv(board)))] == [word]
    (results,) = (file for file in write(found[0], "0", tmp_path / "out") if file.name.startswith("results"))
    assert json.loads(results.read_text())["leakage"]["rows"][0]["verdict"] == word


def test_a_clean_benchmark_of_natural_orders_with_many_flags_is_not_called_suspicious(tmp_path: Path) -> None:
    write_run(tmp_path, "m", {"bench_leakage_perm": asked(0, "written", control=True, natural=2.0)})
    found = annotate([tmp_path])
    (judged,) = found[0].rows
    (record,) = json.loads(as_text(found[0].rows, "json"))
    assert record["flagged_rate"] > 0.3
    assert record["pvalue"] < 1e-9
    assert (judged.verdict.basis, judged.verdict.word) == ("control", "inconclusive")
    told = verdicts_in_words(found[0].rows, "table").partition("standard deviations")[0]
    assert "inconclusive: on 60 questions" in told
    assert "does not significantly prefer the published orders" in told
    assert "flagged" not in told
    assert "inconclusive bench No significantly stronger preference for" in Parsed(page.render(found)).text


def test_a_log_without_the_status_of_its_orders_says_what_that_may_mean_and_its_flags_still_count(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, "m", {"bench_leakage_perm": asked(N, None)})
    found = annotate([tmp_path])
    (told,) = verdicts_in_words(found[0].rows, "table").splitlines()
    assert told.startswith("bench: cannot be told: these are orders that may have been written by people")
    assert "cannot be told bench People may have written these orders" in Parsed(page.render(found)).text
    assert json.loads(as_text(found[0].rows, "json"))[0]["flagged_rate"] == 1


@pytest.mark.parametrize("known", [{}, {"published_orders": "drawn"}, {"published_orders": "written"}])
def test_a_single_order_is_no_answer_to_option_orders(tmp_path: Path, known: dict[str, str]) -> None:
    lines = [audited(row(i), False, n_orders=1, resps=[[["-1.0", "False"]]], **known) for i in range(N)]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    assert annotate([tmp_path])[0].rows[0].verdict.word == ""


def test_an_audit_without_option_orders_has_no_verdict(tmp_path: Path) -> None:
    lines = [audited(row(i), i < 3, n_orders=None, resps=[["text"]]) for i in range(N)]
    write_run(tmp_path, "m", {"bench_leakage_tail": lines})
    found = annotate([tmp_path])
    assert found[0].rows[0].verdict.word == verdicts_in_words(found[0].rows, "table") == ""
    for text in (as_text(found[0].rows, "table"), *map(str, Parsed(page.render(found)).heads())):
        assert "verdict" not in text
    assert 'class="badge' not in page.render(found)


def test_questions_of_two_options_are_on_the_leaderboard_by_their_verdict_without_a_rank(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = {"n_orders": 2, "null_rate": 0.5, "pvalue": 0.5, "published_orders": "drawn"}
    lines = [
        audited(row(i), True, **values, resps=[[[str(value), "False"]] for value in (-1.0, -3.0 + rng.normal() / 9)])
        for i in range(N)
    ]
    write_run(tmp_path, "m", {"bench_leakage_perm": lines})
    found = annotate([tmp_path])
    board = leaderboard(found)
    (standing,) = board.boards[0].standings
    assert (standing.row.n_tested, standing.row.verdict.word) == (0, "strong evidence")
    assert "| – | bench |" in as_markdown(board)
    (line,) = csv.DictReader(io.StringIO(as_csv(board)))
    assert (line["rank_low"], line["rank_high"]) == ("", "")
    text = Parsed(page.render(found)).text
    assert "strong evidence bench Prefers the published orders to other orders of the same options" in text
    assert "flagged" not in text.partition("How to read")[0]
