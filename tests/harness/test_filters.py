from __future__ import annotations

import math
import pickle

import pytest
import torch

from lm_eval_leakage.harness.filters import JudgedResponse, LeakageFilter
from lm_eval_leakage.records import Skipped
from lm_eval_leakage.statistics.orders import OrderScores


def test_a_questions_verdict_stands_in_the_place_of_its_first_response() -> None:
    first, second = {"question": "same"}, {"question": "same"}  # equal docs, two questions
    resps = [[(-1.0, False)], [(-2.0, True)], [(-3.0, False)], [(-1.0, False)]]
    verdicts = LeakageFilter("max_order", device="cpu").apply(resps, [first, first, second, second])
    assert [judged.verdict and judged.verdict.flagged for judged in verdicts] == [True, None, False, None]
    assert verdicts == [first for first, *_ in resps]  # as the harness's own loggers expect them


def test_a_padded_rank_may_repeat_a_response() -> None:
    doc: dict = {}
    resps = [[(-1.0, False)], [(-2.0, False), (-2.0, False), (-2.0, False)]]
    assert LeakageFilter("max_order", device="cpu").apply(resps, [doc, doc])[0].verdict.margin == 1.0


def test_a_response_that_is_not_finite_skips_its_question() -> None:
    first, second = {"n": 1}, {"n": 2}
    resps = [[(-1.0, False)], [(math.nan, False)], [(-1.0, False)], [(-2.0, False)]]
    verdicts = LeakageFilter("max_order", device="cpu").apply(resps, [first, first, second, second])
    assert verdicts[0].verdict == Skipped("log-likelihood of request 1 is nan; it must be finite")
    assert verdicts[2].verdict.flagged


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
    first, second = LeakageFilter("max_order", device="meta").apply([[(-1.0, False)], [(-2.0, False)]], [0, 0])
    assert first.verdict.flagged
    assert second.verdict is None
    assert "no room beside the model" in caplog.text


def test_an_error_of_the_statistic_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rows, device="auto"):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(OrderScores, "from_rows", broken)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        LeakageFilter("max_order", device="cpu").apply([[(-1.0, False)], [(-2.0, False)]], [0, 0])


def test_a_judged_response_survives_the_way_between_processes() -> None:
    judged = pickle.loads(pickle.dumps(JudgedResponse((-1.0, True), Skipped("why"))))
    assert (judged, judged.verdict) == ((-1.0, True), Skipped("why"))
