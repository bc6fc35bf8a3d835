"""Options found in prompts, and questions as tasks render them."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lm_eval_leakage.questions.fields import question_from_doc
from lm_eval_leakage.questions.prompt_parser import labels_among, options_after_labels, without_labels
from lm_eval_leakage.questions.reader import read_question
from lm_eval_leakage.records import NoOptions, UntestableQuestion
from tests.fuzzed_documents import nested

FOUR = ("red", "dark blue", "lime", "grey")


def shown(prompt: str, **arguments):
    options = options_after_labels(prompt, **arguments)
    assert options is not None
    assert options.frame.text(options.options) == prompt
    return options


@pytest.mark.parametrize(
    "prompt",
    [
        "Which?\nA. red\nB. dark blue\nC. lime\nD. grey\nAnswer:",
        "Which?\nA: red\nB: dark blue\nC: lime\nD: grey\nAnswer:",
        "Which?\nA) red\nB) dark blue\nC) lime\nD) grey",
        "Which?\n(A) red (B) dark blue (C) lime (D) grey\nA:",
        "Which? (a) red, (b) dark blue, (c) lime, (d) grey\nAnswer:",
        "Which?\n1. red\n2. dark blue\n3. lime\n4. grey\nAnswer:",
        "Which?\n0) red\n1) dark blue\n2) lime\n3) grey\nالإجابة:",
        "哪个？\nA. red\nB. dark blue\nC. lime\nD. grey\n答案：",
        "哪个？\nＡ．red\nＢ．dark blue\nＣ．lime\nＤ．grey\n答案：",
        "무엇?\n가. red\n나. dark blue\n다. lime\n라. grey\n정답:",
        "ما؟\nأ- red\nب- dark blue\nج- lime\nد- grey\nالإجابة:",
        "Что?\nА) red\nБ) dark blue\nВ) lime\nГ) grey\nОтвет:",
        "Which?\nOption A: red\nOption B: dark blue\nOption C: lime\nOption D: grey\nPlease choose:",
        "Which?\nA. red\nB. dark blue\nC. lime\n D. grey\nAnswer:",  # as one harness template has it
        "Is it A. Smith? I. e.\nA. red\nB. dark blue\nC. lime\nD. grey\nAnswer:",
        "Q:\n    Which?\n    Choices:\n      A: red\n      B: dark blue\n      C: lime\n      D: grey\n    Answer:",
    ],
)
def test_options_are_found_after_labels_of_any_alphabet(prompt: str) -> None:
    assert shown(prompt, fields=FOUR).options == FOUR
    assert tuple(option.strip() for option in shown(prompt).options) == FOUR  # and without knowing the row


def test_white_space_of_an_option_stays_its_own_where_the_row_has_it() -> None:
    options = ("red ", " blue", "lime", "grey  ")
    prompt = "Which?\nA. red \nB.  blue\nC. lime\nD. grey  \nAnswer:"
    assert shown(prompt, fields=options).options == options
    assert shown(prompt, fields=options).frame.markers == ("\nA. ", "\nB. ", "\nC. ", "\nD. ")


def test_options_of_several_lines_are_known_by_the_row() -> None:
    options = ("x = 1\ny = 2", "x = 2\ny = 1", "x = 3\n\ny = 3")
    prompt = f"Which?\nA. {options[0]}\nB. {options[1]}\nC. {options[2]}\nAnswer:"
    assert shown(prompt, fields=options).options == options


def test_the_list_that_holds_the_rows_fields_is_taken_and_not_an_example_or_an_instruction() -> None:
    example = "Which?\nA. one\nB. two\nC. three\nD. four\nAnswer: B\n\n"
    question = "Which?\nA. red\nB. dark blue\nC. lime\nD. grey\nAnswer with A. or B. or C. or D.:"
    assert shown(example + question, fields=FOUR).options == FOUR


def test_separators_belong_to_places_and_not_to_options() -> None:
    result = shown("Is it (A) red, (B) dark blue, (C) lime, (D) grey?")
    assert result.options == ("red", "dark blue", "lime", "grey?")
    assert result.frame.block(["1", "2", "3", "4"]).strip() == "(A) 1, (B) 2, (C) 3, (D) 4"


def test_signs_that_the_row_has_belong_to_options() -> None:
    options = ("acetate,", "butyrate,", "lactate")  # as one question of MMLU has them
    assert shown("Which?\nA. acetate,\nB. butyrate,\nC. lactate\nAnswer:", fields=options).options == options


def test_a_prompt_without_options_shows_none() -> None:
    assert options_after_labels("Question: What did A. Turing say to B?\nAnswer:") is None
    assert options_after_labels("Which?\nA.\nB.\nC.\nAnswer:") is None


def test_a_prompt_may_show_fewer_options_than_the_task_has_labels() -> None:
    assert shown("Which?\nA. red\nB. blue\nAnswer:", labels=list("ABCDE")).options == ("red", "blue")


STYLES = ["\n{}. ", "\n{}) ", "\n({}) ", " ({}) ", "\n{}: ", "\n{}、"]


@given(
    st.lists(st.text(st.characters(categories=["L"]), min_size=2, max_size=8), min_size=2, max_size=10, unique=True),
    st.sampled_from(STYLES),
    st.sampled_from(["ABCDEFGHIJ", "abcdefghij", "1234567890"]),
)
def test_rendered_options_are_parsed_back(options: list[str], style: str, labels: str) -> None:
    assume(not any(option[:1] in labels for option in options))
    alphabet = [str(number + 1) for number in range(10)] if labels.startswith("1") else list(labels)
    block = "".join(style.format(label) + option for label, option in zip(alphabet, options, strict=False))
    prompt = f"Which of these?{block}\nAnswer:"
    result = shown(prompt, fields=options)
    assert list(result.options) == options
    assert result.frame.before == "Which of these?"
    assert result.frame.after == "\nAnswer:"


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    result = options_after_labels(text)
    assert result is None or result.frame.text(result.options) == text


def test_labels_are_distinguished_from_short_options() -> None:
    assert labels_among(["A", "B", "C"]) == ["A", "B", "C"]
    assert labels_among(["(a)", "(b)"]) == ["a", "b"]
    assert labels_among([" A", " B"]) == ["A", "B"]
    assert labels_among(["The answer is Option A", "The answer is Option B"]) == ["A", "B"]
    assert labels_among(["أ", "ب", "ج", "د", "و"]) == ["أ", "ب", "ج", "د", "و"]
    for texts in (["yes", "no"], ["+2", "+1", "-1", "-2"], ["C", "Co", "Cp", "Cu"], ["13", "12"], ["B", "A"]):
        assert labels_among(texts) is None


def test_labels_inside_the_choices_are_removed() -> None:
    assert without_labels(["(A) red", "(B) blue"]) == ["red", "blue"]
    assert without_labels(["A. red", "B. blue"]) == ["red", "blue"]
    assert without_labels(["(A) red", "(C) blue"]) == ["(A) red", "(C) blue"]
    assert without_labels(["A man", "Bees"]) == ["A man", "Bees"]


# ---------------------------------------------------------------------- texts that no prompt has

HOSTILE_PROMPTS = {
    "brackets": "(" * 50_000,
    "brackets that close": ")" * 25_000 + "A" + ")" * 25_000,
    "labels over and over": "\nA. x\nB. y" * 4_000,
    "the first label over and over": "A. " * 16_000 + "B. x",
    "labels in many styles": "".join(f"{'([<【'[i % 4]}{'([<'[i % 3]}{'(['[i % 2]}A. x B) y " for i in range(3_000)),
    "white space around options": "Which?\nA." + " " * 12_000 + "x" + " " * 12_000 + "\nB." + " " * 12_000 + "y",
}


@pytest.mark.parametrize("prompt", HOSTILE_PROMPTS.values(), ids=HOSTILE_PROMPTS.keys())
def test_any_prompt_is_read_in_linear_time(prompt: str) -> None:
    result = options_after_labels(prompt, fields=["x", " x ", "y"])
    assert result is None or result.frame.text(result.options) == prompt


def test_options_after_a_long_passage_are_found_and_the_prompt_stays_whole() -> None:
    passage = "It was A. Smith who said (B) no. " * 5_000
    result = shown(f"{passage}\nWhich?\nA. red\nB. dark blue\nC. lime\nD. grey\nAnswer:", fields=FOUR)
    assert result.options == FOUR
    assert result.frame.before == f"{passage}\nWhich?"


MMLU = {"question": " Which? ", "choices": ["red ", "blue", "lime", "grey"], "answer": 1, "subject": "art"}
MMLU_PROMPT = "Which?\nA. red \nB. blue\nC. lime\nD. grey\nAnswer:"


def test_a_lettered_prompt_is_read_as_the_fields_are() -> None:
    read = read_question(MMLU, MMLU_PROMPT, list("ABCD"), 1)
    from_fields = question_from_doc(MMLU)
    assert (read.id, read.options, read.answer) == (from_fields.id, from_fields.options, from_fields.answer)
    assert read.frame is not None
    assert read.frame.text(read.options) == MMLU_PROMPT


def test_options_outside_the_prompt_follow_the_bare_question() -> None:
    doc = {
        "question": "Which?",
        "choices": {"text": ["red", "blue"], "label": ["1", "2"]},
        "answerKey": "2",
        "id": "x7",
    }
    read = read_question(doc, "Question: Which?\nAnswer:", ["red", "blue"], 1)
    assert (read.id, read.stem, read.options, read.answer, read.frame) == ("x7", "Which?", ("red", "blue"), 1, None)


def test_with_unknown_fields_the_prompt_without_its_last_line_is_the_question() -> None:
    doc = {"frage": "Welche Farbe?", "eins": "rot", "zwei": "blau"}
    read = read_question(doc, "Frage: Welche Farbe?\nAntwort:", ["rot", "blau"], "blau")
    assert (read.stem, read.options, read.answer) == ("Frage: Welche Farbe?", ("rot", "blau"), 1)


def test_letters_instead_of_options_are_labels() -> None:
    doc = {"query": "Which?\n0) red\n1) blue\nAnswer:", "choices": ["0", "1"], "gold": 1}
    read = read_question(doc, doc["query"], ["0", "1"], 1)
    assert (read.options, read.answer) == (("red", "blue"), 1)


def test_the_published_order_of_shuffled_options_is_that_of_the_columns() -> None:
    doc = {"Question": "Which?", "Correct Answer": "red"} | {f"Incorrect Answer {i}": f"no {i}" for i in (1, 2, 3)}
    prompt = "Which?\nChoices:\n(A) no 2\n(B) red\n(C) no 1\n(D) no 3\nAnswer:"
    read = read_question(doc, prompt, ["(A)", "(B)", "(C)", "(D)"], "(B)", shuffled=True)
    assert read.options == ("red", "no 1", "no 2", "no 3")
    assert read.answer == 0
    assert read.frame is not None
    assert read.frame.text(read.options).startswith("Which?\nChoices:\n(A) red\n(B) no 1")


def test_shuffled_options_without_a_published_order_are_refused() -> None:
    doc = {"query": "Which?", "choices_": ["red", "blue"]}
    with pytest.raises(NoOptions, match="random numbers"):
        read_question(doc, "Which?", ["red", "blue"], 0, shuffled=True)


def test_a_prompt_with_other_options_than_the_row_is_refused_with_the_difference() -> None:
    with pytest.raises(
        UntestableQuestion, match=r"shows the options \['red ', 'BLUE', 'lime', 'grey'\].*holds \['red ', 'blue'"
    ):
        read_question(MMLU, MMLU_PROMPT.replace("blue", "BLUE"), list("ABCD"), 1)


@pytest.mark.parametrize(
    ("rendered", "reason"),
    [
        ((1, ["a cat", "a dog"], "ran"), "inside a context of its own"),
        (("Which?", ["one"], 0), "offers 1 choice"),
        (("", ["A cat runs.", "A cat run."], 0), "asks no question"),
        (("2 + 2 =", None, "4"), "the task gives the model no options"),
    ],
)
def test_tasks_without_an_order_to_change_are_refused(rendered: tuple, reason: str) -> None:
    with pytest.raises(NoOptions, match=reason):
        read_question({"text": "Which?"}, *rendered)


@pytest.mark.parametrize("choices", [5, "red", {"a": "red"}, {"red", "blue"}, True])
def test_choices_that_are_no_list_are_refused(choices: object) -> None:
    with pytest.raises(UntestableQuestion, match="the task's choices are .*; they must be a list"):
        read_question({"text": "Which?"}, "Which?", choices, 0)


def test_labels_without_options_name_themselves() -> None:
    with pytest.raises(UntestableQuestion, match="shows no options for its choices A, B"):
        read_question({"text": "Which?"}, "Which?\nAnswer:", ["A", "B"], 0)


def test_a_generative_task_is_read_by_its_fields() -> None:
    doc = {"question": "Which?", "options": ["red", "blue", "lime"], "answer": "B", "answer_index": 1}
    read = read_question(doc, "Question:\nWhich?\nOptions:\nA. red\nB. blue\nC. lime\nAnswer: think", None, "B")
    assert (read.options, read.answer) == (("red", "blue", "lime"), 1)
    assert read.frame is not None
    assert read.frame.after == "\nAnswer: think"


NO_INDEX = ["(C)", 7, [0, 1], None, True, "①", "²", "1" * 5000, "½", float("nan"), b"1", {}, "\ud800"]


@pytest.mark.parametrize(
    ("target", "answer"),
    [(2, 2), ("2", 2), ("C", 2), ("lime", 2), ("٣", 3), ([2], 2), *((target, None) for target in NO_INDEX)],
    ids=range(6 + len(NO_INDEX)),
)
def test_answers_are_indices_labels_or_texts(target: object, answer: int | None) -> None:
    doc = MMLU | {"answer": None}
    assert read_question(doc, MMLU_PROMPT, list("ABCD"), target).answer == answer


# ---------------------------------------------------------------------- texts that no row should have


HOSTILE = {
    "lists in lists as an option": (MMLU, [nested(50), "b"]),
    "10,000 options": (MMLU, [f"option {i}" for i in range(10_000)]),
    "an option of 100,000 characters": (MMLU, ["x" * 100_000, "b"]),
    "bytes": (MMLU | {"question": b"Which?"}, [b"a", b"b"]),
}


@pytest.mark.parametrize(("doc", "choices"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_row_that_is_not_a_question_is_refused_in_a_few_words(doc: dict, choices: object) -> None:
    for read in (lambda: read_question(doc, "Which?", choices, 0), lambda: question_from_doc(doc)):
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
        read_question(doc, "Which\ud800?\nAnswer:", ["a\udfff", "b"], 0),
    ):
        assert question.options == ("a\ufffd", "b")
        assert str(question).encode()
        assert question.id == "7\ufffd"


@pytest.mark.parametrize(("key", "target"), [(4, "D"), ("D", "D"), (4, 3)])
def test_a_task_with_five_columns_of_options_is_read_whatever_the_row_names_its_key(
    key: object, target: object
) -> None:
    doc = {"question": "Which is blue?", **dict(zip("ABCDE", ("sun", "leaf", "ash", "sea", "soot"), strict=True))}
    prompt = "Which is blue?\nA. sun\nB. leaf\nC. ash\nD. sea\nE. soot\n정답："
    question = read_question(doc | {"answer": key}, prompt, list("ABCDE"), target)
    assert (question.stem, question.options, question.answer) == (
        "Which is blue?",
        ("sun", "leaf", "ash", "sea", "soot"),
        3,
    )
