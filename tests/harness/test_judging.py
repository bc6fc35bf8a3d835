"""The statistics as filters; an error on one question, after the model's work, skips only that question."""

from __future__ import annotations

import pickle

import pytest
import torch

from lm_eval_leakage.harness.table import JudgedQuestion
from lm_eval_leakage.harness.tasks.judging import LeakageFilter
from lm_eval_leakage.questions import guards
from lm_eval_leakage.questions.families import shared_texts
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


@pytest.mark.parametrize(
    ("target", "sound"),
    [
        ("lm_eval_leakage.harness.tasks.task.guards_of", guards.guards_of),
        ("lm_eval_leakage.harness.tasks.judging.shared_texts", shared_texts),
    ],
)
def test_a_question_on_which_our_own_code_fails_is_the_only_one_skipped(
    questions_file, monkeypatch, target, sound
) -> None:
    monkeypatch.setattr(target, fails_on_dawn(sound))
    results = evaluate(FakeLM(by_hash), questions_file([GOOD, FIVE]))
    for filter_ in ("max_order", "outlier"):
        good, five = lines(results, filter_)
        assert (good["reason"], five["flagged"]) == (None, None)
        assert five["reason"] == "our code failed on it (ArithmeticError('no dawn here'))"
    assert results["results"][TASK]["skipped,max_order"] == 1


def answered(*rows: list[float]) -> list[Answered]:
    question = Question("q", "Which?", ("red", "blue"))
    return [Answered(question, tuple(Request("Which?", str(i)) for i in range(len(row))), tuple(row)) for row in rows]


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
    (verdict,) = LeakageFilter("max_order", device="meta").apply(None, answered([-1.0, -2.0]))
    assert verdict.flagged
    assert "no room beside the model" in caplog.text


def test_an_error_of_the_statistic_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rows, device="auto"):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(OrderScores, "from_rows", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        LeakageFilter("max_order", device="cpu").apply(None, answered([-1.0, -2.0], [-1.0, -3.0]))


def test_a_question_on_which_the_statistic_fails_is_the_only_one_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = OrderScores.from_rows

    def fails_on_minus_nine(rows, device="auto"):
        if any(-9.0 in row for row in rows):
            raise ArithmeticError("nine")
        return sound(rows, device)

    monkeypatch.setattr(OrderScores, "from_rows", fails_on_minus_nine)
    verdicts = LeakageFilter("max_order", device="cpu").apply(None, answered([-1.0, -2.0], [-1.0, -9.0], [-3.0, -2.0]))
    assert verdicts[1] == Skipped("MaxOrder failed on it (ArithmeticError('nine'))")
    assert [verdicts[0].flagged, verdicts[2].flagged] == [True, False]


def test_a_judged_question_survives_the_way_between_processes() -> None:
    judged = JudgedQuestion(Skipped("why"), "max_order", ("in_order",))
    assert pickle.loads(pickle.dumps(judged)) == judged
