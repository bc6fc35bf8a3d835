"""Near copies: which questions are, that all of them are found, and that only they are linked."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from lm_eval_leakage.questions.families import families, shared_texts
from lm_eval_leakage.questions.near_copies import is_word_pairs, near_copies, word_pairs
from lm_eval_leakage.records import Question


def question(stem: str, *options: str) -> Question:
    return Question(id=f"{stem} {options}", stem=stem, options=options)


METAL = "Which of these metals is liquid at room temperature?"
METALS = ("gold", "mercury", "a heavy alloy", "iron ore")
SUGAR, UNITS = "How much sugar does the cake need?", ("10 grams", "20 grams", "30 grams", "40 grams")
RIVER, RIVERS = "中国最长的河流是哪一条？", ("黄河", "长江", "珠江", "辽河")
NEAR = {
    "number before the stem, full stops": question(f"2. {METAL}", "gold.", "mercury.", "a heavy alloy.", "iron ore."),
    "articles": question(
        "Which of the metals is liquid at a room temperature?", *METALS[:2], "heavy alloy", "iron ore"
    ),
    "capitals and quotes": question(METAL.upper(), "“gold”", "Mercury", "A Heavy Alloy", "Iron Ore"),
    "labels in another order": question(METAL, "(A) iron ore", "(B) gold", "(C) mercury", "(D) a heavy alloy"),
    "hyphens, white space, an accent": question(
        METAL.replace("room ", "room-"), "göld", "mercury", "a  heavy alloy", "iron-ore"
    ),
    "a word with another spelling": question(METAL.replace("metals", "mettals"), *METALS[:3], "iron ores"),
    "one option is another": question(METAL, *METALS[:3], "tin"),
    "an example number at the end": question(f"{METAL} (Question 17)", "gold!", *METALS[1:]),
}
OTHERS = {
    "other options": question(METAL, "lead", "bronze", "zinc sheet", "cobalt blue"),
    "another stem": question("What do jewellers melt for rings?", "gold!", *METALS[1:]),
    "two options are others": question(METAL, "zinc", "tin", *METALS[:2]),
}


def are_related(first: Question, other: Question) -> bool:
    return families([shared_texts(first), shared_texts(other)]) == [0, 0]


@pytest.mark.parametrize("other", NEAR.values(), ids=NEAR)
def test_questions_that_differ_in_little_are_one_family(other: Question) -> None:
    stem = question(METAL, *METALS)
    assert are_related(stem, other)
    assert are_related(other, stem)


@pytest.mark.parametrize("other", [question("Another stem entirely?", *METALS[:2], "tin", "lead"), *OTHERS.values()])
def test_other_stems_or_options_make_another_question(other: Question) -> None:
    first = question(f"1. {METAL}", *METALS)  # with the same stem it would be one family
    assert not are_related(first, other)


@pytest.mark.parametrize(
    ("first", "other", "related"),
    [
        (question(SUGAR, *UNITS), question(SUGAR.replace("cake", "bread"), *UNITS[:3], "50 grams"), False),
        (question(SUGAR, *UNITS), question(f"Q: {SUGAR}", "10 gram", *UNITS[1:]), True),
        (question(SUGAR, "1,000 g", "200 g"), question(f"1) {SUGAR}", "1000 g.", "200 g."), True),
        (question("What is 17 times 23?", "391", "381"), question("What is 12 times 11?", "132", "142"), False),
        (question("17 * 23 = ?", "391", "381"), question("17 * 24 = ?", "408", "418"), False),
        (question("Which sign?", "+", "-"), question("Which sign", "*", "/"), False),
        (question("12", "oak", "elm"), question("13", "oak.", "elm."), False),
    ],
)
def test_numbers_in_options_count_and_those_in_stems_do_not(first: Question, other: Question, related: bool) -> None:
    assert are_related(first, other) is related


@pytest.mark.parametrize(
    ("first", "other", "related"),
    [
        (question(RIVER, *RIVERS), question("3、中国最长的河流是哪条", "黄河。", "长江。", "珠江。", "辽河。"), True),
        (question(RIVER, *RIVERS), question("中国最高的山峰是哪一座？", "泰山", "黄山", "华山", "珠峰"), False),
        (
            question("แม่น้ำที่ยาวที่สุดคือข้อใด", "เจ้าพระยา", "แม่โขง"),
            question("แม่น้ำที่ยาวที่สุดคือข้อใด?", "เจ้าพระยา.", "แม่โขง."),
            True,
        ),
        (
            question("ما أطول نهر في العالم؟", "النيل", "دجلة"),
            question("ما أَطْوَلُ نهر في العالم", "النيل.", "دجلة."),
            True,
        ),
        (question("सबसे लंबी नदी कौन सी है?", "गंगा", "यमुना"), question("1. सबसे लंबी नदी कौन सी है", "गंगा.", "यमुना."), True),
        (question("सबसे लंबी नदी कौन सी है?", "गंगा", "यमुना"), question("सबसे ऊँचा पर्वत कौन सा है?", "नंदा", "त्रिशूल"), False),
    ],
)
def test_scripts_with_and_without_spaces_are_compared(first: Question, other: Question, related: bool) -> None:
    assert are_related(first, other) is related


WORDS = ("oak", "elm", "ash", "fir")
TEXTS = some.lists(some.sampled_from(WORDS), min_size=1, max_size=5)


def pairs_of(words: Sequence[str]) -> set[tuple[str, str]]:
    return set(zip(["", *words], words, strict=False))


def is_half(pairs: set, other: set) -> bool:
    return 2 * len(pairs & other) >= len(pairs | other)


@given(some.lists(some.tuples(TEXTS, some.lists(TEXTS, min_size=2, max_size=2)), max_size=12))
def test_exactly_those_that_share_half_of_their_pairs_of_words_are_linked(texts: list) -> None:
    """The expected links come from comparing all questions with all others."""
    questions = [question(" ".join(stem), *map(" ".join, options)) for stem, options in texts]
    stems = [pairs_of(stem) for stem, _ in texts]
    blocks = [set().union(*map(pairs_of, options)) for _, options in texts]
    expected = {
        (place, other)
        for place in range(len(texts))
        for other in range(place)
        if is_half(stems[place], stems[other]) and is_half(blocks[place], blocks[other])
    }
    digests = [word_pairs(text.stem, text.options) for text in questions]
    assert set(near_copies(digests, lambda text, other: False)) == expected


def test_thousands_of_near_copies_are_one_family() -> None:
    rng = random.Random(0)
    letters = [f"{letter}{other}" for letter in "bcdfg" for other in "aeiou"]
    varied = [
        question(
            f"Which of all the many trees that grow near a cold lake is {rng.choice(letters)}",
            *(f"{tree} {rng.choice(letters)} tree of the lake" for tree in WORDS),
        )
        for _ in range(3_000)
    ]
    assert set(families([shared_texts(letter) for letter in varied])) == {0}


@pytest.mark.parametrize("damaged", [".", "..", "AAA..", "AAAAAAAA", "AAAA.BBBB", "äAAA.BBBB.", "AAAA.BBBB.CCCCDDDD"])
def test_a_damaged_digest_links_nothing_but_its_copies(damaged: str) -> None:
    whole = word_pairs(METAL, METALS)
    assert is_word_pairs(whole)
    assert not is_word_pairs(damaged)
    assert families([[whole], [damaged], [damaged]]) == [0, 1, 1]
