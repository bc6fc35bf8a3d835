from __future__ import annotations

import pytest

from lm_eval_leakage.questions.families import GUARDED, N_OPTIONS, OPTION, SCRIPT, STEM, described, text_digest
from lm_eval_leakage.records import Question

PLAIN = Question("1", " Which metal is liquid? ", ("gold", "iron ", "mercury"))


def test_properties_are_lengths_numbers_guards_and_script() -> None:
    chinese = Question("2", "哪种金属是液体", ("汞", "Au"))
    found = described([(PLAIN, False), (chinese, True)])
    assert found.properties == {
        STEM: (22.0, 7.0),
        OPTION: (5.0, 1.5),
        N_OPTIONS: (3.0, 2.0),
        GUARDED: (0.0, 1.0),
        SCRIPT: (0.0, pytest.approx(8 / 10)),
    }
    assert list(found.stems.values()) == [PLAIN.stem, chinese.stem]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("stem", "options", "same"),
    [
        ("which metal is liquid", ("Gold", "iron", "mercury."), True),
        ("Which metal is liquid?", ("mercury", "gold", "iron"), True),
        ("Which metal is liquid?", ("gold", "iron", "silver"), False),
        ("Which metal is solid?", ("gold", "iron", "mercury"), False),
    ],
)
def test_a_digest_ignores_case_punctuation_white_space_and_the_order_of_options(stem, options, same) -> None:
    assert (text_digest(Question("x", stem, options)) == text_digest(PLAIN)) is same


def test_options_of_signs_alone_are_told_apart() -> None:
    plus, minus = (Question("x", "Which sign?", (sign, "=")) for sign in ("+", "-"))
    assert text_digest(plus) != text_digest(minus)
