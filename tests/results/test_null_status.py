"""The status of a benchmark's orders, and the sentence that says what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.stats import norm

from lm_eval_leakage.results.published_orders import (
    ENOUGH_QUESTIONS,
    EXACT,
    Documented,
    OrderTest,
    OrderTests,
    as_markdown,
    detectable,
    null_status,
)

NOTHING = OrderTest("likeness of neighbours", 500, "z", 0.3, 0.0, 0.76, 0.004, 1.0)
TREND = replace(NOTHING, name="length trend", n_questions=ENOUGH_QUESTIONS, pvalue=0.02, adjusted=0.04)
NUMBERS = OrderTest("numbers sorted", 50, "share", 0.9, 1 / 12, 1e-40, 0.0, 2e-40)
NO_LAST = OrderTest("“none of the above” last", 0, "share")
PASSED = OrderTests(600, 0, (NOTHING, TREND, NO_LAST))
FAILED = OrderTests(600, 3, (NOTHING, TREND, NUMBERS))
SEALED = Documented("sealed", "the paper, section 3")


def test_one_contradicting_test_makes_orders_written() -> None:
    found = null_status(FAILED)
    assert (found.status, found.contradicted) == ("written", False)
    assert "numbers sorted, share 0.90 where 0.08 is expected, 50 questions, adjusted p = 2e-40" in found.reason
    assert "length trend" not in found.reason


def test_written_orders_that_follow_length_or_likeness_too_much_are_patterned() -> None:
    found = null_status(replace(FAILED, pattern=0.9))
    assert (found.status, found.contradicted) == ("patterned", False)
    assert "They follow a pattern of length or likeness: 0.90 standard deviations per question" in found.reason
    assert found.reason.startswith("`patterned`: the orders are not random")
    assert null_status(replace(FAILED, pattern=0.89)).status == "written"
    assert null_status(replace(PASSED, pattern=0.9)).status == "consistent with random"
    documented = null_status(replace(FAILED, pattern=0.9), SEALED)
    assert (documented.status, documented.contradicted) == ("patterned", True)


def test_orders_that_pass_are_called_consistent_with_random_never_proved_so() -> None:
    found = null_status(PASSED)
    assert found.status == "consistent with random"
    assert found.status not in EXACT
    assert "no test can prove" in found.reason
    assert (
        f"likeness of neighbours {detectable(500):.2f}, length trend {detectable(ENOUGH_QUESTIONS):.2f}"
        in found.reason
    )


@pytest.mark.parametrize("short", [replace(TREND, n_questions=ENOUGH_QUESTIONS - 1), NO_LAST])
def test_too_few_questions_for_a_test_that_acts_on_most_leave_the_status_open(short) -> None:
    found = null_status(replace(PASSED, tests=(NOTHING, short)))
    assert found.status == "too few to say"
    assert "400 each are needed" in found.reason


def test_of_five_questions_there_is_a_sentence_and_no_number_that_looks_like_an_answer() -> None:
    few = OrderTests(5, 1, ())
    status = null_status(few)
    assert status.status == "too few to say"
    shown = as_markdown(few, status)
    assert "there are 5 different questions with two options or more; 20 are needed" in shown
    assert "|" not in shown
    assert "p =" not in shown
    assert "1 question with fewer than two options, or copies of others, left out" in shown


@pytest.mark.parametrize("says", ["sealed", "random", "written"])
def test_documentation_decides_where_the_tests_find_nothing(says) -> None:
    for found in (PASSED, OrderTests(5, 0, ())):
        status = null_status(found, Documented(says, "its README"))
        called = "drawn" if says == "random" else says
        assert (status.status, status.contradicted) == (called, False)
        assert f"`{called}`, as documented (its README)" in status.reason


def test_documentation_never_overrides_a_contradicting_test() -> None:
    status = null_status(FAILED, SEALED)
    assert (status.status, status.contradicted) == ("written", True)
    assert "contradicts what is documented: `sealed` (the paper, section 3)" in status.reason
    agreed = null_status(FAILED, Documented("written", "its README"))
    assert (agreed.status, agreed.contradicted) == ("written", False)
    assert "also documented (its README)" in agreed.reason


def test_what_is_documented_needs_a_known_status_and_a_source() -> None:
    with pytest.raises(ValueError, match="status is 'shuffled'; choose one of: random, written, sealed"):
        Documented("shuffled", "README")
    with pytest.raises(ValueError, match="no source; name where"):
        Documented("random", " ")


def test_the_detectable_effect_is_found_with_the_stated_probability() -> None:
    """By arithmetic: the critical value of eight tests at 1 % is exceeded by a normal z with this mean in 80 %."""
    mean = detectable(ENOUGH_QUESTIONS) * ENOUGH_QUESTIONS**0.5
    assert norm.sf(norm.ppf(1 - 0.01 / 8 / 2), loc=mean) == pytest.approx(0.8)
    assert detectable(ENOUGH_QUESTIONS) < 0.21
