"""Words of a task around every question, which are no part of the question."""

from __future__ import annotations

from lm_eval_leakage.questions.constant_words import ConstantWords, constant_words

STEMS = ["What is rain? It falls.", "What is hail? It falls.", "What is a very long winter?"]


def of(template: str, stems: list[str] = STEMS, **fields: list[object]) -> ConstantWords:
    docs = [{"q": stem, **{name: values[row] for name, values in fields.items()}} for row, stem in enumerate(stems)]
    return constant_words([(doc, template.replace("@", doc["q"])) for doc in docs])


def test_an_instruction_and_the_words_after_a_question_are_constant() -> None:
    words = of("Read. Think. Give one letter.\n\nQuestion: @\nOptions:")
    assert words == ConstantWords("Read. Think. Give one letter.\n\nQuestion: ", "\nOptions:")
    assert words.removed_from("Read. Think. Give one letter.\n\nQuestion: Why?\nOptions:") == "Why?"


def test_what_varies_in_the_data_is_the_questions_own_even_where_all_begin_alike() -> None:
    assert of("@") == ConstantWords()
    assert of("Task: @").before == "Task: "


def test_the_sign_that_ends_a_question_stays() -> None:
    assert of("@?", ["What is rain", "What is hail", "What is sleet"]).after == ""
    assert of("@?\nChoices: [", ["What is rain", "What is hail"]).after == "\nChoices: ["


def test_a_field_that_is_the_same_in_all_rows_is_constant_and_one_that_differs_is_not() -> None:
    assert of("About S: @".replace("S", "weather"), subject=["weather"] * 3).before == "About weather: "
    docs = [
        {"q": stem, "subject": subject} for stem, subject in zip(STEMS, ["weather", "climate", "winter"], strict=True)
    ]
    words = constant_words([(doc, f"About {doc['subject']}: {doc['q']}") for doc in docs])
    assert words.before == "About "


def test_few_stems_in_which_no_field_is_found_say_nothing() -> None:
    made = [({"n": n}, f"Add one to the number {n * 7919}, then stop.") for n in range(40)]
    assert constant_words(made[:5]) == ConstantWords()
    assert constant_words(made).before == "Add one to the number "
    assert constant_words(made[:1] * 30) == ConstantWords()
    assert constant_words([]) == ConstantWords()


def test_no_word_is_cut_in_two() -> None:
    words = constant_words([({"n": n}, f"Is {n}th the right one of them?") for n in range(100, 130)])
    assert (words.before, words.after) == ("Is ", " the right one of them?")


def test_a_stem_without_the_words_or_with_nothing_else_stays() -> None:
    words = ConstantWords("Question: ", "\nOptions:")
    for stem in ("Why?", "Question: \nOptions:", "Question: Why?", "Question:\nOptions:"):
        assert words.removed_from(stem) == stem
