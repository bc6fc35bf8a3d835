from __future__ import annotations

import math

import pytest

from lm_eval_leakage.harness.filters import LeakageFilter
from lm_eval_leakage.records import Skipped


def test_a_questions_verdict_stands_in_the_place_of_its_first_response() -> None:
    first, second = {"question": "same"}, {"question": "same"}  # equal docs, two questions
    resps = [[(-1.0, False)], [(-2.0, True)], [(-3.0, False)], [(-1.0, False)]]
    verdicts = LeakageFilter("max_order", device="cpu").apply(resps, [first, first, second, second])
    assert [verdict and verdict.flagged for verdict in verdicts] == [True, None, False, None]


def test_a_padded_rank_may_repeat_a_response() -> None:
    doc: dict = {}
    resps = [[(-1.0, False)], [(-2.0, False), (-2.0, False), (-2.0, False)]]
    assert LeakageFilter("max_order", device="cpu").apply(resps, [doc, doc])[0].margin == 1.0


def test_a_response_that_is_not_finite_skips_its_question() -> None:
    first, second = {"n": 1}, {"n": 2}
    resps = [[(-1.0, False)], [(math.nan, False)], [(-1.0, False)], [(-2.0, False)]]
    verdicts = LeakageFilter("max_order", device="cpu").apply(resps, [first, first, second, second])
    assert verdicts[0] == Skipped("log-likelihood of request 1 is nan; it must be finite")
    assert verdicts[2].flagged


def test_an_unknown_device_is_refused_at_once() -> None:
    with pytest.raises(RuntimeError, match="device"):
        LeakageFilter("max_order", device="abacus")
