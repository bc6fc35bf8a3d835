"""Answers that a model of ours reports together, and who is told of them one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lm_eval.api.model import LM, CacheHook

from lm_eval_leakage.harness.seams.backends import answers_reported, report_answers

REQUESTS = [SimpleNamespace(args=("a", str(number))) for number in range(3)]
ANSWERS = [(-1.0, True), (-2.0, False)]
ONE_BY_ONE = [("loglikelihood", ("a", "0"), ANSWERS[0]), ("loglikelihood", ("a", "2"), ANSWERS[1])]


class Silent(LM):
    def loglikelihood(self, requests: Any) -> Any: ...
    def loglikelihood_rolling(self, requests: Any) -> Any: ...
    def generate_until(self, requests: Any) -> Any: ...


class Listener(CacheHook):
    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[Any] = []

    def add_partial(self, *told: Any) -> None:
        self.told.append(told)


def reported(hook: CacheHook) -> tuple[list[Any], list[Any]]:
    """What is told one by one, and together."""
    model, alone, together = Silent(), [], []
    model.set_cache_hook(hook)
    with answers_reported(
        model, lambda *told: alone.append(told), lambda _: True, lambda *told: bool(together.append(told)) or True
    ):
        report_answers(model.cache_hook, REQUESTS, [0, 2], ANSWERS)
    return alone, together


def test_answers_are_told_together_where_nobody_else_listens() -> None:
    assert reported(CacheHook(None)) == ([], [(REQUESTS, [0, 2], ANSWERS)])


def test_whoever_listens_to_a_models_answers_is_told_of_each() -> None:
    listener = Listener()
    assert reported(listener) == (ONE_BY_ONE, [])
    assert listener.told == ONE_BY_ONE


def test_without_a_report_answers_are_told_to_the_hook_one_by_one() -> None:
    listener = Listener()
    report_answers(listener, REQUESTS, [0, 2], ANSWERS)
    assert listener.told == ONE_BY_ONE
