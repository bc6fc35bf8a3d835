"""A calibration says what a model has seen, or a sentence says why it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lm_eval_leakage.questions.families import OPTION, STEM, described
from lm_eval_leakage.records import Described, Question
from lm_eval_leakage.stats.known_scores import (
    COMBINED,
    COPY,
    EVERY_CLASS,
    FEWEST,
    OWN,
    Calibration,
    KnownScores,
    why_withheld,
)


def questions(numbers: range, text: str = "What is the value of {}?", guarded: bool = False) -> Described:
    made = [Question(str(i), text.format(i), (f"{i}1", f"{i}2", f"{i}3")) for i in numbers]
    return described((one, guarded) for one in made)


ASKED = questions(range(1000, 1100))
KNOWN = KnownScores({EVERY_CLASS: [float(i) for i in range(99)]}, [200.0] * 30 + [0.0] * 20)
MADE = Calibration(
    "org/m", "mmlu", OWN, "40 private questions", {"max_order": KNOWN}, unseen=questions(range(2000, 2040))
)


def test_own_scores_of_questions_of_the_same_kind_speak() -> None:
    assert why_withheld(MADE, ASKED) is None


def test_scores_of_a_copy_say_what_would_be_found() -> None:
    of_copy = replace(MADE, whose=COPY, origin="held-out questions after 3 exposures to 50 others")
    said = str(why_withheld(of_copy, ASKED))
    assert "holds scores of a copy of 'org/m' that was trained on the benchmark (held-out questions after 3" in said
    assert "what would be found (30 of 50 trained questions by max_order, at a false-positive rate of 5%)" in said
    assert "not what was found; make one of the model's own scores" in said
    assert "lm-eval-leakage calibrate" in said
    combined = replace(of_copy, detectors={"max_order": KNOWN, COMBINED: replace(KNOWN, seen=[200.0] * 9)})
    assert "(9 of 9 trained questions by combined" in str(why_withheld(combined, ASKED))
    by_class = replace(KNOWN, unseen={EVERY_CLASS: KNOWN.unseen[EVERY_CLASS], "a": KNOWN.unseen[EVERY_CLASS]})
    for unknown in ({}, {"max_order": by_class}, {"max_order": replace(KNOWN, seen=[])}):
        assert "what would be found, not what" in str(why_withheld(replace(of_copy, detectors=unknown), ASKED))


def test_a_calibration_that_does_not_say_what_its_questions_are_like_is_silent() -> None:
    assert "does not say what its unseen questions are like" in str(why_withheld(replace(MADE, unseen=None), ASKED))


def test_unseen_questions_that_are_in_the_benchmark_are_counted_with_an_example() -> None:
    partly = replace(MADE, unseen=questions(range(1098, 1140), "what is  the VALUE of {}"))
    said = str(why_withheld(partly, ASKED))
    assert said.startswith(
        "2 of the 42 questions that the model is said not to have seen are in the benchmark, such as "
    )
    assert "'What is the value of 1098?'" in said


@pytest.mark.parametrize(
    ("n_unseen", "n_asked", "said"), [(19, 100, "19 unseen"), (40, 5, "5 asked"), (0, 100, "0 un")]
)
def test_too_few_of_either_are_not_compared(n_unseen: int, n_asked: int, said: str) -> None:
    few = replace(MADE, unseen=questions(range(2000, 2000 + n_unseen)))
    reason = str(why_withheld(few, questions(range(1000, 1000 + n_asked))))
    assert reason.startswith(said)
    assert f"at least {FEWEST} are needed of either kind" in reason


def test_the_property_that_differs_is_named_with_both_medians_and_a_remedy() -> None:
    longer = replace(MADE, unseen=questions(range(2000, 2040), "Consider this: what is the value of {}?"))
    said = str(why_withheld(longer, ASKED))
    assert f"of another kind than those that were asked: {STEM} 41 instead of 26 (p = 0.00" in said
    assert OPTION not in said
    assert "choose or write unseen questions like those of the benchmark" in said
