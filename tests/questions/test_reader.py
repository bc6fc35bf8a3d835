from __future__ import annotations

import pytest

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.questions.reader import Rendered, read_question
from lm_eval_leakage.records import NoOptions, UntestableQuestion

MMLU = {"question": " Which? ", "choices": ["red ", "blue", "lime", "grey"], "answer": 1, "subject": "art"}
MMLU_PROMPT = "Which?\nA. red \nB. blue\nC. lime\nD. grey\nAnswer:"


def test_a_lettered_prompt_is_read_as_the_fields_are() -> None:
    read = read_question(MMLU, Rendered(MMLU_PROMPT, list("ABCD"), 1))
    known = question_from_doc(MMLU)
    assert (read.id, read.options, read.answer) == (known.id, known.options, known.answer)
    assert read.frame is not None
    assert read.frame.text(read.options) == MMLU_PROMPT


def test_options_outside_the_prompt_follow_the_bare_question() -> None:
    doc = {
        "question": "Which?",
        "choices": {"text": ["red", "blue"], "label": ["1", "2"]},
        "answerKey": "2",
        "id": "x7",
    }
    read = read_question(doc, Rendered("Question: Which?\nAnswer:", ["red", "blue"], 1))
    assert (read.id, read.stem, read.options, read.answer, read.frame) == ("x7", "Which?", ("red", "blue"), 1, None)


def test_with_unknown_fields_the_prompt_without_its_last_line_is_the_question() -> None:
    doc = {"frage": "Welche Farbe?", "eins": "rot", "zwei": "blau"}
    read = read_question(doc, Rendered("Frage: Welche Farbe?\nAntwort:", ["rot", "blau"], "blau"))
    assert (read.stem, read.options, read.answer) == ("Frage: Welche Farbe?", ("rot", "blau"), 1)


def test_letters_instead_of_options_are_labels() -> None:
    doc = {"query": "Which?\n0) red\n1) blue\nAnswer:", "choices": ["0", "1"], "gold": 1}
    read = read_question(doc, Rendered(doc["query"], ["0", "1"], 1))
    assert (read.options, read.answer) == (("red", "blue"), 1)


def test_the_published_order_of_shuffled_options_is_that_of_the_columns() -> None:
    doc = {"Question": "Which?", "Correct Answer": "red"} | {f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)}
    prompt = "Which?\nChoices:\n(A) no 2\n(B) red\n(C) no 1\n(D) no 3\nAnswer:"
    read = read_question(doc, Rendered(prompt, ["(A)", "(B)", "(C)", "(D)"], "(B)", shuffled=True))
    assert read.options == ("red", "no 1", "no 2", "no 3")
    assert read.answer == 0
    assert read.frame is not None
    assert read.frame.text(read.options).startswith("Which?\nChoices:\n(A) red\n(B) no 1")


def test_shuffled_options_without_a_published_order_are_refused() -> None:
    doc = {"query": "Which?", "choices_": ["red", "blue"]}
    with pytest.raises(NoOptions, match="random numbers"):
        read_question(doc, Rendered("Which?", ["red", "blue"], 0, shuffled=True))


def test_a_prompt_with_other_options_than_the_row_is_refused_with_the_difference() -> None:
    with pytest.raises(
        UntestableQuestion, match=r"shows the options \['red ', 'BLUE', 'lime', 'grey'\].*holds \['red ', 'blue'"
    ):
        read_question(MMLU, Rendered(MMLU_PROMPT.replace("blue", "BLUE"), list("ABCD"), 1))


@pytest.mark.parametrize(
    ("rendered", "reason"),
    [
        (Rendered(1, ["a cat", "a dog"], "ran"), "inside a context of its own"),
        (Rendered("Which?", ["one"], 0), "offers 1 choice"),
        (Rendered("", ["A cat runs.", "A cat run."], 0), "asks no question"),
        (Rendered("2 + 2 =", None, "4"), "the task gives the model no options"),
    ],
)
def test_tasks_without_an_order_to_change_are_refused(rendered: Rendered, reason: str) -> None:
    with pytest.raises(NoOptions, match=reason):
        read_question({"text": "Which?"}, rendered)


