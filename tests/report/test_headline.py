from __future__ import annotations

import math

from lm_eval_leakage.inference.pooling import UNKNOWN, Estimate
from lm_eval_leakage.report.headline import benchmarks, headline, headlines, in_short
from tests.report.made import annotation, row


def test_accuracy_flags_chance_and_pvalue_are_one_text() -> None:
    assert headline(row(), "max_order") == (
        "On mmlu (n = 100), M's accuracy is 0.50 ± 0.05; on the 75 questions that are not flagged it is 0.40 ± 0.06. "
        "25 questions are flagged where chance gives 4.2 (p = 1e-12)."
    )


def test_small_errors_have_three_decimals() -> None:
    assert "accuracy is 0.412 ± 0.004;" in headline(row(accuracy=Estimate(0.4121, 0.0042)), "max_order")


def test_without_a_run_the_flags_are_reported() -> None:
    text = headline(row(metric="", accuracy=UNKNOWN, accuracy_unflagged=UNKNOWN), "max_order")
    assert text.startswith("On mmlu (n = 100), M was audited, but no run reports its accuracy. 25 questions are")


def test_untested_questions_are_distinguished_from_tested_ones() -> None:
    text = headline(row(n=200), "max_order")
    assert "25 of 100 tested questions are flagged where chance gives 4.2 (" in text
    assert "on the 75 questions that are not flagged" in text


def test_without_a_pvalue_or_a_null_rate_chance_is_not_mentioned() -> None:
    assert headline(row(pvalue=math.nan, null_rate=math.nan), "x").endswith(" 25 questions are flagged.")


def test_nothing_flagged_has_no_accuracy_without_the_flagged() -> None:
    assert headline(row(flagged_rate=Estimate(0.0, 0.0, 0.0, 0.04), pvalue=1.0), "x") == (
        "On mmlu (n = 100), M's accuracy is 0.50 ± 0.05. "
        "None of the questions is flagged where chance gives 4.2 (p = 1)."
    )


def test_one_question_is_singular() -> None:
    one = row(flagged_rate=Estimate(0.01, 0.01), pvalue=0.98)
    assert "on the 99 questions that are not flagged" in headline(one, "x")
    assert "1 question is flagged where" in headline(one, "x")
    assert "on the 1 question that is not flagged" in headline(row(flagged_rate=Estimate(0.99, 0.01)), "x")


def test_an_underflow_is_a_bound() -> None:
    assert "(p < 1e-300)" in headline(row(pvalue=0.0), "x")
    assert "(p = 2e-300)" in headline(row(pvalue=2e-300), "x")


def test_nothing_tested_is_said() -> None:
    untested = row(n_tested=0, flagged_rate=UNKNOWN, pvalue=math.nan, accuracy_unflagged=UNKNOWN)
    assert headline(untested, "max_order").endswith("None of its questions was tested by max_order.")
    assert headline(untested, "").endswith("None of its questions was tested by an audit.")


def test_questions_of_two_options_are_tested_together() -> None:
    two = row(n_tested=0, flagged_rate=UNKNOWN, pvalue=0.02, accuracy_unflagged=UNKNOWN)
    assert "No single question can be flagged; over all of them" in headline(two, "max_order")
    assert "p = 0.02." in headline(two, "max_order")


def test_flags_that_natural_orders_do_not_explain_are_reported() -> None:
    text = headline(row(flagged_rate_unguarded=Estimate(0.07, 0.02), pvalue_unguarded=0.03), "x")
    assert "no recognised natural order, the share flagged is 0.07 ± 0.02 (by chance 0.042; p = 0.03)." in text


def test_the_gap_among_similar_questions_has_its_direction() -> None:
    higher = headline(row(gap_adjusted=Estimate(0.1, 0.03), gap_pvalue=0.001), "x")
    assert higher.endswith(
        "Among questions of similar difficulty, the accuracy on flagged ones is higher by 0.10 ± 0.03 (p = 0.001)."
    )
    assert "is lower by 0.10 ± 0.03." in headline(row(gap_adjusted=Estimate(-0.1, 0.03)), "x")


def test_in_short_it_is_one_sentence() -> None:
    assert in_short(row(pvalue_unguarded=0.5), "x") == (
        "M on mmlu (n = 100): accuracy 0.50 ± 0.05, 0.40 ± 0.06 on the 75 questions not flagged; "
        "25 flagged where chance gives 4.2 (p = 1e-12; p = 0.5 without natural orders)."
    )
    assert in_short(row(n_tested=0, flagged_rate=UNKNOWN, pvalue=math.nan, accuracy_unflagged=UNKNOWN), "x") == (
        "M on mmlu (n = 100): accuracy 0.50 ± 0.05. None of its questions was tested by x."
    )
    assert in_short(row(accuracy=UNKNOWN), "x").startswith("M on mmlu (n = 100); 25 flagged")


def test_a_metric_that_is_not_acc_and_shots_are_named() -> None:
    text = headline(row(metric="acc_norm,none", n_shot="5"), "x")
    assert text.startswith("On mmlu (5-shot) (n = 100), M's accuracy (acc_norm) is")


def test_groups_and_tasks_of_no_group_have_a_headline_and_members_have_none() -> None:
    rows = [
        row("mmlu", "group"),
        row("mmlu", "group", metric="acc_norm,none"),
        row("mmlu_anatomy", group="mmlu"),
        row("mmlu_anatomy/bones", "subject", group="mmlu"),
        row("arc", metric="acc,none"),
        row("arc", n_shot="5"),
        row("arc/x", "subject"),
    ]
    found = [(one.task, one.metric, one.n_shot) for one in benchmarks(rows)]
    assert found == [("mmlu", "acc,none", "0"), ("arc", "acc,none", "0"), ("arc", "acc,none", "5")]


def test_no_row_is_a_sentence_too() -> None:
    assert headlines(annotation(rows=()), headline) == ("No task of M could be read.",)


def test_the_fifth_benchmark_is_in_the_table() -> None:
    texts = headlines(annotation(rows=tuple(row(f"t{i}") for i in range(6))), in_short)
    assert len(texts) == 5
    assert texts[-1] == "2 more benchmarks of M in the table."
