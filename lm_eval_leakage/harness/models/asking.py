"""Our tasks' requests, brought to the model, and its answers to the tasks.

The harness calls `getattr(lm, instance.request_type)(instances)` once for all our tasks of a run; REQUEST_TYPE leads
it to `ask`.
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
from lm_eval_leakage.harness.models.processes import are_replicas, is_first
from lm_eval_leakage.harness.models.token_scores import TokenAnswer
from lm_eval_leakage.harness.patches.call_frames import Evaluation
from lm_eval_leakage.harness.patches.request_type import offer_request_type
from lm_eval_leakage.logs.answer_store import FOLDER, Answer, AnswerStore
from lm_eval_leakage.records import Skipped, TokenScores

logger = logging.getLogger(__name__)

REQUEST_TYPE = "leakage"
Response = tuple[float, bool] | TokenAnswer | str
NOT_ASKED: Mapping[str, Response] = {"loglikelihood": (math.nan, False), "token_scores": (math.nan, False)}


class AskedTask(Protocol):
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
    task: Any = None  # AskedTask; the harness's instances have a default for each of their fields
    skipped: Skipped | None = None


def offer_asking(lm: Any) -> None:
    """Make REQUEST_TYPE known to the model."""
    offer_request_type(lm, REQUEST_TYPE, ask)


def ask(lm: Any, instances: Sequence[LeakageInstance]) -> list[Response]:
    """The responses to all requests of our tasks, in order. A question with a request that has no sound answer is
    marked as skipped, with the reason, on its first instance."""
    tasks: dict[AskedTask, None] = dict.fromkeys(instance.task for instance in instances)
    for task in tasks:
        task.check_met(lm)
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
