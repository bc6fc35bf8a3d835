"""The harness filter that turns a task's log-likelihoods into evidence, one statistic a pipeline."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import groupby

from lm_eval.api.filter import Filter
from lm_eval.api.registry import filter_registry

from lm_eval_leakage.records import Evidence, Skipped
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.orders import OrderScores, find_device

logger = logging.getLogger(__name__)

Verdict = Evidence | Skipped
Response = tuple[float, bool]


class JudgedResponse(tuple[float, bool]):
    """A response as the harness and its loggers know it, (log-likelihood, greedy).

    verdict: that on the response's question, on the first of its responses only
    """

    verdict: Verdict | None

    def __new__(cls, response: Response, verdict: Verdict | None = None) -> JudgedResponse:
        judged = super().__new__(cls, response)
        judged.verdict = verdict
        return judged


class LeakageFilter(Filter):  # type: ignore[misc]
    """Applies one statistic to all questions of the task at once.

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
        find_device(device)
        self.device = device

    def apply(self, resps: Sequence[Sequence[Response]], docs: Sequence[object]) -> list[JudgedResponse]:
        """The responses, each question's first with the verdict on the question.

        A question's responses stand together, and all hold the same `doc` object.
        """
        questions = [
            [first[0] for first, _ in group]
            for _, group in groupby(zip(resps, docs, strict=True), key=lambda pair: id(pair[1]))
        ]
        verdicts = self._judge([[loglikelihood for loglikelihood, _ in responses] for responses in questions])
        return [
            JudgedResponse(response, None if index else verdict)
            for responses, verdict in zip(questions, verdicts, strict=True)
            for index, response in enumerate(responses)
        ]

    def _judge(self, rows: list[list[float]]) -> list[Verdict]:
        refused = [_not_finite(row) for row in rows]
        sound = [row for row, refusal in zip(rows, refused, strict=True) if refusal is None]
        tested = iter(self._test(sound) if sound else [])
        return [refusal or next(tested) for refusal in refused]

    def _test(self, rows: list[list[float]]) -> Sequence[Verdict]:
        """On the device, or on the CPU where the device fails: the model may have left it no memory, and hours
        of its work stand behind these rows."""
        try:
            return self.statistic(OrderScores.from_rows(rows, self.device))
        except RuntimeError as error:
            if find_device(self.device).type == "cpu":
                raise
            logger.warning("%s is computed on the CPU, since the device failed: %s", self.statistic, error)
            return self.statistic(OrderScores.from_rows(rows, "cpu"))


def _not_finite(row: Sequence[float]) -> Skipped | None:
    for index, score in enumerate(row):
        if not math.isfinite(score):
            return Skipped(f"log-likelihood of request {index} is {score}; it must be finite")
    return None


if "leakage" not in filter_registry:  # where the harness reads entry points, it is there already
    filter_registry.register("leakage", target=LeakageFilter)
