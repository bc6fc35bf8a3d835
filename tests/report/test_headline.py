from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lm_eval_leakage.inference.pooling import UNKNOWN, Estimate
from lm_eval_leakage.report.headline import Headline, headline, headlines, in_short, other_verdicts
from lm_eval_leakage.results.data_verdict import NO_VERDICT, WORDS
from tests.report.made import OF_WORD, UNDECIDED, annotation, row, verdict


def text_of(told: Headline) -> str:
    assert told.word == ""
    return told.text


def test_accuracy_flags_and_chance_are_one_text_without_a_verdict() -> None:
    assert headline(row(), "max_order") == Headline(
        "On mmlu (n = 100), M's accuracy is 0.50 ± 0.05; on the 75 questions that are not flagged it is 0.40 ± 0.06. "
        "25 questions are flagged where chance gives 4.2."
    )


def test_the_verdict_comes_first_and_says_the_name_once() -> None:
    assert headline(row(verdict=verdict(0.003)), "max_order") == Headline(
        "M on mmlu (n = 100): on 100 questions with orders written by people, the model prefers the published orders "
        "more than it does in the control form, which breaks memory (by 0.50 ± 0.10 standard deviations, p = 0.003). "
        "Its accuracy is 0.50 ± 0.05; on the 75 questions that are not flagged it is 0.40 ± 0.06. "
        "25 questions are flagged where chance gives 4.2.",
        "evidence",
    )
    assert in_short(row(verdict=verdict(0.003)), "max_order") == Headline(
        "M on mmlu (n = 100): on 100 questions with orders written by people, the model prefers the published orders "
        "more than it does in the control form, which breaks memory (by 0.50 ± 0.10 standard deviations, p = 0.003); "
        "accuracy 0.50 ± 0.05, 0.40 ± 0.06 on the 75 questions not flagged; 25 flagged where chance gives 4.2.",
        "evidence",
    )


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_the_badge_of_its_headline(word) -> None:
    for say in (headline, in_short):
        told = say(row(verdict=OF_WORD[word]), "x")
        assert (told.word, told.badge) == (word, word.replace(" ", "-"))
        assert OF_WORD[word].reason in told.text


def test_a_clean_benchmark_with_natural_orders_and_many_flags_has_no_alarming_first_sentence() -> None:
    many = row(flagged_rate=Estimate(0.4, 0.05), verdict=verdict(0.3), pvalue=1e-40, pvalue_unguarded=1e-5)
    for say in (headline, in_short):
        told = say(many, "max_order")
        assert told.word == "none found"
        assert "the model does not significantly prefer" in told.text.partition("flagged")[0]
        assert "e-" not in told.text


def test_no_pvalue_of_flags_is_told() -> None:
    several = row(pvalue=1e-12, flagged_rate_unguarded=Estimate(0.07, 0.02), pvalue_unguarded=3e-5)
    for say in (headline, in_short):
        for found in (several, replace(several, verdict=UNDECIDED)):
            assert "p =" not in say(found, "x").text


def test_small_errors_have_three_decimals() -> None:
    assert "accuracy is 0.412 ± 0.004;" in text_of(headline(row(accuracy=Estimate(0.4121, 0.0042)), "max_order"))


def test_without_a_run_the_flags_are_reported() -> None:
    unanswered = row(metric="", accuracy=UNKNOWN, accuracy_unflagged=UNKNOWN)
    text = text_of(headline(unanswered, "max_order"))
    assert text.startswith("On mmlu (n = 100), M was audited, but no run reports its accuracy. 25 questions are")
    assert ". No run reports its accuracy. 25" in headline(replace(unanswered, verdict=verdict(0.3)), "max_order").text


def test_untested_questions_are_distinguished_from_tested_ones() -> None:
    text = text_of(headline(row(n=200), "max_order"))
    assert "25 of 100 tested questions are flagged where chance gives 4.2." in text
    assert "on the 75 questions that are not flagged" in text


def test_without_a_null_rate_chance_is_not_mentioned() -> None:
    assert text_of(headline(row(null_rate=math.nan), "x")).endswith(" 25 questions are flagged.")


