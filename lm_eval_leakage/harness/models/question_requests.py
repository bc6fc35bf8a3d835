"""Define the requests about a question as instances of lm_eval, their answers, and a key for equal requests."""

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

REFUSAL_BY_METHOD = {  # what follows the name of a model that lacks the method
    "loglikelihood": "gives no log-likelihoods of given texts",
    "generate_until": "does not generate text",
    "token_scores": "does not give the next-token distribution (`hf` and `hf-prefix-tree` do)",
}
REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | str  # what the harness takes from a model: a log-likelihood and is_greedy, or a text
Arguments = tuple[Any, ...]  # of the model's method for one request
Metadata = tuple[str | None, int | None, int | None]  # the task's name, the question's number, the number of repeats
KEY_SIZE = 16  # bytes


def refuses(method: Any, *arguments: object) -> bool:
    """Return whether a backend lacks a method, found by calling it without requests.

    A method is lacking if it is None, or if it raises NotImplementedError, as that which chat models inherit does.

    arguments: an empty list of requests; before it, if `method` is a function of the class, any object as `self`
    """
    try:
        method(*arguments)
    except NotImplementedError:
        return True
    except Exception:  # the method needs requests, or a loaded model: so it is implemented
        return method is None
    return False


@dataclass(frozen=True)
class Broken:
    """An invalid response of a backend, in place of an answer.

    reason: what is wrong with the response
    """

    reason: str


class QuestionRequests:
    """All requests about one question.

    A question that cannot be tested has a placeholder instead, since the harness needs at least one request per
    question.

    doc, metadata: as in the harness's Instance
    method: the model's method that answers the requests
    requests: the requests of the probe; those of the control form are only in `instances`
    skipped: why the question is not tested
    instances: all requests, the probe's first, as the harness holds them
    judged: the verdicts, by pipeline; the instances share this mapping as their filtered responses
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

    of: all requests about the question
    answer: the model's answer; None until there is one
    """

    def __init__(self, of: QuestionRequests, idx: int, arguments: Arguments) -> None:
        super().__init__(REQUEST_TYPE, of.doc, arguments, idx, of.metadata, filtered_resps=of.judged)
        self.of, self.task = of, of.task
        self.answer: Answer | Broken | None = None

    @property
    def response(self) -> Response:
        """Return the answer in the harness's format: a generated text, or a log-likelihood in nats and False.

        The log-likelihood of a text whose tokens are scored is the sum over its tokens. Without a valid answer it is
        NaN, and a generated text is empty.
        """
        if self.answer is None or isinstance(self.answer, Broken):
            return "" if self.of.method == "generate_until" else (math.nan, False)
        if isinstance(self.answer, TokenScores):
            return sum(self.answer.loglikelihoods), False
        return self.answer


def n_request_characters(arguments: Sequence[Any]) -> int:
    """Return the number of characters of a request's texts, by which the time that a run still needs is estimated."""
    texts = [part[0] if isinstance(part, tuple) else part for part in arguments]
    return sum([len(text) for text in texts if isinstance(text, str)])


def request_key(method: str, arguments: Sequence[Any]) -> bytes:
    """Return a digest of a request, equal for equal requests.

    Requests are looked up by their digests, since the 336,900 texts of full MMLU would need too much memory.
    """
    parts = [part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str) for part in arguments]
    # The lengths make ("ab", "c") and ("a", "bc") differ.
    text = f"{method} {','.join([str(len(part)) for part in parts])} {''.join(parts)}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_SIZE).digest()
