"""Which version a key draws from an author's questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lm_eval_leakage.records import Question
from lm_eval_leakage.seal.drawn import Original, SealedQuestion, published_questions
from tests.sealing.made import KEY, key, numbered, original, seal_of, some_originals


def rearranged(one: Original, by: Random) -> Original:
    """The same question, as an author who wrote its parts in another order would give it."""
    wordings, choices = [one.question, *one.wordings], list(one.choices)
    by.shuffle(wordings)
    if one.order != "kept":
        by.shuffle(choices)
    answers = tuple(choices.index(one.choices[place]) for place in one.answers)
    return replace(one, question=wordings[0], wordings=tuple(wordings[1:]), choices=tuple(choices), answers=answers)


@given(some_originals(), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_published_version_does_not_depend_on_the_order_in_which_the_author_wrote(originals, by) -> None:
    others = [rearranged(one, by) for one in originals]
    by.shuffle(others)
    assert published_questions(others, KEY) == published_questions(originals, KEY)


@given(some_originals())
@settings(max_examples=15)
def test_every_published_question_has_the_authors_texts_and_a_right_answer(originals: list[Original]) -> None:
    published = {one.wordings: one for one in published_questions(originals, KEY)}
    assert len(published) == len(originals)
    by_texts = {frozenset(wordings): one for wordings, one in published.items()}
    for one in originals:
        found = by_texts[frozenset([one.question, *one.wordings])]
        assert sorted(found.options) == sorted(one.choices)
        assert {found.options[place] for place in found.equally_right} == {one.choices[place] for place in one.answers}
        assert found.answer in found.equally_right
        assert (found.order_drawn, found.subject) == (one.order == "drawn", one.subject)
        assert found.order_drawn or found.options == one.choices


def drawn(number: int) -> SealedQuestion:
    one = original("a", wordings=("b", "c"), choices=("right", "also", "x", "y"), answers=(0, 1))
    return published_questions([one], key(number))[0]


def test_if_the_authors_answer_is_always_first_the_published_one_is_anywhere_equally_often() -> None:
    places = Counter(one.answer for one in published_questions(numbered(2_000), KEY))
    assert chisquare([places[place] for place in range(4)]).pvalue > 0.001


def test_order_wording_and_key_are_drawn_independently() -> None:
    found = Counter(
        (one.wordings[0], one.options[one.answer], one.options.index("x")) for one in map(drawn, range(2_400))
    )
    assert len(found) == 3 * 2 * 4
    assert chisquare(list(found.values())).pvalue > 0.001


def test_all_orders_of_four_questions_are_equally_frequent() -> None:
    found = Counter(
        tuple(one.wordings[0] for one in published_questions(numbered(4), key(number))) for number in range(1_200)
    )
    assert len(found) == 24
    assert chisquare(list(found.values())).pvalue > 0.001


def test_the_public_wording_is_first_and_the_private_ones_do_not_tell_the_authors_order() -> None:
    for number in range(20):
        public, *private = drawn(number).wordings
        assert private == sorted({"a", "b", "c"} - {public})


def test_a_question_is_found_by_its_published_options_and_wording_apart_from_white_space() -> None:
    seal = seal_of([original("What  is even?", wordings=("Name an even number",)), *numbered(3)])
    one = next(one for one in seal.questions if "2" in one.options)
    assert seal.find(Question("any", f" {one.wordings[0]}\n", one.options)) is one
    assert seal.find(Question("any", one.wordings[1], one.options)) is None
    assert seal.find(Question("any", one.wordings[0], one.options[::-1])) is None


def test_a_printed_seal_does_not_show_its_key() -> None:
    seal = seal_of(numbered(1))
    assert repr(KEY) not in repr(seal)
    assert KEY.hex() not in repr(seal)
