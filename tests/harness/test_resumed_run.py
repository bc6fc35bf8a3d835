"""Runs in this process: one model for all of them; of one that was killed, only what has no valid answer is asked
again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from lm_eval.api.instance import Instance

from lm_eval_leakage.harness.models.answer_faults import NoAnswer
from lm_eval_leakage.harness.models.question_requests import request_key
from lm_eval_leakage.harness.named_model import KeptModel, NamedModel
from lm_eval_leakage.harness.resumed_run import ResumedRun, step_aside
from lm_eval_leakage.logs.answer_store import AnswerStore
from tests.fakes import FakeLM, by_hash

PAIRS = [("Which?", letter) for letter in "ABCD"]
REQUESTS = [Instance("loglikelihood", {}, pair, place) for place, pair in enumerate(PAIRS)]


def resumed(folder: Path) -> ResumedRun:
    return ResumedRun(AnswerStore(folder, {"backend": "fake"}))


def test_what_was_answered_is_not_asked_again_until_it_steps_aside(tmp_path: Path) -> None:
    first = resumed(tmp_path / "answers")
    for pair in PAIRS[1:3]:
        first.add_partial("loglikelihood", pair, (by_hash(*pair), False))
    first.close()
    lm = FakeLM(by_hash)
    resumed(tmp_path / "answers").stand_before(lm)
    assert lm.loglikelihood(REQUESTS) == [(by_hash(*pair), False) for pair in PAIRS]
    assert lm.requests == [PAIRS[0], PAIRS[3]]
    step_aside(lm)
    lm.loglikelihood(REQUESTS)
    assert len(lm.requests) == 6


def test_what_is_no_answer_is_asked_again(tmp_path: Path) -> None:
    run = resumed(tmp_path / "answers")
    for bad in (None, "-1", (math.nan, False), (NoAnswer("the server"), False), (3.0, False), (-1.0,)):
        run.add_partial("loglikelihood", PAIRS[0], bad)
    run.add_partial("generate_until", ("Say", {"do_sample": True}), "one of many")
    run.close()
    assert not list(tmp_path.rglob("*.sqlite"))


def test_texts_and_rolling_log_likelihoods_come_back_as_they_were(tmp_path: Path) -> None:
    run, lm = resumed(tmp_path / "answers"), FakeLM(by_hash)
    run.add_partial("generate_until", ("Say", {"until": ["."]}), "yes")
    run.add_partial("loglikelihood_rolling", ("Once",), -4.5)
    run.close()
    run.stand_before(lm)
    assert lm.generate_until([Instance("generate_until", {}, ("Say", {"until": ["."]}), 0)]) == ["yes"]
    assert lm.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, ("Once",), 0)]) == [-4.5]
    run.remove()
    assert not (tmp_path / "answers").exists()


class OfNumpy(FakeLM):
    """Answers with scalars of numpy."""

    def loglikelihood(self, requests):
        return [(np.float32(value), np.bool_(greedy)) for value, greedy in super().loglikelihood(requests)]

    def loglikelihood_rolling(self, requests):
        return [np.float32(-4.5) for _ in requests]


def test_scalars_of_numpy_are_kept_and_passed_on_as_numbers_of_python(tmp_path: Path) -> None:
    run, lm = resumed(tmp_path / "answers"), OfNumpy(lambda *_: -2.5)
    run.stand_before(lm)
    rolling = Instance("loglikelihood_rolling", {}, ("Once",), 0)
    answers = [*lm.loglikelihood(REQUESTS), *lm.loglikelihood_rolling([rolling])]
    assert answers == [(-2.5, False)] * len(REQUESTS) + [-4.5]
    assert {type(value) for value in (*answers[0], answers[-1])} == {float, bool}
    run.add_partial("loglikelihood", PAIRS[0], (np.float32(-2.5), np.False_))
    run.close()
    assert AnswerStore(tmp_path / "answers", {"backend": "fake"}).find([request_key("loglikelihood", PAIRS[0])])


def test_a_model_is_loaded_once_and_a_given_one_never(monkeypatch) -> None:
    built = []

    class Counted(FakeLM):
        def __init__(self, a: int, batch_size: int, device: str) -> None:
            super().__init__(by_hash)
            built.append(a)

    monkeypatch.setattr("lm_eval.api.registry.model_registry", {"counted": Counted})
    kept, who = KeptModel(), NamedModel("counted", {"a": 1})
    first = kept.loaded(who)
    assert kept.loaded(who) is KeptModel(first).loaded(who) is first
    assert built == [1]
