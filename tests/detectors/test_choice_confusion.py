from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, ttest_rel

from lm_eval_leakage.detectors.choice_confusion import (
    ArmsMeasurement,
    ChoiceConfusion,
    PairedAccuracy,
    accuracy_difference,
    pvalue_below_reference,
)
from lm_eval_leakage.detectors.tail_answered import QuestionTail, TailAnswered
from lm_eval_leakage.questions.rendering import letter_requests
from lm_eval_leakage.records import ARMS, Answered, Frame, Question, UntestableQuestion

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
    with pytest.raises(UntestableQuestion, match=r"3 replacements are needed.* have 2 different .*scope=all"):
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
    requests = probe().requests(arc)
    assert [request.continuation for request in requests[:4]] == [" red", " blue", " lime", " grey"]
    assert {request.context for request in requests} == {arc.prompt}
    lettered = probe(score="letters").requests(arc)
    assert lettered[0].context == "Which colour?\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert probe(score="texts").requests(COLOUR)[0].context == "Question: Which colour?\nAnswer:"


def test_a_prompt_that_ends_in_white_space_gets_no_additional_space() -> None:
    frame = Frame("Which?", ("\n(A) ", "\n(B) "), "\nAnswer: ")
    requests = letter_requests(Question("q", "Which?", ("x", "y"), frame=frame), ("x", "y"))
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
    requests = QuestionTail().requests(question)
    assert requests[0].context == f"{stem}\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert requests[4].context == f"{kept}\nA. red\nB. blue\nC. lime\nD. grey\nAnswer:"
    assert [request.continuation for request in requests] == [" A", " B", " C", " D"] * 2


QUESTION = Question("q", "Which?", ("a", "b", "c"), answer=1)


def test_each_arm_is_correct_if_its_own_right_option_is_the_most_likely() -> None:
    answers = (0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    (measured,) = PairedAccuracy().judge([Answered(QUESTION, (), answers, (1, 0, 1, 2))])
    assert (measured.original, measured.shuffled, measured.replaced, measured.generalized) == (True, True, False, True)
    (row,) = [row for row in PairedAccuracy.rows if row.name == "accuracy_replaced"]
    assert row.per_question(measured) == 0.0  # a tie counts as wrong


def test_confusion_is_the_margin_in_the_original_minus_that_in_the_generalized_arm() -> None:
    """Margins of the right option by arm: 1, 2, 4, 16."""
    answers = (0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 16.0)
    (measured,) = PairedAccuracy(0.25, 0.03).judge([Answered(QUESTION, (), answers, (1, 0, 0, 2))])
    assert measured.confusion == 1 - 16
    assert (measured.reference, measured.reference_stderr) == (0.25, 0.03)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=60))
def test_delta_and_its_tests_are_those_of_paired_answers(answers: list[tuple[bool, bool]]) -> None:
    measured = [ArmsMeasurement(before, True, False, after, 0.0) for before, after in answers]
    rows = {row.name: row for row in PairedAccuracy.rows}
    before, after = (np.array(column, dtype=float) for column in zip(*answers, strict=True))
    delta, stderr = rows["delta"].compute(measured), rows["delta"].error(measured)
    assert delta == pytest.approx(after.mean() - before.mean())
    if stderr > 0:
        assert delta / stderr == pytest.approx(ttest_rel(after, before).statistic)
    won, changed = int((after > before).sum()), int((after != before).sum())
    expected = binomtest(won, changed, 0.5).pvalue if changed else 1.0
    assert rows["mcnemar_pvalue"].compute(measured) == pytest.approx(expected)


def test_without_questions_every_value_is_undefined() -> None:
    assert all(math.isnan(row.compute([])) for row in PairedAccuracy.rows)


def test_a_delta_is_judged_against_that_of_a_clean_model() -> None:
    change = accuracy_difference([True] * 60 + [False] * 40, [False] * 20 + [True] * 40 + [False] * 40)
    assert change.value == pytest.approx(-0.2)
    assert pvalue_below_reference(change, -0.2, 0.0) == pytest.approx(0.5)
    assert pvalue_below_reference(change, 0.1, 0.03) == pytest.approx(norm.cdf(-0.3 / math.hypot(change.stderr, 0.03)))
    without_spread = accuracy_difference([True] * 4, [False] * 4)
    assert math.isnan(pvalue_below_reference(without_spread, 0.0, 0.0))


def test_the_tail_is_judged_by_the_right_letter_and_the_result_on_the_whole_question_is_reported() -> None:
    (evidence,) = TailAnswered().judge([Answered(QUESTION, (), (2.0, 1.0, 0.0, -1.0, 0.5, 0.0))])
    assert (evidence.flagged, evidence.pvalue, evidence.null_rate) == (True, 1 / 3, 1 / 3)
    assert (evidence.margin, evidence.whole) == (0.5, False)
    (tied,) = TailAnswered().judge([Answered(QUESTION, (), (0.0, 1.0, 0.0, 0.5, 0.5, 0.0))])
    assert (tied.flagged, tied.pvalue, tied.whole) == (False, 2 / 3, True)
    (tied,) = TailAnswered().judge([Answered(QUESTION, (), (1.0, 1.0, 0.0, 0.5, 0.7, 0.0))])
    assert (tied.flagged, tied.whole) == (True, False)


def test_a_reference_may_be_the_results_file_of_a_clean_run(tmp_path) -> None:
    file = tmp_path / "results.json"
    row = {"delta,paired_accuracy": 0.25, "delta_stderr,paired_accuracy": 0.03}
    file.write_text(json.dumps({"results": {"arc_choice_confusion": row, "mmlu": {"acc,none": 0.3}}}))
    statistic = PairedAccuracy(reference=str(file))
    assert (statistic.reference, statistic.reference_stderr) == (0.25, 0.03)
    assert PairedAccuracy(reference=f"{file}#arc_choice_confusion") == statistic
    file.write_text(json.dumps({"results": {"a": row, "b": row}}))
    with pytest.raises(ValueError, match=r"2 tasks of that file have a delta \(a, b\); name one as FILE#TASK"):
        PairedAccuracy(reference=str(file))
    with pytest.raises(ValueError, match=r"0 tasks of that file have a delta \(none\); name one"):
        PairedAccuracy(reference=f"{file}#c")


@pytest.mark.parametrize("text", ["{", "[]", '{"versions": {}}'])
def test_a_file_that_is_not_a_results_file_is_named(tmp_path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="neither a number nor a results file"):
        PairedAccuracy(reference=str(file))
    with pytest.raises(ValueError, match="neither a number nor a results file"):
        PairedAccuracy(reference="missing.json")
