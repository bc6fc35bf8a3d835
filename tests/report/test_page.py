from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.results.flagged_questions import LONGEST_ENTRY, list_flagged, n_bytes
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation, AuditedQuestion
from lm_eval_leakage.results.verdict import VerdictWord
from lm_eval_leakage.results.verdict_texts import summarise_verdict
from lm_eval_leakage.results.verdict_words import word_with_aim
from lm_eval_leakage.stats.order_sum import OrderSum
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from tests.report.made import HALF, OF_WORD, UNDECIDED, annotation, answered, audited, row, verdict
from tests.report.parsed import Parsed

EVIL = "<script>alert(1)</script></script>{{ 7*7 }}{% raw %}\"onload='x'<!--&amp;\u2028\ud800"


def usual(**changes) -> Annotation:
    questions = [audited(i, rank=1 + i % 24) for i in range(48)]  # of which 2 are flagged
    return annotation(*questions, questions=tuple(answered(question, 1.0) for question in questions), **changes)


def test_a_page_asks_for_nothing() -> None:
    page = render_page([usual(problems=(Problem("see https://example.org/x"),))])
    links = [value for _, attributes in Parsed(page).elements for name, value in attributes.items()
             if name in {"src", "href", "action", "srcset", "data", "poster", "xlink:href"}]  # fmt: skip
    assert links
    assert all(value.startswith("#") or value == "data:," for value in links)
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch"}
    assert re.findall(r"\bfetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket", page) == []


