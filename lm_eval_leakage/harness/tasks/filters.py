"""The harness filter that turns a task's log-likelihoods into evidence, one statistic a pipeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lm_eval.api.filter import Filter

from lm_eval_leakage.harness.patches.registries import add_filter
from lm_eval_leakage.harness.tasks.judge import judge_of
from lm_eval_leakage.inference.known_scores import Calibrated
from lm_eval_leakage.records import Answered, Skipped, Verdict
from lm_eval_leakage.statistics import Statistic, statistics
from lm_eval_leakage.statistics.orders import find_device

Response = tuple[float, bool]


class JudgedResponse(tuple[float, bool]):
    """A response as the harness and its loggers know it, (log-likelihood, greedy).

    verdict: that on the response's question, on the first of its responses only
    calibrated: the same by known scores, where the run has some
    detector: who judged
    guards: on the question
    """

    verdict: Verdict | None
    calibrated: Calibrated | None = None
    detector: str = ""
    guards: tuple[str, ...] = ()

    def __new__(cls, response: Response, verdict: Verdict | None = None) -> JudgedResponse:
        judged = super().__new__(cls, response)
        judged.verdict = verdict
        return judged


class JudgedText(str):
    """The same of a response that the model wrote."""

    verdict: Verdict | None = None
    calibrated: Calibrated | None = None
    detector: str = ""
    guards: tuple[str, ...] = ()


def judged_response(response: Response | str) -> JudgedResponse | JudgedText:
    """A response with room for the verdict."""
    return JudgedText(response) if isinstance(response, str) else JudgedResponse(response)


class LeakageFilter(Filter):  # type: ignore[misc]
    """Judges all questions of a leakage task at once by one statistic.

    statistic: registered name, such as max_order
    device: where it is computed; auto takes an accelerator where there is one
    parameters: the statistic's own, such as delta
    """

    def __init__(self, statistic: str, device: str = "auto", **parameters: object) -> None:
        chosen = statistics.get(statistic)
        try:
            self.statistic = chosen(**parameters)
        except TypeError as error:
            raise ValueError(f"parameters {parameters!r} do not fit the statistic {statistic!r}: {error}") from error
        if getattr(self.statistic, "judge_model", None) is not None:
            self.statistic = _with_judge(self.statistic)
        find_device(device)
        self.device = device

    def apply(self, resps: object, docs: Sequence[object]) -> list[Verdict]:
        """The verdicts on `docs`, which are questions with their answers: a leakage task hands them over so."""
        if not all(isinstance(doc, Answered) for doc in docs):
            raise ValueError(
                "the filter leakage belongs to a task of the class LeakageTask, which knows the questions"
            )
        return self.judge([doc for doc in docs if isinstance(doc, Answered)])

    def judge(self, answered: Sequence[Answered]) -> list[Verdict]:
        refused = [_not_finite(question) for question in answered]
        sound = [question for question, refusal in zip(answered, refused, strict=True) if refusal is None]
        tested = iter(self._judged(sound))
        return [refusal or next(tested) for refusal in refused]

    def _judged(self, sound: Sequence[Answered]) -> Sequence[Verdict]:
        """All at once; where the statistic fails on them, one by one, so that a bad question costs itself alone. An
        error on each of several is the statistic's own, and is raised."""
        try:
            return self.statistic.judge(sound, self.device) if sound else []
        except Exception:  # the model's work must not be lost to one question
            verdicts = [self._judged_alone(question) for question in sound]
            if len(sound) > 1 and all(isinstance(verdict, Skipped) for verdict in verdicts):
                raise
            return verdicts

    def _judged_alone(self, question: Answered) -> Verdict:
        try:
            (verdict,) = self.statistic.judge([question], self.device)
        except Exception as error:
            return Skipped(f"{type(self.statistic).__name__} failed on it ({error!r})")
        return verdict


def _with_judge(statistic: Any) -> Statistic:
    judged: Statistic = replace(statistic, ask=judge_of(statistic.judge_model, statistic.judge_args))
    return judged


def _not_finite(answered: Answered) -> Skipped | None:
    for index, score in enumerate(answered.answers):
        if not math.isfinite(score):
            return Skipped(f"log-likelihood of request {index} is {score}; it must be finite")
    return None


add_filter("leakage", LeakageFilter)
