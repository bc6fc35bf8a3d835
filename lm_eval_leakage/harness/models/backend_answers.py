"""Sends requests to a model backend: reuses saved answers, saves new ones as they come, checks every response.

Answers are saved when the backend reports them to its cache hook, which every backend of the harness does.
"""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, Protocol

from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.announced import announced
from lm_eval_leakage.harness.models.processes import are_replicas, from_first, most_of_all
from lm_eval_leakage.harness.models.question_requests import Broken
from lm_eval_leakage.harness.models.request_tokens import n_characters
from lm_eval_leakage.harness.models.time_left import TimeLeft
from lm_eval_leakage.harness.models.token_scores import METHOD as TOKEN_SCORES
from lm_eval_leakage.harness.patches.cache_hook import answers_reported
from lm_eval_leakage.logs.answer_store import Answer, AnswerStore
from lm_eval_leakage.records import TokenScores

logger = logging.getLogger(__name__)

IN_A_ROW = 5  # if this many randomly drawn questions fail in a row, the fault is not theirs
REQUEST_SHOWN = 60  # characters of a request that are shown in a message
FIRST_PORTION = 256  # requests in the first call to a backend that may report answers only at the end of a call
SECONDS_OF_PORTION = 60.0  # length of later calls there: the most work that a kill can lose


class AskedRequest(Protocol):
    """The interface of a harness instance that sending it needs.

    args: arguments of the model's method
    idx: index among the requests of its question, which `task` and `doc_id` identify
    answer: None until there is one
    """

    @property
    def args(self) -> tuple[Any, ...]: ...

    @property
    def idx(self) -> int: ...

    @property
    def task(self) -> Any: ...

    @property
    def doc_id(self) -> int | None: ...

    answer: Answer | Broken | None


def checked(method: str, response: object, request: str) -> Answer | Broken:
    """A backend's response as an answer, or as Broken if it is not a valid one."""
    if method == "token_scores" and isinstance(response, TokenScores):
        return response
    if method == "generate_until" and isinstance(response, str):
        return response
    if method == "loglikelihood" and isinstance(response, (tuple, list)) and len(response) == 2:
        loglikelihood, greedy = response
        try:
            if not isinstance(loglikelihood, (str, bytes, bool)):
                return float(loglikelihood), bool(greedy)
        except (TypeError, ValueError):
            pass
    wanted = {"generate_until": "a text", "token_scores": "scores of its tokens"}.get(
        method, "a log-likelihood and a boolean"
    )
    return Broken(f"the backend answered {request} with {_short(response)}; it must be {wanted}")


def _is_finite(answer: Answer) -> bool:
    """Whether an answer may be saved; non-finite numbers are requested again by the next run."""
    return not isinstance(answer, tuple) or math.isfinite(answer[0])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= REQUEST_SHOWN else f"{text[:REQUEST_SHOWN]}..."


