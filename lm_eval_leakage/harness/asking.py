"""Our tasks' requests, brought to the model: what was answered before is not asked again, what comes back is checked.

The harness calls `getattr(lm, instance.request_type)(instances)` once for all our tasks of a run; REQUEST_TYPE leads
it to `ask`. Answers are kept as the backend reports them to its cache hook, which every backend of the harness does.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook, CachingLM

from lm_eval_leakage.harness.answer_store import FOLDER, Answer, AnswerStore, request_key
from lm_eval_leakage.harness.evaluation import Evaluation
from lm_eval_leakage.harness.model_identity import identity_of
from lm_eval_leakage.harness.processes import are_replicas, from_first, is_first, most_of_all
from lm_eval_leakage.harness.token_scores import TokenAnswer
from lm_eval_leakage.records import Skipped, TokenScores

logger = logging.getLogger(__name__)

REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | TokenAnswer | str
NOT_ASKED: Mapping[str, Response] = {"loglikelihood": (math.nan, False), "token_scores": (math.nan, False)}
IN_A_ROW = 3  # questions that fail one after the other: then it is not the questions that are at fault
SHOWN = 60  # characters of a request in a message


class Asking(Protocol):
    """As much of a task as its requests need on their way to the model.

    resume: whether answers are kept and those of an earlier run used
    evaluation: the run, None where the task has met none
    """

    resume: bool
    evaluation: Evaluation | None

    def check_met(self, lm: object) -> None:
        """Raises RuntimeError where the requests were built without a look at the model that is to answer them."""


@dataclass
class LeakageInstance(Instance):  # type: ignore[misc]
    """One request about a question, or the place of a question that could not be tested: the harness needs at least
    one request per question.

    method: the model's method that answers it
    skipped: why the question is not tested; on its first request only
    """

    method: str = ""
    task: Any = None  # Asking; the harness's instances have a default for each of their fields
    skipped: Skipped | None = None


@dataclass(frozen=True)
class Broken:
    """What a backend gave in the place of an answer, in words."""

    reason: str


def offer_asking(lm: Any) -> None:
    """Make REQUEST_TYPE known to the model. To its class, since the harness's response cache hands unknown attributes
    of an object on to the model within it."""
    if not hasattr(type(lm), REQUEST_TYPE):
        setattr(type(lm), REQUEST_TYPE, ask)


def ask(lm: Any, instances: Sequence[LeakageInstance]) -> list[Response]:
    """The responses to all requests of our tasks, in order. A question with a request that has no sound answer is
    marked as skipped, with the reason, on its first instance."""
    tasks: dict[Asking, None] = dict.fromkeys(instance.task for instance in instances)
    for task in tasks:
        task.check_met(lm)
    answers: dict[int, Answer | Broken] = {}
    with kept_answers(lm, any(task.resume for task in tasks), instances[0].task.evaluation) as store:
        for method in sorted({instance.method for instance in instances}):
            places = [place for place, one in enumerate(instances) if one.method == method and one.skipped is None]
            found = _Asking(lm, method, [instances[place] for place in places], store).answers()
            answers.update(zip(places, found, strict=True))
    firsts = {(one.task, one.doc_id): one for one in reversed(instances)}
    for place, answer in answers.items():
        first = firsts[instances[place].task, instances[place].doc_id]
        if isinstance(answer, Broken) and first.skipped is None:
            first.skipped = Skipped(answer.reason)
    return [_response(answers.get(place), instance.method) for place, instance in enumerate(instances)]


@contextmanager
def kept_answers(lm: Any, resume: bool, evaluation: Evaluation | None) -> Iterator[AnswerStore | None]:
    """The store of a run; None where it saves nothing, does not want it, or cannot tell its model from another."""
    output = None if evaluation is None else evaluation.output_path
    identity = identity_of(evaluation) if resume and evaluation is not None and output is not None else None
    if output is None or identity is None or (are_replicas(lm) and not is_first()):
        yield None
        return
    store = AnswerStore((output.parent if output.suffix == ".json" else output) / FOLDER, identity)
    for difference in store.others():
        logger.warning("%s also holds answers of another model, which are not used (%s)", store.folder, difference)
    try:
        yield store
    except BaseException:
        store.close()
        logger.warning("%d answers are kept in %s; the same command goes on from there", store.n_kept, store.folder)
        raise
    finally:
        store.close()


def _response(answer: Answer | Broken | None, method: str) -> Response:
    """As the harness has it."""
    if answer is None or isinstance(answer, Broken):
        return NOT_ASKED.get(method, "")
    return TokenAnswer(answer) if isinstance(answer, TokenScores) else answer


def checked(method: str, response: object, request: str) -> Answer | Broken:
    """A backend's response as an answer; what else it may be is named."""
    if method == "token_scores" and isinstance(response, TokenAnswer):
        return response.tokens
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
        method, "a log-likelihood and a truth value"
    )
    return Broken(f"the backend answered {request} with {_short(response)}; it must be {wanted}")


def _is_finite(answer: Answer) -> bool:
    """Whether it may be kept; the next run asks again for a number that is not finite."""
    return not isinstance(answer, tuple) or math.isfinite(answer[0])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


