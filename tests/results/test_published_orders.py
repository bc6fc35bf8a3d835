"""The battery on made-up benchmarks: it keeps its level on shuffled orders of any options, and finds written ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from scipy.stats import binom, norm

from lm_eval_leakage.records import Question
from lm_eval_leakage.results.order_tests import FEWEST_TESTED, OrderTest, OrderTests, order_tests, sorted_quantities
from lm_eval_leakage.results.published_orders import (
    ENOUGH_QUESTIONS,
    Documented,
    detectable,
    is_exact,
    null_status,
    orders_as_markdown,
)

WORDS = ("red", "reddish", "blue", "bluish", "a", "the", "river", "rivers", "mount", "mountain", "12", "120", "deep")
NAMES = (
    "numbers sorted",
    "likeness of neighbours",
    "length trend",
    "alphabetical trend",
    "frequency trend",
    "order of mention",
    "place of the right option",
    "“none of the above” last",
)
COMMON = ["kelp", "wisp", "jolt", "numb", "fizz", "echo", "vows", "dirk", "aqua", "bolt"]
COMMON = [word for place, word in enumerate(COMMON) for _ in range(2**place)]


def written(number: int, rng: random.Random) -> Question:
    """Return questions with options in a natural order: numbers rise, similar options are neighbours, lengths rise;
    some have ties and copies."""
    n = rng.choice((2, 3, 4, 4, 5, 6))
    if number % 4 == 0:
        options = [str(value) for value in sorted(rng.choices(range(30), k=n))]
    else:
        options = sorted(
            (" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(n)), key=lambda o: (len(o), o)
        )
    if number % 5 == 0:
        options[-1] = "none of the above"
    named = f"It is {options[0]}, then {options[1]}. " if number % 3 == 0 else ""
    return Question(f"q{number}", f"{named}Which is number {number}?", tuple(options), answer=0)


def benchmark(n_questions: int, seed: int) -> list[Question]:
    rng = random.Random(seed)
    return [written(number, rng) for number in range(n_questions)]


def shuffled(question: Question, rng: random.Random) -> Question:
    order = list(range(len(question.options)))
    rng.shuffle(order)
    options = tuple(question.options[place] for place in order)
    return replace(question, options=options, answer=None if question.answer is None else order.index(question.answer))


def test_shuffled_orders_are_rejected_at_most_as_often_as_the_level_says() -> None:
    """Mixed numbers of options, ties and copies; over many shuffles, within the binomial error."""
    questions, n_shuffles = benchmark(40, seed=1), 150
    rejected: Counter[tuple[str, float]] = Counter()
    families = 0
    for seed in range(n_shuffles):
        rng = random.Random(seed)
        drawn = [replace(shuffled(question, rng), id=f"{seed}/{question.id}") for question in questions]
        tests = order_tests(drawn).tests
        assert all(test.n_questions for test in tests)
        rejected.update((test.name, level) for test in tests for level in (0.05, 0.2, 0.5) if test.pvalue <= level)
        families += min(test.adjusted for test in tests) <= 0.05
    for (name, level), n_rejected in rejected.items():
        assert n_rejected <= binom.ppf(0.9995, n_shuffles, level), name
    for name in NAMES[1:5]:  # those with many possible values reach the level
        assert rejected[name, 0.5] >= binom.ppf(0.0005, n_shuffles, 0.5), name
    assert families <= binom.ppf(0.9995, n_shuffles, 0.05)


def test_every_habit_of_people_who_write_options_is_found() -> None:
    tests = {test.name: test for test in order_tests(benchmark(200, seed=2)).tests}
    assert tuple(tests) == NAMES
    for name in {*NAMES} - {"alphabetical trend", "frequency trend"}:
        assert tests[name].adjusted < 0.01, name
    assert tests["length trend"].observed > 3
    assert tests["“none of the above” last"].observed == 1


@pytest.mark.parametrize(
    ("name", "key", "sign"),
    [
        ("alphabetical trend", str.casefold, 1),
        ("frequency trend", lambda word: -COMMON.count(word), -1),  # the most usual first
        ("order of mention", COMMON.index, 1),
    ],
)
def test_a_habit_is_found_by_the_test_that_looks_for_it(name, key, sign) -> None:
    """Words of equal length without common pieces, the later ones of `COMMON` more often; the text names them all."""
    rng, questions = random.Random(6), []
    for number in range(100):
        drawn = list(dict.fromkeys(rng.choices(COMMON, k=200)))[:4]
        questions.append(Question(f"q{number}", " ".join(dict.fromkeys(COMMON)), tuple(sorted(drawn, key=key))))
    numbered = [replace(question, stem=f"{number}: {question.stem}") for number, question in enumerate(questions)]
    tests = {test.name: test for test in order_tests(numbered).tests}
    assert tests[name].adjusted < 0.01
    assert tests[name].observed * sign > 3
    assert tests["length trend"].n_questions == tests["numbers sorted"].n_questions == 0


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        (("1", "2", "3"), 2 / 6),
        (("4", "3", "2", "1"), 2 / 24),
        (("1", "1", "2", "3"), 4 / 24),
        (("1", "1", "1", "2"), 12 / 24),
        (("2 days", "1 week", "1 month", "none of these"), 2 / 6),
        (("Saturday", "Sunday", "Monday"), 2 / 6),
        (("1", "2"), None),
        (("1", "1", "1"), None),
        (("1", "two cats", "3"), None),
        (("red", "blue", "lime"), None),
    ],
)
def test_the_chance_of_sorted_numbers_is_the_share_of_sorted_orders(options, rate) -> None:
    """None where all orders are sorted, or none is."""
    orders = [sorted_quantities([Question("q", "?", order)]) for order in permutations(options)]
    assert {test.n_questions for test in orders} == {0 if rate is None else 1}
    if rate is not None:
        assert all(test.expected == pytest.approx(rate) for test in orders)
        assert sum(test.observed for test in orders) / len(orders) == pytest.approx(rate)


def test_copies_count_once_single_options_are_left_out_and_of_few_questions_nothing_is_computed() -> None:
    questions = benchmark(40, seed=4)
    turned = replace(questions[1], id="copy", options=questions[1].options[::-1])
    alone = Question("alone", "?", ("only",), 0)
    tests = order_tests([*questions, turned, alone, questions[2]])
    assert tests == replace(order_tests(questions), n_questions=40, n_left_out=3)
    text = orders_as_markdown(tests, null_status(tests))
    assert text.endswith("3 questions with fewer than two options, or copies of others, left out.")
    assert order_tests([*questions[: FEWEST_TESTED - 1], alone]) == OrderTests(FEWEST_TESTED - 1, 1, ())
    assert len(order_tests(questions[:FEWEST_TESTED]).tests) == len(NAMES)


# ---------------------------------------------------------------------- the status

NOTHING = OrderTest("likeness of neighbours", 500, "z", 0.3, 0.0, 0.76, 0.004, 1.0)
TREND = replace(NOTHING, name="length trend", n_questions=ENOUGH_QUESTIONS, pvalue=0.02, adjusted=0.04)
NUMBERS = OrderTest("numbers sorted", 50, "share", 0.9, 1 / 12, 1e-40, 0.0, 2e-40)
NO_LAST = OrderTest("“none of the above” last", 0, "share")
PASSED = OrderTests(600, 0, (NOTHING, TREND, NO_LAST))
FAILED = OrderTests(600, 3, (NOTHING, TREND, NUMBERS))
SEALED = Documented("sealed", "the paper, section 3")


def test_the_tests_that_contradict_random_orders_are_reported_and_that_it_is_documented() -> None:
    agreed = null_status(FAILED, Documented("written", "its README"))
    assert (agreed.status, agreed.contradicted) == ("written", False)
    assert "numbers sorted, share 0.90 where 0.08 is expected, 50 questions, adjusted p = 2e-40" in agreed.reason
    assert "length trend" not in agreed.reason
    assert "also documented (its README)" in agreed.reason


@pytest.mark.parametrize(
    ("tests", "pattern", "documented", "status"),
    [
        (FAILED, 0.9, None, ("patterned", False)),
        (FAILED, 0.89, None, ("written", False)),
        (PASSED, 0.9, None, ("consistent with random", False)),
        (FAILED, 0.9, SEALED, ("patterned", True)),
    ],
)
def test_written_orders_that_follow_length_or_likeness_too_much_are_patterned(
    tests, pattern, documented, status
) -> None:
    null = null_status(replace(tests, pattern=pattern), documented)
    assert (null.status, null.contradicted) == status
    is_reported = "They follow a pattern of length or likeness: 0.90 standard deviations per question" in null.reason
    assert is_reported == (status[0] == "patterned")


def test_orders_that_pass_are_called_consistent_with_random_never_proved_so() -> None:
    status = null_status(PASSED)
    assert status.status == "consistent with random"
    assert not is_exact(status.status)
    assert "no test can prove" in status.reason
    assert (
        f"likeness of neighbours {detectable(500):.2f}, length trend {detectable(ENOUGH_QUESTIONS):.2f}"
        in status.reason
    )


@pytest.mark.parametrize("n", [0, ENOUGH_QUESTIONS - 1])
def test_too_few_questions_for_a_test_that_acts_on_most_leave_the_status_open(n: int) -> None:
    status = null_status(replace(PASSED, tests=(NOTHING, replace(TREND, n_questions=n))))
    assert status.status == "too few to say"
    assert "400 each are needed" in status.reason


@pytest.mark.parametrize("says", ["sealed", "random", "written"])
def test_documentation_decides_where_the_tests_find_nothing(says) -> None:
    for tests in (PASSED, OrderTests(5, 0, ())):
        status = null_status(tests, Documented(says, "its README"))
        called = "drawn" if says == "random" else says
        assert (status.status, status.contradicted) == (called, False)
        assert f"`{called}`, as documented (its README)" in status.reason


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
