from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.lab.settings import split
from lm_eval_leakage.records import Question


def benchmark(n: int, subjects: int = 1) -> list[Question]:
    return [Question(f"q{i}", f"What is {i}?", ("a", "b"), 0, subject=f"s{i * subjects // n}") for i in range(n)]


@given(st.integers(30, 60), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_halves_have_the_same_size_and_share_nothing(n: int, subjects: int, block: int, seed: int) -> None:
    wanted = max(4, 2 * block)
    wanted += -wanted % (2 * block)  # whole blocks in each half
    halves = split(benchmark(n, subjects), wanted, block=block, rng=random.Random(seed))
    trained, held_out = ({q.id for q in half} for half in (halves.trained, halves.held_out))
    assert len(trained) == len(held_out) == wanted // 2
    assert not trained & held_out


def test_a_block_is_a_run_of_neighbours_of_one_subject() -> None:
    halves = split(benchmark(40, subjects=4), 20, block=5, rng=random.Random(1))
    for half in (halves.trained, halves.held_out):
        for start in range(0, len(half), 5):
            places = [int(question.id[1:]) for question in half[start : start + 5]]
            assert places == list(range(places[0], places[0] + 5))
            assert len({question.subject for question in half[start : start + 5]}) == 1


def test_a_question_with_the_text_of_another_is_not_drawn() -> None:
    twins = [Question(f"t{i}", "What?", ("a", "b") if i % 2 else ("b", "a")) for i in range(4)]
    with pytest.raises(ValueError, match="n_questions is 6, but 5 of 8 are eligible"):
        split([*benchmark(4), *twins], 6, rng=random.Random(0))


def test_only_eligible_questions_are_drawn() -> None:
    halves = split(benchmark(30), 10, eligible=lambda q: int(q.id[1:]) % 3 == 0, rng=random.Random(0))
    assert {int(q.id[1:]) % 3 for q in (*halves.trained, *halves.held_out)} == {0}


@pytest.mark.parametrize("n", [0, 3])
def test_too_few_are_refused_with_the_rule(n: int) -> None:
    with pytest.raises(ValueError, match=f"n_questions is {n}; half are trained on, so it must be 4 or more"):
        split(benchmark(30), n, rng=random.Random(0))