def test_the_policy_lets_only_our_script_and_style_run() -> None:
    import base64
    import hashlib

    page = render_page([usual()])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for name, element in (("script-src", "script"), ("style-src", "style")):
        (source,) = re.findall(f"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy


def test_texts_of_data_sets_and_models_are_escaped() -> None:
    evil = audited(question=EVIL, options=(EVIL, "b"), subject=EVIL, benchmark=EVIL, guards=(EVIL,))
    annotation_of_evil = annotation(
        evil,
        model=EVIL,
        detector=EVIL,
        rows=(row(EVIL, model=EVIL, metric=EVIL, n_shot=EVIL),),
        problems=(Problem(EVIL, Path("a<b>")),),
        origins={EVIL: [EVIL]},
    )
    page = render_page([annotation_of_evil, usual()])
    parsed = Parsed(page)
    assert [attributes for tag, attributes in parsed.elements if tag == "script"] == [
        {"type": "application/json"},
        {"type": "application/json"},
        {},
    ]
    assert parsed.data()[0]["q"] == EVIL.replace("\ud800", "?")
    shown = EVIL.replace("\ud800", "\\ud800").replace("\u2028", "\\u2028")
    assert shown in parsed.text
    assert all("onload" not in attributes for _, attributes in parsed.elements)
    assert "7*7" in parsed.text
    assert "49" not in parsed.text.replace(EVIL, "")


def test_full_mmlu_with_every_question_flagged_stays_below_5_mb() -> None:
    text = "What is the capital of 水 & <b>? " * 16
    many = [audited(i, margin=i / 100, question=text[:500]) for i in range(14_042)]
    rows = tuple(row(f"mmlu_{i}") for i in range(70))
    page = render_page([annotation(*many, rows=rows, questions=tuple(answered(question, 1.0) for question in many))])
    assert len(page.encode()) < 5_000_000
    n_listed = len(Parsed(page).data())
    assert n_listed > 3_000
    assert f"{14_042 - n_listed:,} are not shown, to keep the page small; the " in Parsed(page).text


def test_several_models_share_the_space_by_need() -> None:
    few = annotation(*(audited(i) for i in range(3)), model="few")
    many = annotation(*(audited(i, question="x" * 3000) for i in range(2000)), model="many")
    page = render_page([many, few])
    assert 3_900_000 < len(page.encode()) < 5_000_000
    assert "3 questions flagged by max_order, highest scores first. This list" in Parsed(page).text


def cell_of(page: str, column: str, line: int = 0, table: str = "benchmarks") -> str:
    """Return a cell in one row of a table, by default the first of the first."""
    start = page.index('<table class="sortable">', page.index(f'id="{table}"'))
    source = page[start : page.index("</table>", start)]
    heads = [re.sub("<.*?>", "", head) for head in re.findall(r"<th scope=\"col\".*?</th>", source)]
    chosen = source[source.index("<tbody>") :].split("</tr>")[:-1][line]
    cells = re.findall(r"<t[dh][ >].*?</t[dh]>", chosen, re.DOTALL)
    return re.sub("<.*?>", "", cells[heads.index(column)]).strip().replace("\u00a0", " ")


UNREAD = AuditedQuestion("h", "", "mmlu", "mmlu", "", (), None, reason="no options")


@pytest.mark.parametrize(
    "annotations",
    [
        [],
        [annotation(rows=())],
        [annotation(UNREAD)],
        [annotation(rows=(row(n=10**15, accuracy=Estimate(1e308, 1e308, -math.inf, math.inf), pvalue=0.0),))],
        [annotation(audited(margin=math.inf, loglikelihoods=(-math.inf,) * 24), detector="")],
        [annotation(rows=(row(accuracy_original=UNKNOWN, flagged_rate=UNKNOWN, n_tested=0),))],
    ],
    ids=["no model", "no rows", "no suspicion", "huge", "infinite", "unknown arms"],
)
def test_there_is_a_page_whatever_is_missing(annotations) -> None:
    assert Parsed(render_page(annotations)).text


@pytest.mark.parametrize("word", VerdictWord)
def test_each_word_is_a_badge_between_the_benchmark_and_its_sentence_and_in_the_tables(word) -> None:
    page = render_page([annotation(rows=(row(verdict=OF_WORD[word]),))])
    badge = f'<span class="badge {word.replace(" ", "-")}">{word}</span>'
    assert page.count(badge) == 3
    sentence = " ".join(summarise_verdict(row(verdict=OF_WORD[word])).sentence.replace("`", "").split())
    shown = " ".join(word_with_aim(word, 0.25).split())
    assert f"mmlu: {shown} {sentence} 25 % of 100 questions flagged (4 % expected by chance)." in Parsed(page).text
    assert cell_of(page, "verdict") == cell_of(page, "verdict", table="rows") == shown
    assert f'<td class="text" data-order="{word.place}">' in page


def test_what_decides_is_a_pvalue_or_a_ratio_and_a_bound_is_shown_as_one() -> None:
    bound = OrderSum(100, 1e-13, mean=0.5, mean_error=0.1, is_bound=True)
    rows = (
        row("a", verdict=verdict(1e-13, tested=bound, adjusted=3e-13, n_together=3)),
        row("b", verdict=verdict(0.1, adjusted=0.2, n_together=3)),
        row("c", verdict=UNDECIDED),
    )
    page = render_page([annotation(rows=rows)])
    cells = [cell_of(page, "p or ratio", line) for line in range(3)]
    assert cells == ["p ≤ 1e-13 ≤ 3e-13 adjusted", "p = 0.1 0.2 adjusted", "ratio 1.5 at least 1.2"]
    assert [cell_of(page, head, 0, "rows") for head in ("p", "p adjusted")] == ["≤ 1e-13", "≤ 3e-13"]
    keys = [float(key) for key in re.findall(r'<td data-order="([\d.e-]+)"><span class="value">(?:p|ratio) ', page)]
    assert keys == sorted(keys)
    assert len(keys) == 3


def test_of_fewer_than_ten_flagged_questions_nothing_is_claimed() -> None:
    about = {"gap": HALF, "gap_adjusted": HALF, "gap_pvalue": 0.01, "strong_rate": HALF, "accuracy_flagged": HALF}
    claims = {"gap", "gap within strata", "p of gap", "flagged and right", "accuracy, flagged"}
    for n_flagged in (9, 10):
        questions = [audited(i, rank=1 if i < n_flagged else 2) for i in range(100)]
        row_of_task = row(flagged_rate=Estimate(n_flagged / 100, 0.03), **about)
        parsed = Parsed(render_page([annotation(*questions, rows=(row_of_task,))]))
        assert claims & set(parsed.heads()) == (claims if n_flagged == 10 else set())
        assert ("mmlu: margin of the published order" in parsed.text) is (n_flagged == 10)
        assert f"{n_flagged} questions flagged by max_order" in parsed.text


def test_ranks_and_margins_are_drawn_for_each_benchmark_the_most_suspicious_first() -> None:
    questions = [audited(i, rank=1) for i in range(12)] + [audited(i, rank=2, benchmark="arc") for i in range(30)]
    questions += [audited(i, rank=1, benchmark="cmmlu_law") for i in range(7)]
    rows = (
        row("mmlu", verdict=verdict(0.3)),
        row("arc", verdict=verdict(2e-5)),
        row("cmmlu", "group", verdict=verdict(0.6)),
        row("cmmlu_law", group="cmmlu"),
    )
    parsed = Parsed(render_page([annotation(*questions, rows=rows)]))
    labels = [attributes.get("aria-label", "") for tag, attributes in parsed.elements if tag == "svg"]
    assert [label.partition(".")[0] for label in labels if "questions" in label] == [
        "arc: rank among 24 orders; 30 questions",
        "mmlu: rank among 24 orders; 12 questions",
        "cmmlu: rank among 24 orders; 7 questions",
        "mmlu: margin of the published order; 12 questions",  # the others have fewer than ten flagged questions
    ]


# ---------------------------------------------------------------------- flagged questions

PLENTY = 10**6


def entries(*audited_questions, budget=PLENTY, **changes):
    return json.loads(list_flagged(annotation(*audited_questions, **changes), budget).data)


def test_of_the_flagged_questions_the_highest_score_is_first_and_an_undefined_one_last() -> None:
    scores = [1.0, None, 3.0, math.nan, 2.0]
    flagged = [audited(i, score=score, question=str(i)) for i, score in enumerate(scores)]
    questions = entries(*flagged, audited(5, rank=2), audited(6, flagged=None))
    assert [entry["q"] for entry in questions] == ["2", "4", "0", "1", "3"]


def test_loglikelihoods_have_two_decimals_and_no_nan() -> None:
    values = (-1.23456, math.nan, -math.inf)
    (entry,) = entries(audited(loglikelihoods=values))
    assert entry["l"] == [-1.23, None, None]


def test_the_answers_of_all_runs_are_listed_once_each() -> None:
    question = audited()
    rows = (row("mmlu"), row("mmlu_cot"))
    questions = (
        answered(question, 1.0),
        answered(question, 1.0),
        answered(question, 0.0, "mmlu_cot"),
        answered(question, 0.5, "other"),
    )
    (entry,) = entries(question, rows=rows, questions=questions)
    assert entry["r"] == ["answered correctly in mmlu", "answered incorrectly in mmlu_cot", "not scored in other"]


def test_the_budget_holds_and_what_it_leaves_out_is_counted() -> None:
    many = [audited(i, margin=float(100 - i), question="水" * 100) for i in range(100)]
    listing = list_flagged(annotation(*many), 10_000)
    assert n_bytes(listing.data) <= 10_000
    assert 0 < listing.n_listed < 100
    assert listing.n_flagged == 100
    assert [entry["m"] for entry in json.loads(listing.data)] == [100.0 - i for i in range(listing.n_listed)]
    one_more = n_bytes(listing.data) // listing.n_listed
    assert n_bytes(listing.data) + one_more + 1 > 10_000


def test_one_huge_question_does_not_keep_out_the_others() -> None:
    huge = audited(0, margin=9.0, question="x" * LONGEST_ENTRY)
    listing = list_flagged(annotation(huge, audited(1)), PLENTY)
    assert (listing.n_listed, listing.n_flagged) == (1, 2)
