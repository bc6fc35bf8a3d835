"""A changed public file: every difference is named, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.records import Question, UntestableQuestion
from lm_eval_leakage.seal.folders import commitment_differences, commitment_record, differences
from tests.sealing.made import numbered, original, seal_of

SEAL = seal_of([*numbered(5, subject="maths"), original("One wording?", wordings=("Another wording?",))])
ROWS = [Question("", one.wordings[0], one.options, one.answer, subject=one.subject) for one in SEAL.questions]
WORDED = next(place for place, one in enumerate(SEAL.questions) if len(one.wordings) > 1)
AT = f"row {WORDED + 1}: "


def changed(**parts) -> list[str]:
    return differences(SEAL, [*ROWS[:WORDED], replace(ROWS[WORDED], **parts), *ROWS[WORDED + 1 :]])


OPTIONS, ANSWER = ROWS[WORDED].options, SEAL.questions[WORDED].answer
REVERSED = {"options": OPTIONS[::-1], "answer": len(OPTIONS) - 1 - ANSWER}
STEM, OTHER_STEM = SEAL.questions[WORDED].wordings


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"stem": f"{STEM} "}, f"the text of the question was changed; sealed as {STEM!r}"),
        ({"stem": "Something else?"}, "the text of the question was changed"),
        ({"stem": OTHER_STEM}, "it has a private wording"),
        (REVERSED, "the order of its options was changed"),
        ({"options": tuple(option.replace("3", "9") for option in OPTIONS)}, "its options were changed; sealed as ['"),
        ({"answer": (ANSWER + 1) % 4}, "the answer was changed; sealed as '2'"),
        ({"answer": None}, "the answer was changed"),
        ({"subject": "physics"}, "the subject was changed; sealed as ''"),
    ],
)
def test_one_change_is_named_once_with_its_row(parts, told) -> None:
    (sentence,) = changed(**parts)
    assert sentence.startswith(AT + told)


def test_missing_and_added_rows_are_named_and_the_others_have_not_moved() -> None:
    added = Question("", "New?", ("a", "b"), 0)
    assert differences(SEAL, ROWS[1:]) == [f"sealed question 1 is missing: {ROWS[0].stem!r}"]
    assert differences(SEAL, [added, *ROWS]) == [
        "row 1: it was added; no question of the seal has its text or its options"
    ]
    assert differences(SEAL, [*ROWS, ROWS[0]])[0].startswith("row 7: it was added")


def test_a_row_that_is_no_question_is_named_and_its_question_missing() -> None:
    found = differences(SEAL, [UntestableQuestion("it has no options"), *ROWS[1:]])
    assert found == ["row 1: it has no options", f"sealed question 1 is missing: {ROWS[0].stem!r}"]


def test_a_question_that_was_moved_is_named_alone() -> None:
    found = differences(SEAL, [*ROWS[1:], ROWS[0]])
    assert found == ["row 6: the order of questions was changed; sealed question 1 is here"]


@given(st.permutations(range(6)))
def test_another_order_of_questions_is_never_overlooked(order) -> None:
    found = differences(SEAL, [ROWS[place] for place in order])
    assert (found == []) == (list(order) == sorted(order))
    assert all("the order of questions was changed" in sentence for sentence in found)


def test_a_mirror_without_subjects_is_the_published_version() -> None:
    assert differences(SEAL, [replace(row, subject="") for row in ROWS]) == []


def test_a_commitment_that_says_something_else_is_named() -> None:
    record = commitment_record(SEAL)
    assert commitment_differences(SEAL, record) == []
    for name in record:
        (sentence,) = commitment_differences(SEAL, {**record, name: "0"})
        assert sentence.startswith(f"commitment.json says {name} '0', and it is {record[name]!r}")
    assert len(commitment_differences(SEAL, {})) == len(record)
