"""Names the methods by which audits query models, and holds the requests of an audit as the harness does."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from lm_eval.api.instance import Instance

from lm_eval_leakage.logs.answer_store import Answer
from lm_eval_leakage.records import Request, Skipped, TokenScores

MEANING = {
    "loglikelihood": "gives no log-likelihoods of given texts",
    "generate_until": "does not generate text",
    "token_scores": "does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
}
REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | str
Arguments = tuple[Any, ...]
Metadata = tuple[str | None, int | None, int | None]
KEY_SIZE = 16  # bytes


def refuses(method: Any, *arguments: object) -> bool:
    """Return whether a backend answers nothing by a method: it has none, or only one that raises NotImplementedError,
    as chat models inherit it.

    arguments: an empty list of requests, after any object if the method is that of a class
    """
    try:
        method(*arguments)
    except NotImplementedError:
        return True
    except Exception:  # the method needs requests, or a loaded model
        return method is None
    return False


@dataclass(frozen=True)
class Broken:
    """An invalid response; describes what the backend returned instead of an answer."""

    reason: str


class QuestionRequests:
    """The requests about one question, or a placeholder for a question that cannot be tested, since the harness needs
    at least one request per question.

    doc, metadata: as in the harness's Instance; metadata is the task's name, the question's number and 1
    method: the model's method that answers them
    requests: the probe's own, before any of its control form
    skipped: why the question is not tested
    instances: the requests as the harness holds them
    judged: the verdicts, by pipeline
    """

    def __init__(
        self,
        task: Any,
        doc: Mapping[str, Any],
        metadata: Metadata,
        arguments: Sequence[Arguments],
        requests: Sequence[Request] = (),
        skipped: Skipped | None = None,
    ) -> None:
        self.task, self.doc, self.metadata, self.requests, self.skipped = task, doc, metadata, requests, skipped
        self.method = task.probe.needs
        self.judged: dict[str, Any] = {}
        self.instances = [LeakageInstance(self, idx, args) for idx, args in enumerate(arguments)]

    @property
    def arguments(self) -> list[Arguments]:
        return [instance.arguments for instance in self.instances]

    @property
    def responses(self) -> list[Response]:
        return [instance.response for instance in self.instances]


class LeakageInstance(Instance):  # type: ignore[misc]
    """One request about a question.

    answer: of the model; None until there is one
    """

    def __init__(self, of: QuestionRequests, idx: int, arguments: Arguments) -> None:
        super().__init__(REQUEST_TYPE, of.doc, arguments, idx, of.metadata, filtered_resps=of.judged)
        self.of, self.task = of, of.task
        self.answer: Answer | Broken | None = None

    @property
    def response(self) -> Response:
        """Return the answer in the harness's format: the log-likelihood in nats, of a text whose tokens are scored
        their sum, and NaN where there is no valid answer; or a text."""
        if self.answer is None or isinstance(self.answer, Broken):
            return "" if self.of.method == "generate_until" else (math.nan, False)
        if isinstance(self.answer, TokenScores):
            return sum(self.answer.loglikelihoods), False
        return self.answer


def n_request_characters(arguments: Sequence[Any]) -> int:
    """Return the length of a request's texts: the measure by which the work done is compared with the work left."""
    texts = [part[0] if isinstance(part, tuple) else part for part in arguments]
    return sum([len(text) for text in texts if isinstance(text, str)])


def request_key(method: str, arguments: Sequence[Any]) -> bytes:
    """Return a digest of a request, equal for equal requests; the 336,900 texts of full MMLU would need too much
    memory."""
    parts = [part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str) for part in arguments]
    whole = f"{method} {','.join([str(len(part)) for part in parts])} {''.join(parts)}"
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=KEY_SIZE).digest()
