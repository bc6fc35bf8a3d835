"""Options that mean something else in another order are recognised, and ordinary ones are not."""

from __future__ import annotations

import pytest

from lm_eval_leakage.seal.drawn import order_dependence

PLAIN = ("2", "3", "5", "7")


@pytest.mark.parametrize(
    ("wording", "option", "why"),
    [
        ("Which?", "All of the above", "refers to the others"),
        ("Which?", "None of these options", "refers to the others"),
        ("Which?", "Both A and C", "by letter"),
        ("Which?", "B only", "by letter"),
        ("Which?", "both b and c.", "by letter"),
        ("Which?", "a and b only", "by letter"),
        ("Which?", "Both A and B are correct; either one suffices.", "by letter"),
        ("Which?", "Option C is right", "by letter"),
        ("Which?", "The first two options", "by their place"),
        ("Which of options A and B is even?", "2", "the question says 'options A'"),
        ("Is choice (C) even?", "2", "the question says 'choice (C'"),
        ("Compare option 1 with the others", "2", "the question says 'option 1'"),
        ("Is the last option even?", "2", "the question says 'last option'"),
        ("选项A是什么", "2", "the question says '选项A'"),
        ("Ist Antwort B gerade?", "2", "the question says 'Antwort B'"),
    ],
)
def test_what_depends_on_order_is_named_with_the_reason(wording: str, option: str, why: str) -> None:
    assert why in (order_dependence(["Plain?", wording], [*PLAIN, option]) or "")


@pytest.mark.parametrize(
    ("wording", "option"),
    [
        ("Which vitamin do you need?", "Vitamin A"),
        ("Which option is even?", "2"),
        ("What is the answer a clerk gives?", "Both cats and dogs"),
        ("Which blood group is an option?", "A"),
        ("Which statements hold?", "I only"),
        ("Which statements hold?", "I and II"),
        ("Where is iron?", "Core"),
        ("Which set?", "a + b where a and b are rational"),
        ("A call option expires when?", "On the last day"),
    ],
)
def test_ordinary_questions_may_be_drawn(wording: str, option: str) -> None:
    assert order_dependence([wording], [*PLAIN, option]) is None