def test_nothing_flagged_has_no_accuracy_without_the_flagged() -> None:
    assert text_of(headline(row(flagged_rate=Estimate(0.0, 0.0, 0.0, 0.04)), "x")) == (
        "On mmlu (n = 100), M's accuracy is 0.50 ± 0.05. None of the questions is flagged where chance gives 4.2."
    )


def test_one_question_is_singular() -> None:
    one = text_of(headline(row(flagged_rate=Estimate(0.01, 0.01)), "x"))
    assert "on the 99 questions that are not flagged" in one
    assert "1 question is flagged where" in one
    assert "on the 1 question that is not flagged" in text_of(headline(row(flagged_rate=Estimate(0.99, 0.01)), "x"))


def test_nothing_tested_is_said() -> None:
    untested = row(n_tested=0, flagged_rate=UNKNOWN, pvalue=math.nan, accuracy_unflagged=UNKNOWN)
    assert text_of(headline(untested, "max_order")).endswith("None of its questions was tested by max_order.")
    assert text_of(headline(untested, "")).endswith("None of its questions was tested by an audit.")


def test_questions_of_two_options_have_a_verdict_and_no_sentence_on_flags() -> None:
    two = row(n_tested=0, flagged_rate=UNKNOWN, pvalue=1e-9, accuracy_unflagged=UNKNOWN, verdict=verdict(0.2))
    for say in (headline, in_short):
        assert "flagged" not in say(two, "max_order").text
        assert "tested" not in say(two, "max_order").text
    assert text_of(headline(replace(two, verdict=NO_VERDICT), "pair_published")).endswith(
        " No single question of two options can be flagged."
    )


def test_flags_that_natural_orders_do_not_explain_are_reported() -> None:
    text = text_of(headline(row(flagged_rate_unguarded=Estimate(0.07, 0.02), pvalue_unguarded=0.03), "x"))
    assert text.endswith("no recognised natural order, the share flagged is 0.07 ± 0.02 (by chance 0.042).")


def test_the_gap_among_similar_questions_has_its_direction() -> None:
    higher = text_of(headline(row(gap_adjusted=Estimate(0.1, 0.03), gap_pvalue=0.001), "x"))
    assert higher.endswith(
        "Among questions of similar difficulty, the accuracy on flagged ones is higher by 0.10 ± 0.03 (p = 0.001)."
    )
    assert "is lower by 0.10 ± 0.03." in text_of(headline(row(gap_adjusted=Estimate(-0.1, 0.03)), "x"))


def test_in_short_it_is_one_sentence() -> None:
    assert text_of(in_short(row(pvalue_unguarded=0.5), "x")) == (
        "M on mmlu (n = 100): accuracy 0.50 ± 0.05, 0.40 ± 0.06 on the 75 questions not flagged; "
        "25 flagged where chance gives 4.2."
    )
    assert text_of(
        in_short(row(n_tested=0, flagged_rate=UNKNOWN, pvalue=math.nan, accuracy_unflagged=UNKNOWN), "x")
    ) == ("M on mmlu (n = 100): accuracy 0.50 ± 0.05. None of its questions was tested by x.")
    assert text_of(in_short(row(accuracy=UNKNOWN), "x")).startswith("M on mmlu (n = 100): 25 flagged")


def test_a_metric_that_is_not_acc_and_shots_are_named() -> None:
    text = text_of(headline(row(metric="acc_norm,none", n_shot="5"), "x"))
    assert text.startswith("On mmlu (5-shot) (n = 100), M's accuracy (acc_norm) is")


def test_no_row_is_a_sentence_too() -> None:
    assert headlines(annotation(rows=()), headline) == (Headline("No task of M could be read."),)


def test_the_four_most_suspicious_benchmarks_have_a_headline_and_the_others_a_verdict_further_down() -> None:
    rows = tuple(row(f"t{i}", verdict=verdict(0.9 - i / 10)) for i in range(6))
    made = annotation(rows=rows)
    *texts, last = headlines(made, in_short)
    assert [told.text.partition(" (")[0] for told in texts] == [f"M on t{i}" for i in (5, 4, 3, 2)]
    assert last == Headline("2 more benchmarks of M in the table.")
    others = other_verdicts(made)
    assert [(told.word, told.text.partition(" (")[0]) for told in others] == [
        ("none found", "t1"),
        ("none found", "t0"),
    ]
    assert "p = 0.8" in others[0].text
