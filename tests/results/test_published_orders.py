"""The battery on made-up benchmarks: it keeps its level on shuffled orders of any options, and finds written ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from scipy.stats import binom

from lm_eval_leakage.records import Question
from lm_eval_leakage.results.published_orders import (
    FEWEST_TESTED,
    OrderTest,
    OrderTests,
    order_tests,
    sorted_quantities,
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
    """In a natural order: numbers rise, similar options are neighbours, lengths rise; some have ties and copies."""
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


def by_name(found: OrderTests) -> dict[str, OrderTest]:
    return {test.name: test for test in found.tests}


def test_shuffled_orders_are_rejected_at_most_as_often_as_the_level_says() -> None:
    """Mixed numbers of options, ties and copies; over many shuffles, within the binomial error."""
    questions, n_shuffles = benchmark(40, seed=1), 150
    rejected: Counter[tuple[str, float]] = Counter()
    families = 0
    for seed in range(n_shuffles):
        rng = random.Random(seed)
        drawn = [replace(shuffled(one, rng), id=f"{seed}/{one.id}") for one in questions]
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
    found = by_name(order_tests(benchmark(200, seed=2)))
    assert tuple(found) == NAMES
    for name in {*NAMES} - {"alphabetical trend", "frequency trend"}:
        assert found[name].adjusted < 0.01, name
    assert found["length trend"].observed > 3
    assert found["“none of the above” last"].observed == 1


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
    found = by_name(order_tests([replace(one, stem=f"{number}: {one.stem}") for number, one in enumerate(questions)]))
    assert found[name].adjusted < 0.01
    assert found[name].observed * sign > 3
    assert found["length trend"].n_questions == found["numbers sorted"].n_questions == 0


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        (("1", "2", "3"), 2 / 6),
        (("4", "3", "2", "1"), 2 / 24),
        (("1", "1", "2", "3"), 4 / 24),
        (("1", "1", "1", "2"), 12 / 24),
        (("2 days", "1 week", "1 month", "none of these"), 2 / 6),
        (("Saturday", "Sunday", "Monday"), 2 / 6),
    ],
)
def test_the_chance_of_sorted_numbers_is_the_share_of_sorted_orders(options, rate) -> None:
    orders = [sorted_quantities([Question("q", "?", order)]) for order in permutations(options)]
    assert all(test.expected == pytest.approx(rate) for test in orders)
    assert sum(test.observed for test in orders) / len(orders) == pytest.approx(rate)


@pytest.mark.parametrize("options", [("1", "2"), ("1", "1", "1"), ("1", "two cats", "3"), ("red", "blue", "lime")])
def test_options_of_which_all_or_no_orders_are_sorted_say_nothing(options) -> None:
    assert sorted_quantities([Question("q", "?", options)]).n_questions == 0


def test_copies_count_once_and_single_options_are_left_out() -> None:
    questions = benchmark(40, seed=4)
    turned = replace(questions[1], id="copy", options=questions[1].options[::-1])
    alone = Question("alone", "?", ("only",), 0)
    found = order_tests([*questions, turned, alone, questions[2]])
    assert (found.n_questions, found.n_left_out) == (40, 3)
    assert found == replace(order_tests(questions), n_left_out=3)


def test_of_five_questions_nothing_is_computed() -> None:
    assert order_tests(benchmark(5, seed=0)) == OrderTests(5, 0, ())
    assert order_tests([]) == OrderTests(0, 0, ())
    assert len(order_tests(benchmark(FEWEST_TESTED, seed=0)).tests) == len(NAMES)
