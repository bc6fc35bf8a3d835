"""Keyed draws are exactly uniform and independent; which version a key draws; what the commitment binds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lm_eval_leakage.records import Question
from lm_eval_leakage.seal.drawn import (
    KeyedDraws,
    Original,
    SealedQuestion,
    digest_of_public,
    order_dependence,
    public_rows,
    published_questions,
)
from tests.docs.pages import ROOT, blocks
from tests.sealing.made import KEY, key, numbered, original, seal_of, some_originals, written


class OutOfBits(Exception):
    pass


def from_bits(bits: tuple[int, ...]) -> KeyedDraws:
    def given():
        yield from bits
        raise OutOfBits

    draws = KeyedDraws(KEY, "options", b"")
    draws._bits = given()
    return draws


def counted(draw, length: int) -> Counter:
    """Count how often each value is drawn from all sequences of so many bits that suffice."""
    counts: Counter = Counter()
    for bits in product((0, 1), repeat=length):
        try:
            counts[draw(from_bits(bits))] += 1
        except OutOfBits:
            continue
    return counts


@pytest.mark.parametrize("n", range(1, 10))
def test_numbers_are_exactly_uniform_over_all_sequences_of_bits(n: int) -> None:
    counts = counted(lambda draws: draws.below(n), 8)
    assert sorted(counts) == list(range(n))
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_orders_are_exactly_uniform_over_all_sequences_of_bits(n: int) -> None:
    """Sequences of the first bits that suffice are enough: longer ones only add rejected starts, as many for each."""
    counts = counted(lambda draws: draws.order(n), 11)
    assert set(counts) == set(permutations(range(n)))
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize(
    ("other", "n"),
    [
        (lambda secret: KeyedDraws(secret, "options", b"two").order(3), 6),
        (lambda secret: KeyedDraws(secret, "wording", b"one").below(4), 4),
    ],
    ids=["another question", "another purpose"],
)
def test_draws_under_one_key_are_independent(other, n: int) -> None:
    pairs = Counter(
        (KeyedDraws(secret, "options", b"one").order(3), other(secret)) for secret in map(key, range(3_600))
    )
    assert len(pairs) == 6 * n
    assert chisquare(list(pairs.values())).pvalue > 0.001


def test_what_draws_depend_on_differs_by_what_is_a_wording_and_what_an_option() -> None:
    content = original("a", "cd", wordings=("b",)).content
    assert content == original("b", "dc", wordings=("a",)).content
    assert content != original("a", "bcd").content
    assert original("ab", "c").content != original("a", ["bc"]).content


# ---------------------------------------------------------------------- the published version


def rearranged(question: Original, by: Random) -> Original:
    """Return the same question, as an author who wrote its parts in another order would give it."""
    wordings, choices = [question.question, *question.wordings], list(question.choices)
    by.shuffle(wordings)
    if question.order != "kept":
        by.shuffle(choices)
    answers = tuple(choices.index(question.choices[place]) for place in question.answers)
    return replace(
        question, question=wordings[0], wordings=tuple(wordings[1:]), choices=tuple(choices), answers=answers
    )


@given(some_originals(), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_the_published_version_does_not_depend_on_the_order_in_which_the_author_wrote(originals, by) -> None:
    others = [rearranged(question, by) for question in originals]
    by.shuffle(others)
    assert published_questions(others, KEY) == published_questions(originals, KEY)


@given(some_originals())
@settings(max_examples=15)
def test_every_published_question_has_the_authors_texts_and_a_right_answer(originals: list[Original]) -> None:
    by_texts = {frozenset(question.wordings): question for question in published_questions(originals, KEY)}
    assert len(by_texts) == len(originals)
    for question in originals:
        published = by_texts[frozenset([question.question, *question.wordings])]
        _, *private = published.wordings
        assert private == sorted(private)  # so that they do not reveal the author's order
        assert sorted(published.options) == sorted(question.choices)
        assert {published.options[place] for place in published.equally_right} == {
            question.choices[place] for place in question.answers
        }
        assert published.answer in published.equally_right
        assert (published.order_drawn, published.subject) == (question.order == "drawn", question.subject)
        assert published.order_drawn or published.options == question.choices


def drawn(number: int) -> SealedQuestion:
    question = original("a", wordings=("b", "c"), choices=("right", "also", "x", "y"), answers=(0, 1))
    return published_questions([question], key(number))[0]


def test_order_wording_and_key_are_drawn_independently() -> None:
    counts = Counter(
        (question.wordings[0], question.options[question.answer], question.options.index("x"))
        for question in map(drawn, range(2_400))
    )
    assert len(counts) == 3 * 2 * 4
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_all_orders_of_four_questions_are_equally_frequent() -> None:
    counts = Counter(
        tuple(question.wordings[0] for question in published_questions(numbered(4), key(number)))
        for number in range(1_200)
    )
    assert len(counts) == 24
    assert chisquare(list(counts.values())).pvalue > 0.001


def test_a_question_is_found_by_its_published_options_and_wording_apart_from_white_space() -> None:
    seal = seal_of([original("What  is even?", wordings=("Name an even number",)), *numbered(3)])
    question = next(question for question in seal.questions if "2" in question.options)
    assert seal.find(Question("any", f" {question.wordings[0]}\n", question.options)) is question
    assert seal.find(Question("any", question.wordings[1], question.options)) is None
    assert seal.find(Question("any", question.wordings[0], question.options[::-1])) is None


def test_a_printed_seal_does_not_show_its_key() -> None:
    seal = seal_of(numbered(1))
    assert repr(KEY) not in repr(seal)
    assert KEY.hex() not in repr(seal)


# ---------------------------------------------------------------------- the commitment


def documented() -> dict[str, object]:
    """Return the names that the programs on the page for authors define."""
    names: dict[str, object] = {"__name__": "documented"}
    for block in blocks(ROOT / "docs" / "howto" / "seal" / "verify.md"):
        if block.language == "python":
            exec(block.text, names)
    return names


DOCUMENTED = documented()


@given(some_originals())
@settings(max_examples=15)
def test_the_documented_programs_compute_what_is_published(tmp_path_factory, originals) -> None:
    folder = tmp_path_factory.mktemp("private")
    originals = [*originals, original("Held out?", order="held out")]
    written(folder, originals)
    seal = seal_of(originals)
    assert DOCUMENTED["commitment"](folder) == seal.commitment
    without_subjects = [{**row, "subject": ""} for row in public_rows(seal.questions)]
    assert [{**row, "subject": ""} for row in DOCUMENTED["public_rows"](folder)] == without_subjects


def test_the_public_digest_is_of_the_rows_not_of_their_file() -> None:
    rows = public_rows(seal_of(numbered(3, subject="maths")).questions)
    assert digest_of_public(rows) == digest_of_public([dict(reversed(row.items())) for row in rows])
    assert digest_of_public(rows) != digest_of_public(rows[::-1])


# ---------------------------------------------------------------------- what depends on order

PLAIN = ("2", "3", "5", "7")


@pytest.mark.parametrize(
    ("wording", "option", "why"),
    [
        ("Which?", "All of the above", "refers to the others"),
        ("Which?", "None of these options", "refers to the others"),
        ("Which?", "Both A and C", "by letter"),
        ("Which?", "B only", "by letter"),
        ("Which?", "both b and c.", "by letter"),
        ("Which?", "a and b only", "by letter"),
        ("Which?", "Both A and B are correct; either one suffices.", "by letter"),
        ("Which?", "Option C is right", "by letter"),
        ("Which?", "The first two options", "by their place"),
        ("Which of options A and B is even?", "2", "the question says 'options A'"),
        ("Is choice (C) even?", "2", "the question says 'choice (C'"),
        ("Compare option 1 with the others", "2", "the question says 'option 1'"),
        ("Is the last option even?", "2", "the question says 'last option'"),
        ("选项A是什么", "2", "the question says '选项A'"),
        ("Ist Antwort B gerade?", "2", "the question says 'Antwort B'"),
    ],
)
def test_what_depends_on_order_is_named_with_the_reason(wording: str, option: str, why: str) -> None:
    assert why in (order_dependence(["Plain?", wording], [*PLAIN, option]) or "")


@pytest.mark.parametrize(
    ("wording", "option"),
    [
        ("Which vitamin do you need?", "Vitamin A"),
        ("Which option is even?", "2"),
        ("What is the answer a clerk gives?", "Both cats and dogs"),
        ("Which blood group is an option?", "A"),
        ("Which statements hold?", "I only"),
        ("Which statements hold?", "I and II"),
        ("Where is iron?", "Core"),
        ("Which set?", "a + b where a and b are rational"),
        ("A call option expires when?", "On the last day"),
    ],
)
def test_ordinary_questions_may_be_drawn(wording: str, option: str) -> None:
    assert order_dependence([wording], [*PLAIN, option]) is None
