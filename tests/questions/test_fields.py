"""Rows of known schemas, and how a file's keys name the right options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from lm_eval_leakage.questions.fields import BY_CHANCE, question_from_doc, read_keys, right_options
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
    "a text for each label": {"question": "Q?", "choices": dict(zip("ABCD", OPTIONS, strict=True)), "answer": "C"},
    "a text for each label, in another order": {
        "question": "Q?",
        "options": dict(reversed(list(zip("abcd", OPTIONS, strict=True)))),
        "answer": "c",
    },
    "a text for each number": {"question": "Q?", "options": dict(zip("1234", OPTIONS, strict=True)), "answer": "3"},
    "ai2_arc in its own files": {
        "id": "7",
        "question": {
            "stem": "Q?",
            "choices": [{"text": text, "label": label} for label, text in zip("ABCD", OPTIONS, strict=True)],
        },
        "answerKey": "C",
    },
    "records of text and mark": {
        "question": "Q?",
        "choices": [{"text": text, "label": int(text == "blue")} for text in OPTIONS],
    },
    "inspect_ai": {"input": "Q?", "choices": list(OPTIONS), "target": "C"},
    "inspect_ai with messages": {
        "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}],
        "choices": list(OPTIONS),
        "target": ["C"],
    },
    "inspect_ai with parts of a message": {
        "input": [{"role": "user", "content": [{"type": "text", "text": "Q?"}]}],
        "choices": list(OPTIONS),
        "target": "C",
    },
    "OpenAI evals": {
        "input": [
            {"role": "system", "content": "The following are questions about colours."},
            {"role": "user", "content": "Q?\nA) red\nB) green\nC) blue\nD) grey\nAnswer:"},
        ],
        "ideal": "C",
    },
    "OpenAI evals with the options in a list": {
        "input": [{"role": "user", "content": "Q?"}],
        "choices": list(OPTIONS),
        "ideal": ["blue"],
    },
    "columns of options": {
        "question": "Q?",
        **{f"option{n}": text for n, text in enumerate(OPTIONS, 1)},
        "answer": "C",
    },
    "columns of options with letters": {
        "prompt": "Q?",
        **{f"Choice_{letter}": text for letter, text in zip("abcd", OPTIONS, strict=True)},
        "answer": "C",
    },
    "more columns than the question has options": {
        "question": "Q?",
        **dict(zip("ABCDEFG", (*OPTIONS, None, "", math.nan), strict=True)),
        "answer": "C",
    },
}


@pytest.mark.parametrize("doc", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_known_layouts_hold_the_same_question(doc: dict) -> None:
    question = question_from_doc(doc)
    assert (question.stem, question.options, question.answer) == ("Q?", OPTIONS, 2)


@pytest.mark.parametrize("n", range(2, 27))
@pytest.mark.parametrize("names", [ascii_uppercase, [f"option {number}" for number in range(26)]])
def test_a_question_has_as_many_options_as_columns(names: Sequence[str], n: int) -> None:
    texts = [f"text {number}" for number in range(n)]
    doc = {"question": "Q?", "explanation": "", **dict(zip(names[:n], texts, strict=True)), "answer": "B"}
    assert question_from_doc(doc).options == tuple(texts)
    assert read_keys([doc]).reading == "letters"


def test_columns_of_indices_from_1_are_read_with_the_fifth_option() -> None:
    rows = [{"question": f"Q{n}?", **dict(zip("ABCDE", COLOURS, strict=True)), "answer": n + 1} for n in range(5)]
    assert texts_of_right_options(rows) == list(COLOURS)


@pytest.mark.parametrize("empty", ["", None, math.nan])
def test_an_option_that_is_missing_before_others_is_refused(empty: object) -> None:
    with pytest.raises(UntestableQuestion, match="option B is"):
        question_from_doc({"question": "Q?", "A": "red", "B": empty, "C": "blue", "answer": "A"})


def test_options_that_a_message_has_in_several_lines_end_with_an_empty_line() -> None:
    shown = "Which prints 2?\n\n(A) print(\n  1)\n(B) print(\n  2)\n\nAnswer with a letter."
    question = question_from_doc({"input": [{"role": "user", "content": shown}], "ideal": "B"})
    assert (question.stem, question.options) == ("Which prints 2?", ("print(\n  1)", "print(\n  2)"))


def test_the_last_list_of_options_in_a_message_is_the_questions_own() -> None:
    shown = "Which?\nA. one\nB. two\nAnswer: A\n\nWhich other?\nA. three\nB. four\nC. five\nAnswer:"
    assert question_from_doc({"input": shown, "ideal": "C"}).options == ("three", "four", "five")


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
    "missing fields": ({"text": "Q?"}, r"\['text'\] are not those of a question"),
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
    "10,000 options": (
        {"question": "Q?", "choices": ["a"] * 10_000},
        "it has 10,000 options; a question has at most 100",
    ),
    "an option of 100,000 characters": ({"question": "Q?", "choices": ["a", "x" * 10**5]}, "has 100,000 characters"),
    "a layout's field of another type": ({"question": "Q?", "options": {"text": ["a"], "label": 3}}, "cannot be read"),
    "labels with a gap": ({"question": "Q?", "options": {"A": "a", "C": "c"}}, "have a text for each label from A on"),
    "a message without options": (
        {"input": [{"role": "user", "content": "Q?"}], "ideal": "B"},
        "input shows no options in lines that begin with A, B, ...; give them as a list with the name choices",
    ),
    "no message": ({"input": None, "ideal": "B"}, "input is None; it must be a text or a list of messages"),
}


@pytest.mark.parametrize(("doc", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_is_refused_with_its_reason(doc: dict, reason: str) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        question_from_doc(doc)


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_id_is_that_of_the_content(empty: object) -> None:
    doc = {"question": "Q?", "choices": ["a", "b"], "answer": 0}
    assert question_from_doc(doc | {"id": empty}).id == question_from_doc(doc).id


COLOURS = ("red", "green", "blue", "grey", "pink")
ENCODINGS = {
    "capital letters": lambda options, place: ascii_uppercase[place],
    "small letters in brackets": lambda options, place: f"({ascii_lowercase[place]})",
    "indices from 0": lambda options, place: place,
    "indices from 1": lambda options, place: place + 1,
    "digits from 0": lambda options, place: str(place),
    "digits from 1": lambda options, place: f" {place + 1}",
    "numbers of a table with gaps": lambda options, place: float(place),
    "texts": lambda options, place: options[place],
    "texts with other white space": lambda options, place: f" {options[place]}\n",
}


def rows_with(places: list[int], n_options: int = 4, encoding: str = "indices from 0") -> list[dict[str, Any]]:
    rows = []
    for row, place in enumerate(places):
        options = [COLOURS[(row + shift) % len(COLOURS)] for shift in range(n_options)]
        rows.append({"question": f"Q{row}?", "choices": options, "answer": ENCODINGS[encoding](options, place)})
    return rows


def texts_of_right_options(rows: list[dict[str, Any]]) -> list[str | None]:
    changed = read_keys(rows).changed
    questions = [question_from_doc(row | changed.get(place, {})) for place, row in enumerate(rows)]
    return [None if question.answer is None else question.options[question.answer] for question in questions]


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(drawn=some.lists(some.integers(0, 3), max_size=30))
def test_every_encoding_names_the_same_options(encoding: str, drawn: list[int]) -> None:
    places = [0, *drawn, 3]  # so that only one reading of indices is in range
    expected = [row["choices"][place] for row, place in zip(rows_with(places), places, strict=True)]
    assert texts_of_right_options(rows_with(places, encoding=encoding)) == expected
    assert read_keys(rows_with(places, encoding=encoding)).doubt == ""


@pytest.mark.parametrize("withheld", [None, "", -1, float("nan"), []], ids=str)
def test_rows_without_a_key_leave_the_others_as_they_are(withheld: object) -> None:
    rows = rows_with([0, 3, 2], encoding="texts")
    rows[1]["answer"] = withheld
    assert texts_of_right_options(rows) == ["red", None, "pink"]
    del rows[1]["answer"]
    assert texts_of_right_options(rows) == ["red", None, "pink"]
    assert read_keys([rows[1]]).reading is None


def test_rows_that_are_no_questions_have_no_say() -> None:
    assert texts_of_right_options(rows_with([0, 3])) == ["red", "pink"]
    for options in ([], ["one"]):
        rows = [{"question": "Q?", "choices": options, "answer": 9}, *rows_with([0, 3])]
        assert read_keys(rows).reading == "indices from 0"


# ---------------------------------------------------------------------- no reading


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([0, 1, 2, 7, 3], r"are indices from 0, but row 4 has 7 \(of 4 options\); write each as its letter"),
        ([8, 9, 8, 9], r"in one way: row 1 has 8 .*, row 2 has 9 .*, row 3 has 8 .* and 1 more; write"),
        ([0, 4, 1], "row 2 has 4"),  # indices from 0 and from 1 in one file
    ],
)
def test_keys_out_of_range_are_named_up_to_three(places: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_keys(rows_with(places))


@pytest.mark.parametrize("other", ["texts", "indices from 0", "indices from 1"])
def test_mixed_keys_are_refused(other: str) -> None:
    rows = [*rows_with([0, 3, 1], encoding="capital letters"), *rows_with([0, 3, 2], encoding=other)[1:]]
    with pytest.raises(ValueError, match=r"those of 3 of 5 rows are letters, but row 4 has .*, row 5 has "):
        read_keys(rows)


@pytest.mark.parametrize("key", ["yellow", "E", True, {"a": 1}, 1.5, "100000"], ids=str)
def test_a_key_that_names_no_option_is_refused(key: object) -> None:
    rows = rows_with([0, 3, 1], encoding="capital letters")
    rows[1]["answer"] = key
    with pytest.raises(ValueError, match="right answers cannot be read in one way: .*row 2 has"):
        read_keys(rows)


# ---------------------------------------------------------------------- several readings


def test_many_indices_that_are_never_first_or_last_are_refused_with_what_they_could_mean() -> None:
    with pytest.raises(ValueError, match="from 0 and indices from 1, which mean different options") as error:
        read_keys(rows_with([1, 2] * 10))
    assert "row 1 has 1: 'green' by indices from 0, 'red' by indices from 1; row 2 has 2" in str(error.value)
    assert str(error.value).endswith("; write each as its letter, or as the text of the option")


def test_few_such_rows_are_read_as_documented_and_it_is_said() -> None:
    """Of 16 questions whose right answers are drawn, none is the first with probability .75**16 = .010002."""
    keys = read_keys(rows_with([1, 2] * 8))
    assert 0.75**17 < BY_CHANCE < 0.75**16
    assert (keys.reading, keys.changed) == ("indices from 0", {})
    assert keys.doubt.startswith(
        "right answers are read as indices from 0, as documented, but could be indices from 1"
    )
    with pytest.raises(ValueError, match="which mean different options"):
        read_keys(rows_with([1, 2] * 8 + [1]))


def test_digits_in_quotes_are_not_documented_and_few_are_refused_too() -> None:
    with pytest.raises(ValueError, match="indices from 0 and indices from 1"):
        read_keys(rows_with([1, 2], encoding="digits from 0"))


def test_numbers_as_options_can_be_meant_by_index_and_by_text() -> None:
    rows = [{"question": f"{n} + 0?", "choices": ["3", "2", "1", "0"], "answer": n} for n in range(4)] * 5
    with pytest.raises(ValueError, match=r"row 1 has 0: '3' by indices from 0, '0' by texts of options"):
        read_keys(rows)


def test_readings_that_name_the_same_options_are_one() -> None:
    rows = [{"question": f"{n}?", "choices": ["A", "B", "C", "D"], "answer": "ABCD"[n % 4]} for n in range(40)]
    assert (read_keys(rows).reading, read_keys(rows).doubt) == ("letters", "")


def test_equal_options_are_equally_right() -> None:
    rows = [{"question": "Q?", "choices": ["red", "blue", "blue"], "answer": "blue"}]
    assert texts_of_right_options(rows) == ["blue"]


# ---------------------------------------------------------------------- fields of known data sets


def test_the_labels_of_a_row_leave_no_doubt() -> None:
    choices = {"text": ["red", "blue", "grey"], "label": ["1", "2", "3"]}
    rows = [{"question": f"Q{n}?", "choices": choices, "answerKey": "2"} for n in range(40)]
    assert read_keys(rows).changed == {}
    assert texts_of_right_options(rows) == ["blue"] * 40


def test_several_letters_are_several_right_options_and_no_single_one() -> None:
    options = dict(zip("ABCDE", COLOURS, strict=True))
    rows = [{"question": f"Q{n}?", "option": options, "answer": key} for n, key in enumerate(["A", "BCE", "E"])]
    assert texts_of_right_options(rows) == ["red", None, "pink"]
    for key in ("B, C,E", "B;C & E", " B C E"):
        rows[1]["answer"] = key
        assert right_options(rows[1]) == (1, 2, 4)
        assert texts_of_right_options(rows) == ["red", None, "pink"]
    rows[1]["answer"] = "CB"
    with pytest.raises(ValueError, match="row 2 has 'CB'"):
        read_keys(rows)


def test_lists_of_equally_right_options_are_read_like_single_ones() -> None:
    rows = rows_with([0, 3], encoding="texts")
    rows[1] |= {"answers": ["blue", "grey"], "answer": None}
    assert read_keys(rows).changed == {0: {"answer": 0}, 1: {"answers": [1, 2]}}


# ---------------------------------------------------------------------- marks, lists, and other fields

PLAIN = {"question": "Q?", "choices": list(OPTIONS)}
AS_OPTIONS = {"question": "Q?", "options": list(OPTIONS)}
MARKS = [0, 0, 1, 0]
BY_TEXT = dict(zip(OPTIONS, MARKS, strict=True))
GOLD_IS_C = {
    "mc1_targets": {"question": "Q?", "mc1_targets": {"choices": list(OPTIONS), "labels": MARKS}},
    "mc1_targets by text": {"question": "Q?", "mc1_targets": BY_TEXT},
    "mc2_targets with one": {"question": "Q?", "mc2_targets": {"choices": list(OPTIONS), "labels": MARKS}},
    "mc1_targets beside mc2_targets": {
        "question": "Q?",
        "mc1_targets": {"choices": list(OPTIONS), "labels": MARKS},
        "mc2_targets": {"choices": list(OPTIONS), "labels": [1, 1, 0, 0]},
    },
    "marks beside texts": {"question": "Q?", "choices": {"text": list(OPTIONS), "label": MARKS}},
    "a list of one index": PLAIN | {"answer": [2]},
    "a list of one letter": PLAIN | {"answer": ["C"]},
    "a list of one text": PLAIN | {"answer": ["blue"]},
    "answers": PLAIN | {"answers": [2]},
    "a text": PLAIN | {"answer": " blue\n"},
    "label beside options": AS_OPTIONS | {"label": 2},
    "label beside choices": PLAIN | {"label": "C"},
    "gold beside options": AS_OPTIONS | {"gold": 2},
    "target beside options": AS_OPTIONS | {"target": "blue"},
    "answer_idx beside a text": AS_OPTIONS | {"answer_idx": "C", "answer": "blue"},
    "marks": PLAIN | {"labels": MARKS},
    "marks that are true or false": AS_OPTIONS | {"answer": [False, False, True, False]},
    "marks that are 0.0 or 1.0": PLAIN | {"target": [0.0, 0.0, 1.0, 0.0]},
    "marks by text in another order": PLAIN | {"target_scores": dict(reversed(BY_TEXT.items()))},
    "marks by letter": PLAIN | {"labels": dict(zip("ABCD", MARKS, strict=True))},
    "target_scores of an input": {"input": "Q?", "target_scores": BY_TEXT},
    "target_scores of a question": {"question": "Q?", "target_scores": BY_TEXT},
    "BIG-bench on the Hub": {
        "inputs": "Q?",
        "multiple_choice_targets": list(OPTIONS),
        "multiple_choice_scores": MARKS,
        "targets": ["blue"],
    },
    "a withheld field before one that is not": AS_OPTIONS | {"answer_index": -1, "answer": "C"},
}


@pytest.mark.parametrize("doc", GOLD_IS_C.values(), ids=GOLD_IS_C.keys())
def test_the_right_option_is_read_however_a_row_marks_it(doc: dict) -> None:
    question = question_from_doc(doc)
    assert (question.stem, question.options, question.answer) == ("Q?", OPTIONS, 2)
    assert right_options(doc) == (2,)
    assert right_options(doc | (read_keys([doc]).changed or {0: {}})[0]) == (2,)


SEVERAL_RIGHT = {
    "mc2_targets": {"question": "Q?", "mc2_targets": {"choices": list(OPTIONS), "labels": [1, 0, 1, 0]}},
    "marks": PLAIN | {"labels": [1, 0, 1, 0]},
    "marks by text": PLAIN | {"target_scores": BY_TEXT | {"red": 1}},
    "indices": PLAIN | {"answer": [0, 2]},
    "letters": PLAIN | {"answers": ["A", "C"]},
    "letters in one text": PLAIN | {"answer": "AC"},
}


@pytest.mark.parametrize("doc", SEVERAL_RIGHT.values(), ids=SEVERAL_RIGHT.keys())
def test_several_right_options_are_no_single_one(doc: dict) -> None:
    assert question_from_doc(doc).answer is None
    assert right_options(doc) == (0, 2)
    assert read_keys([doc]).doubt == ""


NO_GOLD = {
    "no marks": ({"question": "Q?", "mc1_targets": {"choices": list(OPTIONS)}}, ()),
    "marks that are all 0": ({"question": "Q?", "mc1_targets": {"choices": list(OPTIONS), "labels": [0] * 4}}, ()),
    "withheld": (PLAIN | {"label": -1}, ()),
    "another text": (PLAIN | {"answer": "yellow"}, None),
    "a list with another text": (PLAIN | {"answer": ["blue", "yellow"]}, None),
    "scores": (PLAIN | {"target_scores": BY_TEXT | {"red": 0.5}}, None),
    "marks of other options": (PLAIN | {"target_scores": {"a": 0, "b": 0, "c": 1, "d": 0}}, None),
    "too few marks": (PLAIN | {"labels": [0, 0, 7]}, None),
}


@pytest.mark.parametrize(("doc", "right"), NO_GOLD.values(), ids=NO_GOLD.keys())
def test_what_names_no_option_is_no_first_option(doc: dict, right: tuple | None) -> None:
    assert question_from_doc(doc).answer is None
    assert right_options(doc) == right
    if right is None:
        with pytest.raises(ValueError, match="right answers cannot be read in one way: row 1 has"):
            read_keys([doc])


def test_a_key_is_named_with_its_field() -> None:
    with pytest.raises(ValueError, match="row 1 has 'physics' as label"):
        read_keys([PLAIN | {"label": "physics"}])


def test_options_with_scores_between_0_and_1_are_refused_with_the_field() -> None:
    with pytest.raises(
        UntestableQuestion, match="target_scores is .*; it must be a list of texts, .* a mark of 0 or 1"
    ):
        question_from_doc({"input": "Q?", "target_scores": {"red": 0.5, "blue": 1}})


@pytest.mark.parametrize("field", ["label", "labels", "target", "gold", "answer_idx"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_field_and_encoding_names_the_same_options(field: str, encoding: str) -> None:
    places = [0, 3, 1, 2, 3]
    rows = [
        {field if name == "answer" else name: value for name, value in row.items()}
        for row in rows_with(places, encoding=encoding)
    ]
    changed = read_keys(rows).changed
    questions = [question_from_doc(row | changed.get(number, {})) for number, row in enumerate(rows)]
    assert [question.answer for question in questions] == places


def test_two_marks_are_marks_and_not_two_right_options() -> None:
    rows = [{"question": f"Q{n}?", "choices": ["red", "blue"], "answer": [1 - n % 2, n % 2]} for n in range(6)]
    assert right_options(rows[1]) == (1,)
    assert [value["answer"] for value in read_keys(rows).changed.values()] == [0, 1] * 3


def test_marks_become_indices_for_a_task_that_reads_the_rows() -> None:
    rows = [PLAIN | {"answer": MARKS}, PLAIN | {"answer": [1, 0, 0, 0]}, PLAIN | {"answer": [1, 0, 0, 1]}]
    assert read_keys(rows).changed == {0: {"answer": 2}, 1: {"answer": 0}, 2: {"answer": [0, 3]}}


def test_fields_that_a_table_has_of_other_rows_hide_no_layout() -> None:
    doc = {"query": None, "gold": None, "options": None, "question": "Q?", "choices": list(OPTIONS), "answer": "C"}
    question = question_from_doc(doc)
    assert (question.stem, question.options, question.answer) == ("Q?", OPTIONS, 2)
