"""Sends the requests of our tasks to the model and returns its responses; saves and reuses answers.

The harness calls `getattr(lm, instance.request_type)(instances)` once for all our tasks of a run; with REQUEST_TYPE,
this is `ask`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from lm_eval.api.instance import Instance

from lm_eval_leakage.harness.models.backend_answers import BackendAnswers, Broken
from lm_eval_leakage.harness.models.model_identity import identity_of
from lm_eval_leakage.harness.models.processes import are_replicas, is_first, warn_of_repeated_work
from lm_eval_leakage.harness.patches.cache_hook import hook_is_known
from lm_eval_leakage.harness.patches.call_frames import Evaluation
from lm_eval_leakage.harness.patches.request_type import offer_request_type
from lm_eval_leakage.logs.answer_store import FOLDER, Answer, AnswerStore
from lm_eval_leakage.records import Skipped, TokenScores

logger = logging.getLogger(__name__)

REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | str
NOT_ASKED: Mapping[str, Response] = {"loglikelihood": (math.nan, False), "token_scores": (math.nan, False)}


class AskedTask(Protocol):
    """The interface of a task that sending its requests needs.

    resume: whether answers are saved, and those of an earlier run reused
    evaluation: the run; None before it has started
    """

    resume: bool
    evaluation: Evaluation | None

    def check_met(self, lm: object) -> None:
        """Raises RuntimeError if the requests were not built for the model that is to answer them."""


@dataclass
class LeakageInstance(Instance):  # type: ignore[misc]
    """One request about a question, or a placeholder for a question that cannot be tested, since the harness needs at
    least one request per question.

    method: the model's method that answers it
    skipped: why the question is not tested; set on its first request only
    tokens: scores of every token, if the method gives them; the response is then their sum
    """

    method: str = ""
    task: Any = None  # an AskedTask; needs a default, since the fields before it have one
    skipped: Skipped | None = None
    tokens: TokenScores | None = None


def add_request_method(lm: Any) -> None:
    """Gives the model's class the method REQUEST_TYPE."""
    offer_request_type(lm, REQUEST_TYPE, ask)
    hook_is_known()  # a user learns before the run that a kill would cost more


def ask(lm: Any, instances: Sequence[LeakageInstance]) -> list[Response]:
    """The responses to all requests of our tasks, in order. A question with an invalid answer is marked as skipped,
    with the reason, on its first instance."""
    tasks: dict[AskedTask, None] = dict.fromkeys(instance.task for instance in instances)
    for task in tasks:
        task.check_met(lm)
    warn_of_repeated_work(lm)
    answers: dict[int, Answer | Broken] = {}
    with kept_answers(lm, any(task.resume for task in tasks), instances[0].task.evaluation) as store:
        for method in sorted({instance.method for instance in instances}):
            places = [place for place, one in enumerate(instances) if one.method == method and one.skipped is None]
            found = BackendAnswers(lm, method, [instances[place] for place in places], store).answers()
            answers.update(zip(places, found, strict=True))
    firsts = {(one.task, one.doc_id): one for one in reversed(instances)}
    for place, answer in answers.items():
        first = firsts[instances[place].task, instances[place].doc_id]
        if isinstance(answer, Broken) and first.skipped is None:
            first.skipped = Skipped(answer.reason)
        if isinstance(answer, TokenScores):
            instances[place].tokens = answer
    return [_response(answers.get(place), instance.method) for place, instance in enumerate(instances)]


@contextmanager
def kept_answers(lm: Any, resume: bool, evaluation: Evaluation | None) -> Iterator[AnswerStore | None]:
    """The run's answer store; None if it saves nothing, if resume is off, or if its model cannot be identified."""
    output = None if evaluation is None else evaluation.output_path
    identity = identity_of(evaluation) if resume and evaluation is not None and output is not None else None
    if output is None or identity is None or (are_replicas(lm) and not is_first()):
        yield None
        return
    store = AnswerStore((output.parent if output.suffix == ".json" else output) / FOLDER, identity)
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


def _response(answer: Answer | Broken | None, method: str) -> Response:
    """The response in the harness's format."""
    if answer is None or isinstance(answer, Broken):
        return NOT_ASKED.get(method, "")
    return (sum(answer.loglikelihoods), False) if isinstance(answer, TokenScores) else answer