def test_labels_without_options_name_themselves() -> None:
    with pytest.raises(UntestableQuestion, match="shows no options for its choices A, B"):
        read_question({"text": "Which?"}, Rendered("Which?\nAnswer:", ["A", "B"], 0))


def test_a_generative_task_is_read_by_its_fields() -> None:
    doc = {"question": "Which?", "options": ["red", "blue", "lime"], "answer": "B", "answer_index": 1}
    read = read_question(
        doc, Rendered("Question:\nWhich?\nOptions:\nA. red\nB. blue\nC. lime\nAnswer: think", None, "B")
    )
    assert (read.options, read.answer) == (("red", "blue", "lime"), 1)
    assert read.frame is not None
    assert read.frame.after == "\nAnswer: think"


@pytest.mark.parametrize(
    ("target", "answer"),
    [(2, 2), ("2", 2), ("C", 2), ("(C)", None), ("lime", 2), (7, None), ([0, 1], None), (None, None), (True, None)],
)
def test_answers_are_indices_labels_or_texts(target: object, answer: int | None) -> None:
    doc = MMLU | {"answer": None}
    assert read_question(doc, Rendered(MMLU_PROMPT, list("ABCD"), target)).answer == answer


# ---------------------------------------------------------------------- texts that no row should have


TARGETS = ["①", "²", "٣", "1" * 5000, "½", 10**5000, float("nan"), b"1", {}, "\ud800"]


@pytest.mark.parametrize("target", TARGETS, ids=range(len(TARGETS)))
def test_a_target_that_is_no_index_is_an_unknown_answer(target: object) -> None:
    answer = read_question(MMLU | {"answer": None}, Rendered(MMLU_PROMPT, list("ABCD"), target)).answer
    assert answer == (3 if target == "٣" else None)


@pytest.mark.parametrize(
    "text", ["[0x" + "f" * 10_000 + "]", "[" * 100_000, "[-" + "-" * 50_000 + "1]", "['\\d']"], ids=range(4)
)
def test_a_text_that_looks_like_a_list_is_a_text(text: str) -> None:
    assert read_question(MMLU | {"note": text}, Rendered(MMLU_PROMPT, list("ABCD"), 1)).answer == 1


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {
    "an option with 5,000 digits": (MMLU | {"choices": [10**5000, "b", "c", "d"]}, ["1", "b", "c", "d"]),
    "lists in lists as an option": (MMLU, [nested(20_000), "b"]),
    "10,000 options": (MMLU, [f"option {i}" for i in range(10_000)]),
    "an option of 100,000 characters": (MMLU, ["x" * 100_000, "b"]),
    "choices that are a number": (MMLU, 7),
    "bytes": (MMLU | {"question": b"Which?"}, [b"a", b"b"]),
}


@pytest.mark.parametrize(("doc", "choices"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_row_that_is_not_a_question_is_refused_in_a_few_words(doc: dict, choices: object) -> None:
    for read in (lambda: read_question(doc, Rendered("Which?", choices, 0)), lambda: question_from_doc(doc)):
        reason = ""
        try:
            assert read().options
        except UntestableQuestion as error:
            reason = str(error)
        assert len(reason) < 3000


def test_half_a_surrogate_pair_is_replaced_anywhere() -> None:
    doc = {"id": "7\ud800", "question": "Which\ud800?", "choices": ["a\udfff", "b"], "answer": 0, "subject": "\ud83d"}
    for question in (
        question_from_doc(doc),
        read_question(doc, Rendered("Which\ud800?\nAnswer:", ["a\udfff", "b"], 0)),
    ):
        assert question.options == ("a\ufffd", "b")
        assert str(question).encode()
        assert question.id == "7\ufffd"
