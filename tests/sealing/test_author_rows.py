"""An author's rows: what is sealed, what is left out, and what stops."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

import pytest

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.seal.author_rows import ExaminedRows, OrderRule, examine_rows
from tests.sealing.made import original


def row(**fields: Any) -> dict[str, Any]:
    return {"question": "Which is even?", "choices": ["2", "3", "5", "7"], "answer": 0} | fields


def read(*rows: dict[str, Any], rule: OrderRule = "keep") -> ExaminedRows:
    def reading(doc):
        try:
            return question_from_doc(doc)
        except UntestableQuestion as error:
            return error

    return examine_rows([(doc, reading(doc)) for doc in rows], rule)


def test_a_row_becomes_a_question_with_its_wordings() -> None:
    examined_rows = read(row(wordings=["Name the even one."], subject="maths"))
    assert examined_rows == ExaminedRows((original(wordings=("Name the even one.",), subject="maths"),), (), ())


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"answer": "C"}, (2,)),
        ({"answer": ["C", 0]}, (2, 0)),
        ({"answers": [1, "D", 1]}, (1, 3)),
        ({"answers": None, "answer": 3}, (3,)),
    ],
)
def test_answers_are_indices_letters_or_lists_of_them(fields, answers) -> None:
    assert read(row(**fields)).originals[0].answers == answers


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"choices": []}, "no options"),
        ({"choices": ["2"]}, "1 option(s); give it 2 to 26"),
        ({"choices": [f"{letter}!" for letter in ascii_uppercase] + ["!"]}, "27 option(s)"),
        ({"choices": ["2", "3", " 2"]}, "options A and C are equal; change or remove"),
        ({"choices": ["caf\u00e9", "3", "cafe\u0301"]}, "options A and C are equal"),  # NFC and NFD
        ({"choices": ["2", "3", "2\u200b"]}, "options A and C are equal"),  # a space of no width
        ({"choices": ["\ufeffa b", "3", "a\u00a0b"]}, "options A and C are equal"),
        ({"question": " "}, "question is empty"),
        ({"answer": "E"}, "right option is not known (answer: 'E'); name it"),
        ({"answer": []}, "right option is not known"),
        ({"answer": ["A", 4]}, "right option is not known"),
        ({"answer": None}, "right option is not known"),
    ],
)
def test_an_unusable_row_is_left_out_with_its_number_and_the_reason(fields, why) -> None:
    result = read(row(question="Another?"), row(**fields))
    assert [number for number, _ in result.unusable] == [2]
    assert why in result.unusable[0][1]
    assert len(result.originals) == 1


def test_options_that_differ_in_case_or_by_a_superscript_are_different_options() -> None:
    result = read(row(choices=["Aa", "aa", "AA"]), row(question="Which is larger?", choices=["x²", "x2", "½", "1⁄2"]))
    assert len(result.originals) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"choices": ["7", "5", "3", "2"], "answer": 3},
        {"question": "Which  is even? "},
        {"question": "Which is ev\u200ben?"},
        {"choices": ["2\u2060", "3", "5", "7"]},
        {"question": "Name the even one.", "wordings": ["Which is even?"]},
        {"answer": 1},
        {"subject": "maths"},
    ],
)
def test_the_same_question_twice_is_left_out_the_second_time(fields) -> None:
    result = read(row(), row(**fields))
    assert [(number, why.split(";")[0]) for number, why in result.unusable] == [(2, "it asks the same as row 1")]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        *(
            (
                {"wordings": wordings},
                "wordings is .*(Oth|3|Whi).*; give a list of other texts of the question, none empty or twice",
            )
            for wordings in ("Other?", ["Other?", " "], [3], ["Other?", "Other? "], ["Which is even?"])
        ),
        ({"seal": "yes"}, "seal is 'yes'; it must be one of: permute, keep, hold_out"),
        ({"seal": ["keep"]}, "seal is \\['keep'\\]; it must be one of"),
    ],
)
def test_a_wrong_field_for_sealing_stops_with_the_row(fields, why) -> None:
    with pytest.raises(ValueError, match=f"row 2: {why}.*fix or remove"):
        read(row(question="Another?"), row(**fields))


DEPENDENT = row(choices=["2", "3", "Both A and B"])


@pytest.mark.parametrize(("rule", "order"), [("keep", "kept"), ("hold_out", "held out")])
def test_options_that_depend_on_their_order_are_never_drawn_and_named(rule: OrderRule, order: str) -> None:
    rows = (row(question="Another?"), DEPENDENT)
    result = read(*rows, rule=rule)
    assert [question.order for question in result.originals] == ["drawn", order]
    assert [(number, "by letter" in reason) for number, reason in result.dependent] == [(2, True)]
    with pytest.raises(ValueError, match="row 2: option 'Both A and B' names options by letter; reword"):
        read(*rows, rule="refuse")


@pytest.mark.parametrize(("word", "order"), [("permute", "drawn"), ("keep", "kept"), ("hold_out", "held out")])
@pytest.mark.parametrize("fields", [DEPENDENT, row()])
def test_the_authors_word_decides(word: str, order: str, fields) -> None:
    result = read(row(question="Another?"), fields | {"seal": word}, rule="refuse")
    assert (result.originals[1].order, result.dependent) == (order, ())


@pytest.mark.parametrize("fields", [{"answer": "X"}, {"seal": "hold_out"}])
def test_a_seal_without_a_question_is_refused(fields) -> None:
    with pytest.raises(ValueError, match="no question is left to be published"):
        read(row(**fields))
