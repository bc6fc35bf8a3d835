from __future__ import annotations

import math

import pytest

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.records import UntestableQuestion

OPTIONS = ("red", "green", "blue", "grey")
LAYOUTS = {
    "cais/mmlu": {"question": "Q?", "subject": "art", "choices": list(OPTIONS), "answer": 2},
    "a local file with a letter": {"question": "Q?", "choices": list(OPTIONS), "answer": "C"},
    "ai2_arc": {
        "id": "7",
        "question": "Q?",
        "choices": {"text": list(OPTIONS), "label": ["A", "B", "C", "D"]},
        "answerKey": "C",
    },
    "ai2_arc with digits as labels": {
        "question": "Q?",
        "choices": {"text": list(OPTIONS), "label": ["1", "2", "3", "4"]},
        "answerKey": "3",
    },
    "openbookqa": {
        "question_stem": "Q?",
        "choices": {"text": list(OPTIONS), "label": ["A", "B", "C", "D"]},
        "answerKey": "C",
    },
    "ceval": {"question": "Q?", **dict(zip("ABCD", OPTIONS, strict=True)), "answer": "C"},
    "cmmlu": {"Question": "Q?", **dict(zip("ABCD", OPTIONS, strict=True)), "Answer": "C"},
    "CMB": {
        "question": "Q?",
        "option": dict(zip("ABCDEF", (*OPTIONS, "", ""), strict=True)),
        "answer": "C",
    },
    "math_qa": {"Problem": "Q?", "options": "a ) red , b ) green , c ) blue , d ) grey", "correct": "c"},
    "hellaswag after process_docs": {"query": "Q?", "choices": list(OPTIONS), "gold": 2},
}


@pytest.mark.parametrize("doc", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_known_layouts_hold_the_same_question(doc: dict) -> None:
    question = question_from_doc(doc)
    assert (question.stem, question.options, question.answer) == ("Q?", OPTIONS, 2)


def test_math_qa_options_may_hold_commas_and_spaces() -> None:
    doc = {
        "Problem": "Q?",
        "options": "a ) 5,600 , b ) 1 , 2 , c ) none , d ) rs . 2 , e ) 7 a ) b",
        "correct": "e",
    }
    assert question_from_doc(doc).options == ("5,600", "1 , 2", "none", "rs . 2", "7 a ) b")


def test_math_qa_options_out_of_order_are_refused() -> None:
    with pytest.raises(UntestableQuestion, match="'a \\) x , c \\) y'"):
        question_from_doc({"Problem": "Q?", "options": "a ) x , c ) y", "correct": "a"})


def test_the_id_is_the_benchmarks_own_where_there_is_one() -> None:
    assert question_from_doc(LAYOUTS["ai2_arc"]).id == "7"


def test_the_id_without_one_follows_from_the_content() -> None:
    first = question_from_doc({"question": "Q?", "choices": ["a", "b"], "answer": 0})
    same = question_from_doc({"question": " Q?", "choices": ["a", "b"], "answer": 1, "subject": "x"})
    other = question_from_doc({"question": "Q?", "choices": ["a", "b "], "answer": 0})
    assert first.id == same.id != other.id


@pytest.mark.parametrize("answer", [None, "", "Z", 9, -1, True])
def test_an_answer_that_names_no_option_is_unknown(answer: object) -> None:
    assert question_from_doc({"question": "Q?", "choices": ["a", "b"], "answer": answer}).answer is None


def test_numbers_as_options_are_read_as_text() -> None:
    assert question_from_doc({"question": "Q?", "choices": [1, 2.5], "answer": 0}).options == ("1", "2.5")


BAD = {
    "missing fields": ({"text": "Q?"}, r"\['text'\] do not form a question in a known layout"),
    "empty question": ({"question": " ", "choices": ["a", "b"]}, "question is empty"),
    "question that is None": ({"question": None, "choices": ["a", "b"]}, "question is None; it must be text"),
    "no options": ({"question": "Q?", "choices": []}, "no options; at least 2"),
    "options that are None": ({"question": "Q?", "choices": None}, "options are None"),
    "one text in the place of options": ({"question": "Q?", "choices": "abcd"}, "options are 'abcd'"),
    "empty option": ({"question": "Q?", "choices": ["a", ""]}, "option B is empty"),
    "option that is NaN": (
        {"question": "Q?", "choices": ["a", math.nan]},
        "option B is nan; it must be text",
    ),
    "CMB without any option": ({"question": "Q?", "option": {"A": "", "B": None}}, "no options"),
    "a number of 5,000 digits": (
        {"question": "Q?", "choices": ["a", 10**5000]},
        "option B is <a number of about 5,00",
    ),
    "10,000 options": (
        {"question": "Q?", "choices": ["a"] * 10_000},
        "it has 10,000 options; a question has at most 100",
    ),
    "an option of 100,000 characters": ({"question": "Q?", "choices": ["a", "x" * 10**5]}, "has 100,000 characters"),
    "labels of 5,000 digits": (
        {"question": "Q?", "choices": {"text": ["a"], "label": [10**5000]}, "answerKey": "A"},
        "cannot be read",
    ),
    "a layout's field of another type": ({"question": "Q?", "option": None}, "cannot be read"),
}


@pytest.mark.parametrize(("doc", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_refused_with_its_reason(doc: dict, reason: str) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        question_from_doc(doc)


@pytest.mark.parametrize("own", [10**5000, "", None], ids=["5,000 digits", "empty", "none"])
def test_an_id_that_cannot_be_written_is_that_of_the_content(own: object) -> None:
    doc = {"question": "Q?", "choices": ["a", "b"], "answer": 0}
    assert question_from_doc(doc | {"id": own}).id == question_from_doc(doc).id