class BackendAnswers:
    """Gives every request of one of the model's methods its answer."""

    def __init__(self, lm: Any, method: str, instances: Sequence[AskedRequest], store: AnswerStore | None) -> None:
        self.method, self.store = method, store
        self.model = lm.lm if isinstance(lm, CachingLM) else lm
        # the answer stores of a model's processes may differ, and then their requests would differ
        self.lm = self.model if are_replicas(lm) else lm
        self._asked: dict[bytes, AskedRequest] = {}  # of equal requests, the first
        self._copies: list[tuple[AskedRequest, AskedRequest]] = []  # each of the others, with the first
        self._may_keep: set[bytes] | None = None if all(one.task.resume for one in instances) else set()
        for one in instances:
            key = request_key(method, one.args)
            first = self._asked.setdefault(key, one)
            if first is not one:
                self._copies.append((one, first))
            if self._may_keep is not None and one.task.resume:
                self._may_keep.add(key)
        self._time_left: TimeLeft | None = None

    def collect(self) -> None:
        """Equal requests are sent once."""
        found = (
            {} if self.store is None else self.store.find(self._asked if self._may_keep is None else self._may_keep)
        )
        if are_replicas(self.lm):
            found = from_first(found)
        for key, answer in found.items():
            self._asked[key].answer = answer
        if found:
            n_copies = sum(first.answer is not None for _, first in self._copies)
            n_all = len(self._asked) + len(self._copies)
            logger.warning("resumed: %d of %d requests were answered by an earlier run", len(found) + n_copies, n_all)
        remaining = {key: one for key, one in self._asked.items() if key not in found} if found else self._asked
        self._time_left = announced(self.model, self.method, remaining.values())
        self._ask(remaining)
        for copy, first in self._copies:
            assert first.answer is not None, "every request has an answer by now, if only that it failed"
            copy.answer = first.answer
        self._asked = {}  # the hook of the backend may hold this object longer

    def receive(self, key: bytes, response: object, arguments: Sequence[Any] = ()) -> None:
        """Takes a response that the backend reports; in any order, and possibly repeated."""
        answer, asked = checked(self.method, response, "a request"), self._asked.get(key)
        if asked is not None and not isinstance(answer, Broken) and asked.answer != answer:
            if self._time_left is not None and asked.answer is None:
                self._time_left.done(n_characters(arguments))
            asked.answer = answer
            may_keep = self._may_keep is None or key in self._may_keep
            if self.store is not None and may_keep and _is_finite(answer):
                self.store.add(key, answer)

    def _ask(self, remaining: Mapping[bytes, AskedRequest]) -> None:
        # A rank with no requests left still makes the call, since the model's processes may wait for each other.
        n_padding = most_of_all(self.lm, len(remaining)) - len(remaining)
        if not remaining and not n_padding:
            return
        # token scores are a method of ours, whose answers the harness's cache would store but never look up
        with answers_reported(self.model, self._reported, to_cache=lambda method: method != TOKEN_SCORES):
            try:
                for portion in self._portions(remaining):
                    self._ask_together(portion, n_padding)
                    self._flush()
            finally:
                self._flush()

    def _reported(self, method: str, arguments: Any, response: object) -> None:
        if method == self.method:
            self.receive(request_key(method, arguments), response, arguments)

    def _flush(self) -> None:
        if self.store is not None:
            self.store.flush()

    def _portions(self, remaining: Mapping[bytes, AskedRequest]) -> Iterator[Mapping[bytes, AskedRequest]]:
        """Splits requests into calls. One call if nothing is saved, if processes must stay in step, and for backends
        that report as they go, as `hf` does batch by batch. Others may report only at the end of a call (as vLLM
        does), so their calls are about a minute long."""
        alone = self.lm.world_size == 1 and not are_replicas(self.lm)
        reports = isinstance(self.model, HFLM) or getattr(self.model, "reports_as_it_goes", False)
        if self.store is None or not alone or reports:
            yield remaining
            return
        left, size = iter(remaining.items()), FIRST_PORTION
        while portion := dict(islice(left, size)):
            begun = time.monotonic()
            yield portion
            faster = SECONDS_OF_PORTION / max(time.monotonic() - begun, 1.0)
            size = max(
                FIRST_PORTION, int(size * min(faster, 8))
            )  # limits the growth, since a few short texts overestimate the speed

    def _ask_together(self, remaining: Mapping[bytes, AskedRequest], n_padding: int) -> None:
        """All in one call, as the harness does; if that fails, sends unanswered requests question by question."""
        alone = self.lm.world_size == 1 and not are_replicas(self.lm)
        stand_in = next(iter(remaining.values()), None) or _stand_in(self.method)
        try:
            responses = self._call([*remaining.values(), *[stand_in] * n_padding])
        except Exception as error:
            if not alone or not self._ask_one_by_one(remaining, f"{error!r}"):
                raise
            return
        n_given = len(responses) if isinstance(responses, (list, tuple)) else None
        if n_given == len(remaining) + n_padding:
            self._match(remaining, responses)
        elif alone:
            self._ask_one_by_one(remaining, _wrong_number(responses, len(remaining)))
        else:
            self._leave_out(remaining, _wrong_number(responses, len(remaining) + n_padding))

    def _ask_one_by_one(self, remaining: Mapping[bytes, AskedRequest], trouble: str) -> bool:
        """Sends the unanswered requests one question at a time, so that only a faulty question is skipped. Stops after
        IN_A_ROW failures. Returns whether any question was answered."""
        by_question: dict[Any, dict[bytes, AskedRequest]] = defaultdict(dict)
        for key, one in remaining.items():
            if one.answer is None:
                by_question[one.task, one.doc_id][key] = one
        logger.warning("sending the requests of %d question(s) one by one: %s", len(by_question), trouble)
        questions = list(by_question.values())
        random.Random(0).shuffle(questions)  # neighbours may fail for the same reason
        n_failed = 0
        for own in questions:
            if n_failed == IN_A_ROW:
                self._leave_out(own, f"not tested, since {IN_A_ROW} others failed: {trouble}")
            else:
                n_failed = 0 if self._ask_alone(own) else n_failed + 1
        return n_failed < IN_A_ROW and any(
            one.answer is not None and not isinstance(one.answer, Broken) for one in self._asked.values()
        )

    def _ask_alone(self, own: Mapping[bytes, AskedRequest]) -> bool:
        """Sends one question's requests. Returns whether the backend gave as many answers as requests."""
        try:
            responses = self._call([*own.values()])
        except Exception as error:  # a backend may raise anything
            self._leave_out(own, f"the backend failed on it ({_short(error)})")
            return False
        if not isinstance(responses, (list, tuple)) or len(responses) != len(own):
            self._leave_out(own, _wrong_number(responses, len(own)))
            return False
        self._match(own, responses)
        return True

    def _call(self, instances: Sequence[Any]) -> Any:
        return getattr(self.lm, self.method)(list(instances))

    def _match(self, asked: Mapping[bytes, AskedRequest], responses: Sequence[object]) -> None:
        for number, (key, one) in enumerate(asked.items()):
            response = responses[number]
            if _as_usual(response) and response == one.answer:  # it was reported before
                continue
            self.receive(key, response, one.args)
            if one.answer is None:
                text = one.args[-1 if self.method == "loglikelihood" else 0]
                answer = checked(self.method, response, f"request {one.idx} ({_short(text)})")
                one.answer = answer

    def _leave_out(self, asked: Mapping[bytes, AskedRequest], reason: str) -> None:
        for one in asked.values():
            if one.answer is None:
                one.answer = Broken(reason)


def _as_usual(response: object) -> bool:
    """Whether a response can be compared: that of a broken backend may raise whatever is done with it."""
    return type(response) is tuple and len(response) == 2 and type(response[0]) is float


def request_key(method: str, arguments: Sequence[Any]) -> bytes:
    """A digest of a request, equal for equal requests; the 336,900 texts of full MMLU would need too much memory."""
    parts = [part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str) for part in arguments]
    whole = f"{method} {','.join([str(len(part)) for part in parts])} {''.join(parts)}"
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _wrong_number(responses: object, n_asked: int) -> str:
    if not isinstance(responses, (list, tuple)):
        return f"the backend gave {_short(responses)} instead of a list of {n_asked} answers"
    return f"the backend gave {len(responses)} answers to {n_asked} requests, so they cannot be matched"


def _stand_in(method: str) -> Instance:
    """A dummy request for a rank that has none of its own."""
    arguments: tuple[Any, ...] = ("Skipped", " question")
    if method == "generate_until":
        arguments = ("Skipped question", {"until": [], "max_gen_toks": 1, "do_sample": False, "temperature": 0.0})
    elif method == "token_scores":
        arguments = ("Skipped question",)
    return Instance(method, {}, arguments, 0)
