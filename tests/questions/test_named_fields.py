"""Rows of other layouts, whose fields the user names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.questions.named_fields import fields_named, with_named_fields

OPTIONS = ["red", "green", "blue"]
ROW = {"text": "Which?", "alternatives": OPTIONS, "key": "C", "id": "7", "topic": "art", "answer": "It is blue."}
READ = {
    "question=text,options=alternatives,answer=key": ROW,
    " question = text , options = alternatives , answer = key ": ROW,
    "options=alternatives,answer=key": {"question": "Which?", **ROW},
    "question=text,answer=key": {**ROW, "choices": OPTIONS, "query": "Colours"},
    "question=text": {"id": "7", "question": "Colours", "text": "Which?", "choices": OPTIONS, "answer": "C"},
    "answer=key": {"input": "Which?", "choices": OPTIONS, "target": "A", "key": "C", "id": "7"},
    "options=alternatives": {"question": "Which?", "alternatives": OPTIONS, "options": "some", "gold": 2, "id": "7"},
    "question=text,options=a+b+c,answer=c": {"text": "Which?", "a": "red", "b": "green", "c": "blue", "id": "7"},
    "question=text,options=wrong+right,answer=right": {
        "text": "Which?",
        "right": "blue",
        "wrong": ["red", "green"],
        "id": "7",
    },
    "question=text,options=a+b": {"text": "Which?", "a+b": OPTIONS, "answer": "C", "id": "7"},
    "question=text,options=written": {"text": "Which?", "written": "['red', 'green', 'blue']", "label": 2, "id": "7"},
}


@pytest.mark.parametrize(("fields", "row"), READ.items(), ids=READ.keys())
def test_parts_of_a_question_are_read_from_the_fields_that_are_named(fields: str, row: Mapping[str, Any]) -> None:
    (doc,) = with_named_fields([row], fields_named(fields))
    question = question_from_doc(doc)
    assert (question.id, question.stem, question.options, question.answer) == ("7", "Which?", tuple(OPTIONS), 2)


def test_fields_that_hold_no_part_of_a_question_are_kept() -> None:
    (doc,) = with_named_fields([ROW | {"wordings": ["What?"]}], fields_named("question=text,options=alternatives"))
    assert doc == {
        "id": "7",
        "topic": "art",
        "key": "C",
        "wordings": ["What?"],
        "question": "Which?",
        "choices": OPTIONS,
        "answer": "It is blue.",
    }


def test_labels_of_a_row_stay_with_its_options_where_its_key_is_named() -> None:
    row = {"question": "Which?", "choices": {"text": OPTIONS, "label": ["1", "2", "3"]}, "key": "3"}
    (doc,) = with_named_fields([row], {"answer": "key"})
    assert question_from_doc(doc).answer == 2


def test_a_field_that_only_some_rows_have_is_missing_in_the_others() -> None:
    rows = [{"q": "Which?", "a": "red", "b": "blue", "c": "pink"}, {"q": "Which?", "a": "red", "b": "blue"}]
    docs = with_named_fields(rows, fields_named({"question": "q", "options": ["a", "b", "c"]}))
    assert [doc["choices"] for doc in docs] == [["red", "blue", "pink"], ["red", "blue"]]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ("question=title", r"rows have no field 'title', which fields gives as question; name one of \['text', "),
        ("options=alternatives+others", "rows have no field 'others', which fields gives as options; name one of"),
        ("answer=solution", "rows have no field 'solution', which fields gives as answer; name one of"),
    ],
)
def test_a_field_that_no_row_has_is_refused_with_those_there_are(fields: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        with_named_fields([ROW], fields_named(fields))


@pytest.mark.parametrize(
    "given", ["", "text", "text=question", "choices=alternatives", ["question=text"], 3, "question"]
)
def test_what_names_no_part_is_refused_with_the_parts_there_are(given: object) -> None:
    with pytest.raises(
        ValueError, match=r"fields (is|has) .*; (write PART=FIELD .*: question, options, answer|give the)"
    ):
        fields_named(given)


@pytest.mark.parametrize("field", ["", None, 3, ["a", "b"]])
def test_a_question_has_one_field(field: object) -> None:
    with pytest.raises(ValueError, match="fields has .* as question; give the name of a field"):
        fields_named({"question": field})
