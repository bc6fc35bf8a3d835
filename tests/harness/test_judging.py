"""An error of our own code on one question, after the model's work, skips only that question."""

from __future__ import annotations

import pytest

from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.questions import guards
from tests.fakes import FakeLM, by_hash
from tests.harness.test_task import FIVE, GOOD, TASK, evaluate, lines


def fails_on_dawn(sound):
    def function(question, *args, **kwargs):
        if "dawn" in question.stem:
            raise ArithmeticError("no dawn here")
        return sound(question, *args, **kwargs)

    return function


def test_a_guard_that_fails(questions_file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm_eval_leakage.harness.tasks.task.guards_of", fails_on_dawn(guards.guards_of))
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, FIVE]))
    for filter_ in ("max_order", "outlier"):
        good, five = lines(results, filter_)
        assert good["reason"] is None
        assert five["reason"] == "the search for natural orders failed on it (ArithmeticError('no dawn here'))"
        assert five["flagged"] is None
    assert results["results"][TASK]["skipped,max_order"] == 1


def test_answers_that_cannot_be_read(questions_file, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = OptionOrders.gold
    monkeypatch.setattr(OptionOrders, "gold", lambda self, question: fails_on_dawn(sound.__get__(self))(question))
    good, five = lines(evaluate(FakeLM(by_hash), questions_file([GOOD, FIVE])), "max_order")
    assert good["reason"] is None
    assert five["reason"] == "reading its answers failed on it (ArithmeticError('no dawn here'))"
