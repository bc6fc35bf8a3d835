from __future__ import annotations

import pytest

from lm_eval_leakage.questions.rendering import option_block, option_format, stem_text
from lm_eval_leakage.records import Question, UntestableQuestion

QUESTION = Question("1", " Which?\n", ("red", "blue "))


def test_the_usual_format_is_the_harness_template_of_mmlu() -> None:
    style = option_format("usual")
    assert stem_text(QUESTION, style) + option_block(QUESTION.options, style) == "Which?\nA. red\nB. blue "


def test_the_papers_format_ends_stem_and_label_with_a_colon() -> None:
    style = option_format("papers")
    assert stem_text(QUESTION, style) + option_block(QUESTION.options, style) == "Which?:\nA:red\nB:blue "


def test_more_options_than_letters_are_refused() -> None:
    with pytest.raises(UntestableQuestion, match="27 options"):
        option_block(["x"] * 27, option_format("usual"))
