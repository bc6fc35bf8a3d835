"""What a reader of a page meets: commands to copy, rows that open, few words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.flagged_questions import order_names
from lm_eval_leakage.results.html import asset, prose
from lm_eval_leakage.results.leaderboard import as_page, leaderboard
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.stats.pooling import Estimate
from lm_eval_leakage.stats.positive_control import PositiveControl
from tests.report.made import OF_WORD, annotation, answered, audited, row
from tests.report.parsed import Parsed, Shown

MOST_WORDS = 700
COMMAND = "lm-eval-leakage check --model hf --model_args pretrained=a/b --tasks arc,mmlu --questions 620"
LONG_STEM = " ".join(["how many of these words does a row show before it is opened"] * 3)
AUDIT = "lm-eval-leakage check --runs runs --tasks arc"


def two_verdicts() -> Annotation:
    """Return the audits of one model on two benchmarks, whose remedies and problems name commands."""
    control = PositiveControl("train split", 99, -0.05, 0.12, 0.66)
    remedy = f"`{COMMAND}` may change that, or `--reference`."
    undecided = replace(OF_WORD["inconclusive"], n_together=2, adjusted=0.4, remedy=remedy, positive=control)
    orders = OrderAnswers((), "written", control=(-10.0, *[-9.0] * 3, *[-12.0] * 20))
    questions = [
        audited(
            i, rank=1 + i % 3, orders=orders, benchmark=("arc", "mmlu")[i % 2], question=f"Question {i}: {LONG_STEM}"
        )
        for i in range(60)
    ]
    clean = Estimate(0.4, 0.02, 0.36, 0.44)
    return annotation(
        *questions,
        rows=(row("arc", verdict=undecided, accuracy_original=clean), row("mmlu", verdict=undecided)),
        questions=tuple(answered(question, 1.0, question.benchmark) for question in questions),
        problems=(Problem(f"arc: no audit has its questions; this audits exactly those of the run: {AUDIT}"),),
    )


PAGES = {
    "report": lambda: render_page([two_verdicts()]),
    "report of two models": lambda: render_page([two_verdicts(), replace(two_verdicts(), model="N")]),
    "leaderboard": lambda: as_page(leaderboard([two_verdicts()])),
}


@pytest.mark.parametrize("name", PAGES)
def test_every_command_on_a_page_is_code_with_a_button_that_copies_it(name: str) -> None:
    page = PAGES[name]()
    assert not re.findall(r"`lm-eval-leakage [^`]*`", page)
    commands = re.findall(r"<code>(lm-eval-leakage [^<]*)</code>(.{0,50})", page)
    assert AUDIT in {command for command, _ in commands}
    assert all(after.startswith('<button type="button" class="copying"') for _, after in commands)
    outside = re.sub(r"<code>.*?</code>|<script.*?</script>", "", page, flags=re.DOTALL)
    assert "lm-eval-leakage check" not in outside


def test_a_command_is_copied_as_it_can_be_typed_and_other_code_has_no_button() -> None:
    text = str(prose(f"`{COMMAND}` may change that, or `--reference`; p = 0.1."))
    assert f"<code>{COMMAND}</code><button" in text
    assert "<code>--reference</code>; " in text
    assert text.count("<button") == 1
    assert '<span class="figure">p = 0.1.</span>' in text
    assert str(prose("an odd ` mark of <b>")) == "an odd ` mark of &lt;b&gt;"


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique_links_lead_somewhere_and_heads_of_tables_have_a_scope(name: str) -> None:
    parsed = Parsed(PAGES[name]())
    assert len(parsed.ids) == len({*parsed.ids})
    targets = [str(given["href"]) for tag, given in parsed.elements if tag == "a"]
    assert {target.removeprefix("#") for target in targets} <= {*parsed.ids}
    assert {given.get("scope") for tag, given in parsed.elements if tag == "th"} == {"col", "row"}
    drawings = [given for tag, given in parsed.elements if tag == "svg" and given.get("aria-hidden") != "true"]
    assert drawings
    assert all(given.get("role") == "img" and given.get("aria-label") for given in drawings)


def test_a_row_of_a_question_holds_its_text_options_orders_and_scores() -> None:
    entries = Parsed(PAGES["report"]()).data()
    assert len(entries) == 20
    for entry in entries:
        assert entry["q"].startswith("Question ")
        assert entry["o"] == ["red", "green", "blue", "white"]
        assert len(entry["l"]) == len(entry["p"]) == 24
        assert entry["p"][0] == "ABCD"


def test_a_page_says_how_many_of_the_questions_it_shows() -> None:
    assert "20 questions flagged by max_order" in Parsed(PAGES["report"]()).text


def test_orders_are_named_by_letters_where_all_were_scored_else_by_the_place_of_the_right_option() -> None:
    assert order_names(audited(options=("a", "b", "c"), n_orders=6)) == ["ABC", "ACB", "BAC", "BCA", "CAB", "CBA"]
    assert order_names(audited(options=("a", "b", "b "), n_orders=3)) == ["ABC", "BAC", "BCA"]
    some = OrderAnswers((-1.0,) * 3, right=(1, 0, 3))
    assert order_names(audited(n_orders=3, orders=some)) == [f"right option at {letter}" for letter in "BAD"]
    assert order_names(audited(n_orders=3)) == []
    assert order_names(audited(options=(), n_orders=3, orders=some)) == []


def test_a_page_with_two_verdicts_says_what_memory_does_in_few_words() -> None:
    shown = Shown(PAGES["report"]())
    assert "usually finds the published order of its options likelier than other orders" in shown.text
    assert "Choice confusion" in shown.text
    assert "Each question is answered with its options as published" not in shown.text  # folded
    assert len(shown.words) <= MOST_WORDS


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour as the Web Content Accessibility Guidelines define it."""
    digits = colour.removeprefix("#")
    whole = digits if len(digits) == 6 else "".join(digit * 2 for digit in digits)
    channels = [int(whole[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(colour: str, other: str) -> float:
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_of_two_colours_is_that_of_the_guidelines() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_texts_and_marks_stand_out_from_their_ground(scheme: int) -> None:
    roots = re.findall(r":root\{(.*?)\}", asset("page.css"), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+):(#[0-9a-f]+)", roots[scheme]))
    for ground in ("ground", "soft"):
        for text in ("text", "muted", "accent", "alarm"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for mark in ("first", "second", "third", "fourth", "mean", "mark"):
        assert contrast(colours[mark], colours["ground"]) >= 3, mark
