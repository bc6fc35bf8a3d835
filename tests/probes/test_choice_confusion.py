from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.detectors.choice_confusion import ChoiceConfusion
from lm_eval_leakage.detectors.pairs import OptionPairs
from lm_eval_leakage.detectors.tail_answered import QuestionTail
from lm_eval_leakage.questions.rendering import asked_for_letter
from lm_eval_leakage.records import ARMS, Frame, Question, UntestableQuestion

COLOUR = Question("q", "Which colour?", ("red", "blue", "lime", "grey"), answer=1, subject="art")
POOL = [COLOUR] + [
    Question(f"p{i}", f"What is {i}?", (f"right {i}", f"wrong {i}"), answer=0, subject="art" if i < 5 else "law")
    for i in range(10)
]


def probe(pool: list[Question] = POOL, **parameters) -> ChoiceConfusion:
    return ChoiceConfusion(**parameters).with_pool(lambda: pool)


@given(st.integers(0, 500))
def test_the_four_arms_differ_as_documented(number: int) -> None:
    question = replace(COLOUR, id=f"q{number}")
    arms = dict(zip(ARMS, probe().arms(question), strict=True))
    for options, place in arms.values():
        assert options[place] == "blue"
        assert len(set(options)) == 4
    assert arms["original"] == (question.options, 1)
    assert sorted(arms["shuffled"][0]) == sorted(question.options)
    assert arms["replaced"][1] == 1
    replacements = set(arms["replaced"][0]) - {"blue"}
    assert replacements <= {f"right {i}" for i in range(5)}  # of the same subject
    assert set(arms["generalized"][0]) == set(arms["replaced"][0])
    moved = [COLOUR.options.index(option) for option in arms["shuffled"][0]]
    assert [arms["replaced"][0][place] for place in moved] == list(arms["generalized"][0])
    assert arms["generalized"][1] == arms["shuffled"][1]


def test_when_shuffled_the_right_option_is_in_every_place_equally_often() -> None:
    places = [probe().arms(replace(COLOUR, id=str(i)))[1][1] for i in range(400)]
    assert all(70 < places.count(place) < 130 for place in range(4))


def test_replacements_differ_in_words_from_the_right_option_and_each_other() -> None:
    alike = [
        Question(str(i), "?", (text,) * 2, answer=0, subject="art") for i, text in enumerate(["Blue ", "x", "X", "y"])
    ]
    with pytest.raises(UntestableQuestion, match=r"3 replacements are needed.*'art' have 2 different .*scope=all"):
        probe([COLOUR, *alike]).requests(COLOUR)


def test_replacements_may_come_from_the_whole_benchmark() -> None:
    few = [question for question in POOL if question.subject == "law"]
    with pytest.raises(UntestableQuestion, match="have 0 different right answers"):
        probe([COLOUR, *few]).requests(COLOUR)
    assert len(probe([COLOUR, *few], scope="all").requests(COLOUR)) == 16


def test_questions_without_a_known_answer_are_not_asked() -> None:
    with pytest.raises(UntestableQuestion, match="right answer is not known"):
        probe().requests(replace(COLOUR, answer=None))


def test_letters_are_scored_in_the_tasks_own_prompt() -> None:
    frame = Frame("色？", ("\nＡ．", "\nＢ．", "\nＣ．", "\nＤ．"), "\n答案：")
    first = probe().requests(replace(COLOUR, frame=frame))[0]
    assert (first.context, first.continuation) == ("色？\nＡ．red\nＢ．blue\nＣ．lime\nＤ．grey\n答案：", " Ａ")


def test_texts_are_scored_where_the_task_shows_no_options() -> None:
    arc = replace(COLOUR, prompt="Question: Which colour?\nAnswer:")
    asked = probe().requests(arc)
    assert [request.continuation for request in asked[:4]] == [" red", " blue", " lime", " grey"]
    assert {request.context for request in asked} == {arc.prompt}
    lettered = probe(score="letters").requests(arc)
    assert lettered[0].context == "Which colour?\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert probe(score="texts").requests(COLOUR)[0].context == "Question: Which colour?\nAnswer:"


def test_a_prompt_that_ends_in_white_space_gets_no_additional_space() -> None:
    frame = Frame("Which?", ("\n(A) ", "\n(B) "), "\nAnswer: ")
    requests = asked_for_letter(Question("q", "Which?", ("x", "y"), frame=frame), ("x", "y"))
    assert [request.continuation for request in requests] == ["A", "B"]


@pytest.mark.parametrize(
    ("stem", "kept"),
    [
        ("one two three four", "three four"),
        ("one two three", "three"),
        ("one", "one"),
        (" ".join(map(str, range(20))), "13 14 15 16 17 18 19"),
    ],
)
def test_the_tail_is_the_last_seven_words_or_half(stem: str, kept: str) -> None:
    question = replace(COLOUR, stem=stem)
    asked = QuestionTail().requests(question)
    assert asked[0].context == f"{stem}\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert asked[4].context == f"{kept}\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert [request.continuation for request in asked] == [" A", " B", " C", " D"] * 2


def test_pairs_are_all_ordered_pairs() -> None:
    asked = OptionPairs().requests(COLOUR)
    assert len(asked) == 12
    assert [request.continuation for request in asked[:2]] == ["\nA. red\nB. blue", "\nA. red\nB. lime"]
    with pytest.raises(UntestableQuestion, match="two of its options are identical"):
        OptionPairs().requests(replace(COLOUR, options=("red", "red ", "x", "y")))
