from __future__ import annotations

import pytest

from lm_eval_leakage.detectors.wording_rank import Wordings
from lm_eval_leakage.records import Question, Request, UntestableQuestion

QUESTION = Question("0", "Which tree is it?", ("apple", "birch"), answer=0)


def asked(*wordings: str, stem_prefix: str = "") -> tuple[Request, ...]:
    return Wordings(stem_prefix).with_wordings(lambda question: wordings).requests(QUESTION)


def test_every_wording_is_scored_alone_the_public_one_first() -> None:
    assert asked("Which tree is it?", " What tree? ") == (("", "Which tree is it?"), ("", "What tree?"))


def test_what_stands_before_is_the_same_for_all_wordings() -> None:
    assert asked("Which?", "What?", stem_prefix="Question:") == (("Question:", " Which?"), ("Question:", " What?"))
    assert asked("Which?", "What?", stem_prefix="Question:\n") == (("Question:\n", "Which?"), ("Question:\n", "What?"))


@pytest.mark.parametrize(
    ("wordings", "reason"),
    [
        ((), "its author gave one wording; at least 2 are needed"),
        (("Which?",), "its author gave one wording"),
        (("Which?", "What?", " What?"), "two of its wordings are the same"),
    ],
)
def test_a_question_whose_wordings_cannot_be_told_apart_is_untestable_with_the_reason(wordings, reason) -> None:
    with pytest.raises(UntestableQuestion, match=reason):
        asked(*wordings)


def test_without_a_seal_the_remedy_is_told() -> None:
    with pytest.raises(UntestableQuestion, match="give --metadata seal=PRIVATE_FOLDER"):
        Wordings().requests(QUESTION)
