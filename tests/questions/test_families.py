"""Copies, families and descriptions of questions, and questions found in the prompts of other tools."""

from __future__ import annotations

import random
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.questions.families import (
    GUARDED,
    N_OPTIONS,
    OPTION,
    SCRIPT,
    STEM,
    QuestionsInPrompts,
    describe_families,
    distinct,
    each_once,
    families,
    question_key,
    shared_texts,
    text_digest,
)
from lm_eval_leakage.records import Question, Shard

LONG = "The mill stood by the river for three hundred years, and every spring the water rose to its third step. " * 2


def question(stem: str, *options: str) -> Question:
    return Question(id=f"{stem} {options}", stem=stem, options=options)


@pytest.mark.parametrize(
    ("first", "other", "related"),
    [
        (question("Which?", "oak", "elm"), question("What?", "Elm ", "oak"), True),
        (question("Which?", "oak", "elm"), question("which ?", "ash", "fir"), False),
        (question("Which tree?", "oak", "elm"), question("which  TREE?", "ash", "fir"), True),
        (question(f"{LONG}How high?", "1", "2"), question(f"{LONG}How old?", "3", "4"), True),
        (question(f"How high? {LONG}", "1", "2"), question(f"How old? {LONG}", "3", "4"), True),
        (question("The mill is old. How high?", "1", "2"), question("The mill is old. Who?", "3", "4"), False),
        (question("", "1", "2"), question("", "3", "4"), False),
        (question("Which?", "oak", "elm"), question("What?", "oak", "elm", "ash"), False),
    ],
    ids=[
        "options",
        "neither",
        "stem",
        "passage before",
        "passage after",
        "short beginning",
        "no stem",
        "more options",
    ],
)
def test_questions_that_share_options_a_stem_or_a_passage_are_one_family(first, other, related) -> None:
    numbers = families([shared_texts(first), shared_texts(other)])
    assert (numbers[0] == numbers[1]) is related


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=3), max_size=12))
def test_families_are_the_connected_parts_of_what_is_shared(shared) -> None:
    numbers = families(shared)
    reached = [{place} for place in range(len(shared))]
    for _ in shared:  # by repeated merging, the slow way
        for start in range(len(shared)):
            for other in range(len(shared)):
                if any(set(shared[i]) & set(shared[j]) for i in reached[start] for j in reached[other]):
                    reached[start] = reached[start] | reached[other]
    assert numbers == [min(members) for members in reached]


def test_a_long_chain_is_one_family() -> None:
    links = [(str(n), str(n + 1)) for n in range(5_000)]
    random.Random(0).shuffle(links)
    assert set(families(links)) == {0}


CAFE = Question("q", "Où est le café de la Gare ?", ("à gauche", "à droite", "nulle part"))


def of(stem: str = CAFE.stem, *options: str) -> Question:
    return Question("another id", stem, options or CAFE.options)


COPIES = [
    of(CAFE.stem.upper()),
    of(f"  {CAFE.stem}\n".replace(" ", "\t ")),
    of(unicodedata.normalize("NFD", CAFE.stem)),
    of(CAFE.stem.replace("café", "ca\u200bfé")),
    of(CAFE.stem, "nulle part", "à gauche", "à droite"),
    of(CAFE.stem, *(unicodedata.normalize("NFD", option).title() for option in CAFE.options)),
    replace(CAFE, answer=1, subject="geography"),
]
OTHERS = [
    of("Où est la gare ?"),
    of(CAFE.stem, "à gauche", "à droite", "en haut"),
    of(CAFE.stem, "à gauche", "à droite"),
    of(CAFE.stem, "à gauche", "à droite", "nulle part", "nulle part"),
]


@pytest.mark.parametrize(
    ("other", "is_copy"), [*((question, True) for question in COPIES), *((question, False) for question in OTHERS)]
)
def test_a_question_that_reads_the_same_is_a_copy_and_another_is_not(other: Question, is_copy: bool) -> None:
    assert (question_key(other) == question_key(CAFE)) is is_copy
    assert distinct([CAFE, other, CAFE]) == [CAFE, *[other] * (not is_copy)]


def test_x2_and_x_squared_are_different_options() -> None:
    assert question_key(of("?", "x²", "y")) != question_key(of("?", "x2", "y"))


