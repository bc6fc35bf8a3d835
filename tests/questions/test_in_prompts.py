"""Questions found in the prompts of other tools."""

from __future__ import annotations

import pytest

from lm_eval_leakage.questions.in_prompts import QuestionsInPrompts

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
    ("prompt", "options", "found"),
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
    ],
)
def test_a_question_is_found_in_any_wording_of_a_prompt(prompt: str, options: tuple[str, ...], found: str) -> None:
    assert KNOWN.find(prompt, options) == found


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("Which one is tall?", PETS),
        ("Which one is tall?", (*TREES, "ash")),
        ("On a hill, which one is tall?", TREES),
        ("Which one is tall? Not the fir.", TREES),
        ("Price (in S)?", ("1", "2")),
        ("", TREES),
    ],
    ids=["other options", "more options", "part of a longer stem", "its beginning", "no pattern", "no prompt"],
)
def test_another_question_is_not_taken_for_it(prompt: str, options: tuple[str, ...]) -> None:
    assert KNOWN.find(prompt, options) is None
