from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.families import distinct, each_once, question_key
from lm_eval_leakage.records import Question, Shard

CAFE = Question("q", "Où est le café de la Gare ?", ("à gauche", "à droite", "nulle part"))


def of(stem: str = CAFE.stem, *options: str) -> Question:
    return Question("another id", stem, options or CAFE.options)


@pytest.mark.parametrize(
    "copy",
    [
        of(CAFE.stem.upper()),
        of(f"  {CAFE.stem}\n".replace(" ", "\t ")),
        of(unicodedata.normalize("NFD", CAFE.stem)),
        of(CAFE.stem.replace("café", "ca\u200bfé")),
        of(CAFE.stem, "nulle part", "à gauche", "à droite"),
        of(CAFE.stem, *(unicodedata.normalize("NFD", option).title() for option in CAFE.options)),
        replace(CAFE, answer=1, subject="geography"),
    ],
    ids=["case", "white space", "NFD", "zero width", "order of options", "options", "answer and subject"],
)
def test_a_question_that_reads_the_same_is_a_copy(copy: Question) -> None:
    assert question_key(copy) == question_key(CAFE)
    assert distinct([CAFE, copy, CAFE]) == [CAFE]


@pytest.mark.parametrize(
    "other",
    [
        of("Où est la gare ?"),
        of(CAFE.stem, "à gauche", "à droite", "en haut"),
        of(CAFE.stem, "à gauche", "à droite"),
        of(CAFE.stem, "à gauche", "à droite", "nulle part", "nulle part"),
    ],
    ids=["stem", "one option", "fewer options", "an option twice"],
)
def test_another_stem_or_other_options_make_another_question(other: Question) -> None:
    assert question_key(other) != question_key(CAFE)


def test_x2_and_x_squared_are_different_options() -> None:
    assert question_key(of("?", "x²", "y")) != question_key(of("?", "x2", "y"))


def test_a_shard_has_no_copies() -> None:
    assert question_key(Shard("s", "", ("a", "b"), members=("1", "2"))) == ""
    assert each_once(["", "", "a", "a"], str) == ["", "", "a"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_the_lowest_place_counts_and_the_order_stays(items: list[tuple[str, int]]) -> None:
    once = each_once(items, lambda item: item[0], lambda item: item[1])
    assert {name for name, _ in once} == {name for name, _ in items}
    assert all(place == min(p for name, p in items if name == own) for own, place in once)
    assert len(once) == len({name for name, _ in items})
    firsts = [items.index(item) for item in once]
    assert firsts == sorted(firsts)