def test_a_shard_has_no_copies() -> None:
    assert question_key(Shard("s", "", ("a", "b"), members=("1", "2"))) == ""
    assert each_once(["", "", "a", "a"], str) == ["", "", "a"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_the_lowest_place_counts_and_the_order_stays(items: list[tuple[str, int]]) -> None:
    once = each_once(items, lambda item: item[0], lambda item: item[1])
    assert {name for name, _ in once} == {name for name, _ in items}
    assert all(place == min(p for name, p in items if name == kept) for kept, place in once)
    assert len(once) == len({name for name, _ in items})
    firsts = [items.index(item) for item in once]
    assert firsts == sorted(firsts)


PLAIN = Question("1", " Which metal is liquid? ", ("gold", "iron ", "mercury"))


def test_properties_are_lengths_numbers_guards_and_script() -> None:
    chinese = Question("2", "哪种金属是液体", ("汞", "Au"))
    description = describe_families([(PLAIN, False), (chinese, True)])
    assert description.properties == {
        STEM: (22.0, 7.0),
        OPTION: (5.0, 1.5),
        N_OPTIONS: (3.0, 2.0),
        GUARDED: (0.0, 1.0),
        SCRIPT: (0.0, pytest.approx(8 / 10)),
    }
    assert list(description.stems.values()) == [PLAIN.stem, chinese.stem]
    assert len(description) == 2


@pytest.mark.parametrize(
    ("stem", "options", "same"),
    [
        ("which metal is liquid", ("Gold", "iron", "mercury."), True),
        ("Which metal is liquid?", ("mercury", "gold", "iron"), True),
        ("Which metal is liquid?", ("gold", "iron", "silver"), False),
        ("Which metal is solid?", ("gold", "iron", "mercury"), False),
    ],
)
def test_a_digest_ignores_case_punctuation_white_space_and_the_order_of_options(stem, options, same) -> None:
    assert (text_digest(Question("x", stem, options)) == text_digest(PLAIN)) is same


def test_options_of_signs_alone_are_kept_apart() -> None:
    plus, minus = (Question("x", "Which sign?", (sign, "=")) for sign in ("+", "-"))
    assert text_digest(plus) != text_digest(minus)


TREES, PETS = ("oak", "elm"), ("cat", "dog")
KNOWN = QuestionsInPrompts(
    [
        ("Which one is tall?", TREES, "tall"),
        ("In a park. Which one is tall?", TREES, "tall in a park"),
        ("Which one barks?", PETS, "barks"),
        ("A story.\nIt is long. Who  sleeps?", PETS, "sleeps"),
        ("", TREES, "without a stem"),
        ("Price (in $)?", ("1", "2"), "price"),
    ]
)


@pytest.mark.parametrize(
    ("prompt", "options", "expected"),
    [
        ("Which one is tall?", TREES, "tall"),
        ("which one\nis  TALL?", (" Elm", "oak "), "tall"),
        ("Question: Which one is tall?\nAnswer:", TREES, "tall"),
        ("About trees.\n\nQuestion: Which one is tall?", TREES, "tall"),
        ("问题：Which one is tall?\n", TREES, "tall"),
        ("Question: In a park. Which one is tall?\nAnswer:", TREES, "tall in a park"),
        ("Question: A story. It is long.\nWho sleeps?", PETS, "sleeps"),
        ("Price (in $)?", ("2", "1"), "price"),
        ("Question: Which one is tall?\nAnswer: oak\n\nQuestion: Which one barks?\nAnswer:", PETS, "barks"),
        ("Which one is tall?\noak\nIn a park. Which one is tall?", TREES, "tall in a park"),
        ("In a park. Which one is tall?\noak\nWhich one is tall?", TREES, "tall"),
        ("Which one is tall?", PETS, None),
        ("Which one is tall?", (*TREES, "ash"), None),
        ("On a hill, which one is tall?", TREES, None),
        ("Which one is tall? Not the fir.", TREES, None),
        ("Price (in S)?", ("1", "2"), None),
        ("", TREES, None),
    ],
)
def test_a_question_is_found_in_any_wording_of_a_prompt_and_no_other_is_taken_for_it(
    prompt, options, expected
) -> None:
    assert KNOWN.find(prompt, options) == expected
