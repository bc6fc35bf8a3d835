"""The statistics as filters; an error on one question, after the model's work, skips only that question."""

from __future__ import annotations

import pickle

import pytest
import torch

from lm_eval_leakage.detectors.option_orders import OptionOrders
from lm_eval_leakage.harness.table import JudgedQuestion
from lm_eval_leakage.harness.tasks.judging import LeakageFilter
from lm_eval_leakage.questions import guards
from lm_eval_leakage.records import Answered, Question, Request, Skipped
from lm_eval_leakage.stats.order_scores import OrderScores
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


def answered(*rows: list[float]) -> list[Answered]:
    question = Question("q", "Which?", ("red", "blue"))
    return [Answered(question, tuple(Request("Which?", str(i)) for i in range(len(row))), tuple(row)) for row in rows]


def test_rows_of_the_data_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="works only in tasks of the class LeakageTask"):
        LeakageFilter("max_order", device="cpu").apply([[(-1.0, False)]], [{"question": "Which?"}])


def test_an_unknown_device_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="device"):
        LeakageFilter("max_order", device="abacus")


def test_a_device_that_fails_does_not_lose_the_run(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    on_cpu = OrderScores.from_rows

    def out_of_memory(rows, device="auto"):
        if device != "cpu":
            raise torch.OutOfMemoryError("no room beside the model")
        return on_cpu(rows, device)

    monkeypatch.setattr(OrderScores, "from_rows", out_of_memory)
    (verdict,) = LeakageFilter("max_order", device="meta").judge(answered([-1.0, -2.0]))
    assert verdict.flagged
    assert "no room beside the model" in caplog.text


def test_an_error_of_the_statistic_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rows, device="auto"):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(OrderScores, "from_rows", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        LeakageFilter("max_order", device="cpu").judge(answered([-1.0, -2.0], [-1.0, -3.0]))


def test_a_question_on_which_the_statistic_fails_is_the_only_one_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = OrderScores.from_rows

    def fails_on_minus_nine(rows, device="auto"):
        if any(-9.0 in row for row in rows):
            raise ArithmeticError("nine")
        return sound(rows, device)

    monkeypatch.setattr(OrderScores, "from_rows", fails_on_minus_nine)
    verdicts = LeakageFilter("max_order", device="cpu").judge(answered([-1.0, -2.0], [-1.0, -9.0], [-3.0, -2.0]))
    assert verdicts[1] == Skipped("MaxOrder failed on it (ArithmeticError('nine'))")
    assert [verdicts[0].flagged, verdicts[2].flagged] == [True, False]


def test_a_judged_question_survives_the_way_between_processes() -> None:
    judged = JudgedQuestion(Skipped("why"), "max_order", ("in_order",))
    assert pickle.loads(pickle.dumps(judged)) == judged
