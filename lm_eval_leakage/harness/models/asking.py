"""Sends the requests of our tasks to a run's model; answers are reused, saved as they come, and checked.

The harness calls `getattr(lm, instance.request_type)(instances)` once for all our tasks of a run; with REQUEST_TYPE,
this is `ask`. Answers are saved when the backend reports them to its cache hook, which every backend of the harness
does.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import chain
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM

from lm_eval_leakage.harness.models.answer_faults import as_number, as_truth, fault_among, fault_of
from lm_eval_leakage.harness.models.model_identity import (
    as_loaded,
    identity_of,
    model_arguments,
    named_identity,
    refuse_replaced_since_noted,
)
from lm_eval_leakage.harness.models.processes import (
    are_replicas,
    is_first,
    n_processes,
    of_every,
    warn_of_repeated_work,
)
from lm_eval_leakage.harness.models.question_requests import (
    REQUEST_TYPE,
    Broken,
    LeakageInstance,
    Response,
    n_request_characters,
    request_key,
)
from lm_eval_leakage.harness.models.reporting import answers_reported
from lm_eval_leakage.harness.models.server_proof import accept_valid_answers_only
from lm_eval_leakage.harness.models.time_left import TimeLeft, announced
from lm_eval_leakage.harness.seams.backends import is_hf, offer_request_type
from lm_eval_leakage.harness.seams.evaluation import Evaluation
from lm_eval_leakage.harness.seams.refusals import Refusal
from lm_eval_leakage.harness.seams.run_results import on_next_results
from lm_eval_leakage.logs.answer_store import FOLDER, NAMING, Answer, AnswerStore
from lm_eval_leakage.logs.run import IDENTITY
from lm_eval_leakage.records import Skipped, TokenScores
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
IN_A_ROW = 5  # if this many randomly drawn questions fail in a row, the fault is not theirs
FIRST_PORTION = 256  # requests in the first call to a backend that may report answers only at the end of a call
INTERRUPTED = 2  # portions that a killed run may have left half answered: one, and what was not stored of another
SECONDS_OF_PORTION = 60.0  # length of later calls there: the most work that a kill can lose
STAND_INS: Mapping[str, tuple[Any, ...]] = {  # dummy requests for a rank that has none of its own
    "loglikelihood": ("Skipped", " question"),
    "generate_until": ("Skipped question", {"until": [], "max_gen_toks": 1, "do_sample": False, "temperature": 0.0}),
    "token_scores": ("Skipped question",),
}
ROUNDED = "; the others' values may differ by rounding from those of a run that was not interrupted"


def add_request_method(lm: Any) -> None:
    """Gives the model's class the method REQUEST_TYPE."""
    offer_request_type(lm, REQUEST_TYPE, ask)
    accept_valid_answers_only(type(getattr(lm, "lm", lm)))


def ask(lm: Any, instances: Sequence[LeakageInstance]) -> list[Response]:
    """Gives all requests of our tasks their answers; returns them in the harness's format. A question with an invalid
    answer is marked as skipped, with the reason."""
    tasks = dict.fromkeys(instance.task for instance in instances)
    warn_of_repeated_work(lm)
    resume, evaluation = any(task.resume for task in tasks), instances[0].task.evaluation
    with kept_answers(lm, resume, evaluation) as store:
        for method in sorted({instance.of.method for instance in instances}):
            requests = [
                instance for instance in instances if instance.of.method == method and instance.of.skipped is None
            ]
            BackendAnswers(lm, method, requests, store).collect()
    for instance in instances:
        answer = instance.answer
        if isinstance(answer, Broken) and instance.of.skipped is None:
            instance.of.skipped = Skipped(answer.reason)
    return [instance.response for instance in instances]


@contextmanager
def kept_answers(lm: Any, resume: bool, evaluation: Evaluation | None) -> Iterator[AnswerStore | None]:
    """Yield the run's answer store; None if it saves nothing, if resume is off, or if its model cannot be
    identified."""
    if evaluation is None or (output := evaluation.output_path) is None:  # nor are weights read for nothing
        yield None
        return
    named = named_identity(evaluation)
    if evaluation.identity:  # of a run of ours, which has compared its files
        named = as_loaded(evaluation.identity, named)
    else:
        refuse_replaced_since_noted(named, evaluation.model_args)
    if named:
        on_next_results(lambda results: results.setdefault(IDENTITY, named))
    identity = identity_of(evaluation, named) if resume else None
    if identity is None or (are_replicas(lm) and not is_first()):
        yield None
        return
    arguments = model_arguments(evaluation.model_args)
    name = next((str(arguments[argument]) for argument in NAMING if argument in arguments), "")
    store = AnswerStore((output.parent if output.suffix == ".json" else output) / FOLDER, identity, name)
    for difference in store.others():
        logger.warning("%s also has answers of another model, which are not used (%s)", store.folder, difference)
    try:
        yield store
    except BaseException:
        store.close()
        logger.warning("%d answers are saved in %s; the same command resumes from there", store.n_kept, store.folder)
        raise
    finally:
        store.close()