class _Keeping(CacheHook):  # type: ignore[misc]
    """The backend's cache hook while our requests are asked: keeps answers as they come, and hands them on to the
    hook that was there."""

    def __init__(self, asking: _Asking, before: CacheHook) -> None:
        super().__init__(None)
        self._asking, self._before = asking, before

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self._before.add_partial(attr, req, res)
        if attr == self._asking.method:
            self._asking.receive(request_key(attr, req), res)


class _Asking:
    """All requests of one of the model's methods."""

    def __init__(self, lm: Any, method: str, instances: Sequence[LeakageInstance], store: AnswerStore | None) -> None:
        self.method, self.instances, self.store = method, instances, store
        self.model = lm.lm if isinstance(lm, CachingLM) else lm
        # caches of the processes of one model may differ, and then these would ask for different texts
        self.lm = self.model if are_replicas(lm) else lm
        self._keys = [request_key(method, instance.args) for instance in instances]
        self._may_keep = {key for key, one in zip(self._keys, instances, strict=True) if one.task.resume}
        self._answers: dict[bytes, Answer | Broken] = {}

    def answers(self) -> list[Answer | Broken]:
        """Of each instance. Requests of equal words are asked once."""
        found = {} if self.store is None else self.store.find(self._may_keep)
        if are_replicas(self.lm):
            found = from_first(found)
        self._answers.update(found)
        if found:
            n_found, n_all = sum(key in found for key in self._keys), len(self._keys)
            logger.warning("resumed: %d of %d requests were answered by an earlier run", n_found, n_all)
        remaining = {key: one for key, one in zip(self._keys, self.instances, strict=True) if key not in found}
        self._ask(remaining)
        return [self._answers[key] for key in self._keys]

    def receive(self, key: bytes, response: object) -> None:
        """A response as the backend reports it, in whatever order and as often as it likes."""
        answer = checked(self.method, response, "a request")
        if not isinstance(answer, Broken) and self._answers.get(key) != answer:
            self._answers[key] = answer
            if self.store is not None and key in self._may_keep and _is_finite(answer):
                self.store.add(key, answer)

    def _ask(self, remaining: Mapping[bytes, LeakageInstance]) -> None:
        # A rank that has nothing left to ask comes along: a model's own processes may wait for each other.
        n_padding = most_of_all(self.lm, len(remaining)) - len(remaining)
        if not remaining and not n_padding:
            return
        before = self.model.cache_hook
        self.model.set_cache_hook(_Keeping(self, before))
        try:
            self._ask_together(remaining, n_padding)
        finally:
            self.model.set_cache_hook(before)
            if self.store is not None:
                self.store.flush()

    def _ask_together(self, remaining: Mapping[bytes, LeakageInstance], n_padding: int) -> None:
        """All in one call, as the harness does; where that fails, what is not answered question by question."""
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

    def _ask_one_by_one(self, remaining: Mapping[bytes, LeakageInstance], trouble: str) -> bool:
        """What the backend did not report, one question at a time, so that a bad one costs itself alone. Whether any
        was answered: after IN_A_ROW failures no more are asked."""
        questions: dict[Any, dict[bytes, LeakageInstance]] = defaultdict(dict)
        for key, one in remaining.items():
            if key not in self._answers:
                questions[one.task, one.doc_id][key] = one
        logger.warning("asking %d question(s) one by one: %s", len(questions), trouble)
        n_failed = 0
        for own in questions.values():
            if n_failed == IN_A_ROW:
                self._leave_out(own, f"not asked, since {IN_A_ROW} before it failed: {trouble}")
                continue
            try:
                responses = self._call([*own.values()])
                fits = isinstance(responses, (list, tuple)) and len(responses) == len(own)
                failure = None if fits else _wrong_number(responses, len(own))
            except Exception as error:
                failure = f"the backend failed on it ({_short(error)})"
            n_failed = 0 if failure is None else n_failed + 1
            if failure is None:
                self._match(own, responses)
            else:
                self._leave_out(own, failure)
        return n_failed < IN_A_ROW and any(not isinstance(answer, Broken) for answer in self._answers.values())

    def _call(self, instances: Sequence[Any]) -> Any:
        return getattr(self.lm, self.method)(list(instances))

    def _match(self, asked: Mapping[bytes, LeakageInstance], responses: Sequence[object]) -> None:
        for number, (key, one) in enumerate(asked.items()):
            response = responses[number]
            self.receive(key, response)
            if key not in self._answers:
                request = (
                    f"request {one.idx} ({_short(one.args[-1] if self.method == 'loglikelihood' else one.args[0])})"
                )
                self._answers[key] = checked(self.method, response, request)

    def _leave_out(self, asked: Mapping[bytes, LeakageInstance], reason: str) -> None:
        for key in asked:
            self._answers.setdefault(key, Broken(reason))


def _wrong_number(responses: object, n_asked: int) -> str:
    if not isinstance(responses, (list, tuple)):
        return f"the backend gave {_short(responses)} instead of a list of {n_asked} answers"
    return f"the backend gave {len(responses)} answers to {n_asked} requests, so that none can be told from another"


def _stand_in(method: str) -> Instance:
    """For a rank that has nothing of its own to ask."""
    arguments: tuple[Any, ...] = ("Skipped", " question")
    if method == "generate_until":
        arguments = ("Skipped question", {"until": [], "max_gen_toks": 1, "do_sample": False, "temperature": 0.0})
    elif method == "token_scores":
        arguments = ("Skipped question",)
    return Instance(method, {}, arguments, 0)