class BackendAnswers:
    """Gives every request of one of the model's methods its answer."""

    def __init__(self, lm: Any, method: str, instances: Sequence[LeakageInstance], store: AnswerStore | None) -> None:
        self.method, self.store = method, store
        self._is_alone = n_processes() == 1  # no other one computes, or has to stay in step
        self.model = lm.lm if isinstance(lm, CachingLM) else lm
        # the answer stores of a model's processes may differ, and then their requests would differ
        self.lm = self.model if are_replicas(lm) else lm
        self._asked: dict[bytes, LeakageInstance] = {}  # by key; of equal requests, the first
        self._copies: list[tuple[LeakageInstance, LeakageInstance]] = []  # each of the others, with the first
        for instance in instances:
            first = self._asked.setdefault(request_key(method, instance.args), instance)
            if first is not instance:
                self._copies.append((instance, first))
        self._time_left: TimeLeft | None = None

    def collect(self) -> None:
        """Collect the answers to all requests; equal requests are sent once."""
        stored = self._stored()
        remaining, as_before = self._remaining(stored) if stored else ([*self._asked], True)
        for key in stored.keys() - set(remaining):
            self._asked[key].answer = stored[key]
        if len(remaining) < len(self._asked):
            logger.warning(
                "resumed: %d of %d requests were answered by an earlier run%s",
                len(self._asked) - len(remaining) + sum(first.answer is not None for _, first in self._copies),
                len(self._asked) + len(self._copies),
                "" if as_before else ROUNDED,
            )
        self._time_left = announced(self.model, self.method, self._requests(remaining))
        self._ask(remaining)
        for copy, first in self._copies:
            assert first.answer is not None, "every request has an answer by now, if only that it failed"
            copy.answer = first.answer
        self._asked = {}  # the hook of the backend may hold this object longer

    def _stored(self) -> Mapping[bytes, Answer]:
        """Return the stored answers."""
        kept = (key for key, instance in self._asked.items() if instance.task.resume)
        stored = {} if self.store is None else self.store.find(kept)
        return of_every(stored)[0] if are_replicas(self.lm) else stored

    def _remaining(self, stored: Mapping[bytes, Answer]) -> tuple[list[bytes], bool]:
        """Return the requests that have to be sent, and whether they are computed together as if nothing was stored.
        If the backend says what it computes together, all requests of a portion are sent again if an answer of it is
        missing. If that holds for more portions than an interruption leaves, only the missing requests are sent: fewer
        questions were asked before, as in a first stage."""
        missing = [key for key in self._asked if key not in stored]
        together = getattr(self.model, "computed_together", None)
        if not missing or together is None or not self._is_alone or self.method != "loglikelihood":
            return missing, not missing
        keys = [*self._asked]
        portions = [keys[some] for some in together([*self._asked.values()])]
        portions = [portion for portion in portions if not stored.keys() >= set(portion)]
        if sum(not stored.keys().isdisjoint(portion) for portion in portions) > INTERRUPTED:
            return missing, False
        return [*chain.from_iterable(portions)], True  # whose portions are the same: they are of one size

    def _requests(self, keys: Sequence[bytes]) -> list[LeakageInstance]:
        return [self._asked[key] for key in keys]

    def receive(self, key: bytes, response: object) -> None:
        """Takes the response to a request; in any order, and possibly repeated."""
        answer, instance = checked_answer(self.method, response, "a request"), self._asked[key]
        if not isinstance(answer, Broken) and instance.answer != answer:
            if self._time_left is not None and instance.answer is None:
                self._time_left.done(n_request_characters(instance.args))
            instance.answer = answer
            if self.store is not None and instance.task.resume:
                self.store.add(key, answer)

    def _ask(self, remaining: Sequence[bytes]) -> None:
        # A rank with no requests left still makes the call, since the model's processes may wait for each other.
        n_padding = max(of_every(len(remaining))) - len(remaining)
        if not remaining and not n_padding:
            return
        with answers_reported(self.model, self._reported):
            for call in self._calls(remaining):
                self._ask_together(call, n_padding)
                if self.store is not None:
                    self.store.flush()

    def _reported(self, method: str, arguments: Any, response: object) -> None:
        # As the harness's cache, `hf` reports windows of rolling log-likelihoods, which nobody asked for.
        if method == self.method and (key := request_key(method, arguments)) in self._asked:
            self.receive(key, response)

    def _calls(self, remaining: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Splits requests into calls. One call if nothing is saved, if processes must stay in step, and for backends
        that report as they go, as `hf` does batch by batch. Others may report only at the end of a call (as vLLM
        does), so their calls are about a minute long."""
        reports = is_hf(self.model) or getattr(self.model, "reports_as_it_goes", False)
        if self.store is None or not self._is_alone or reports:
            yield remaining
            return
        size = FIRST_PORTION
        while call := remaining[:size]:
            start, remaining = time.monotonic(), remaining[size:]
            yield call
            # limits the growth, since a few short texts overestimate the speed
            faster = min(SECONDS_OF_PORTION / max(time.monotonic() - start, 1.0), 8)
            size = max(FIRST_PORTION, int(size * faster))

    def _ask_together(self, remaining: Sequence[bytes], n_padding: int) -> None:
        """Send all requests in one call, as the harness does; if that fails, send the unanswered ones question by
        question."""
        requests: list[Any] = [*self._requests(remaining)]
        requests += [requests[0] if requests else Instance(self.method, {}, STAND_INS[self.method], 0)] * n_padding
        try:
            trouble = self._sent(remaining, requests)
        except Exception as error:
            is_final = isinstance(error, Refusal) or not self._is_alone
            if is_final or not self._ask_one_by_one(remaining, f"{error!r}"):
                raise
            return
        if trouble and self._is_alone:
            self._ask_one_by_one(remaining, trouble)
        elif trouble:
            self._leave_out(remaining, trouble)

    def _ask_one_by_one(self, remaining: Sequence[bytes], trouble: str) -> bool:
        """Sends the unanswered requests one question at a time, so that only a faulty question is skipped. Stops after
        IN_A_ROW failures. Returns whether any question was answered."""
        by_question: dict[Any, list[bytes]] = defaultdict(list)
        for key in remaining:
            instance = self._asked[key]
            if instance.answer is None:
                by_question[instance.task, instance.doc_id].append(key)
        logger.warning("sending the requests of %d question(s) one by one: %s", len(by_question), trouble)
        questions = list(by_question.values())
        random.Random(0).shuffle(questions)  # neighbours may fail for the same reason
        n_failed = 0
        for keys in questions:
            reason = f"not tested, since {IN_A_ROW} others failed: {trouble}"
            if n_failed < IN_A_ROW:
                try:
                    reason = self._sent(keys, self._requests(keys))
                except Exception as error:  # a backend may raise anything
                    reason = f"the backend failed on it ({brief(error)})"
            if reason:
                self._leave_out(keys, reason)
            n_failed = n_failed + 1 if reason else 0
        return n_failed < IN_A_ROW and any(
            instance.answer is not None and not isinstance(instance.answer, Broken)
            for instance in self._asked.values()
        )

    def _sent(self, keys: Sequence[bytes], requests: Sequence[Any]) -> str:
        """Sends the requests, of which the first have these keys, in one call. Returns why the answers cannot be
        matched with them, or an empty text."""
        responses = getattr(self.lm, self.method)(requests)
        n_responses = len(responses) if isinstance(responses, Sized) else 0
        if n_responses != len(requests):
            return f"the backend gave {n_responses} answers to {len(requests)} requests, so they cannot be matched"
        for key, response in zip(keys, responses, strict=False):  # the others are padding
            instance = self._asked[key]
            if instance.answer is not response:  # it was reported before
                self.receive(key, response)
            if instance.answer is None:
                text = instance.args[-1 if self.method == "loglikelihood" else 0]
                instance.answer = checked_answer(self.method, response, f"request {instance.idx} ({brief(text)})")
        return ""

    def _leave_out(self, keys: Sequence[bytes], reason: str) -> None:
        for instance in self._requests(keys):
            if instance.answer is None:
                instance.answer = Broken(reason)


def checked_answer(method: str, response: object, request: str) -> Answer | Broken:
    """Return a backend's response as an answer, or as Broken if it is not a valid one."""
    if method == "token_scores" and isinstance(response, TokenScores):
        if fault := fault_among(response.loglikelihoods):
            return Broken(fault)
        columns = [
            tuple(map(as_number, column)) for column in (response.loglikelihoods, response.means, response.deviations)
        ]
        if len({*map(len, columns)}) == 1 and all(map(math.isfinite, chain(*columns))):
            return TokenScores(*columns)
    if method == "generate_until" and isinstance(response, str):
        return response
    if method == "loglikelihood" and isinstance(response, (tuple, list)) and len(response) == 2:
        loglikelihood, is_greedy = response[0], as_truth(response[1])
        if fault := fault_of(loglikelihood, f"the backend answered {request}"):
            return Broken(fault)
        if is_greedy is not None:
            number = as_number(loglikelihood)
            if type(response) is tuple and number is loglikelihood and is_greedy is response[1]:
                return response  # not in memory twice
            return number, is_greedy
    wanted = {"generate_until": "a text", "token_scores": "scores of its tokens"}.get(
        method, "a log-likelihood and a boolean"
    )
    return Broken(f"the backend answered {request} with {brief(response)}; it must be {wanted}")
