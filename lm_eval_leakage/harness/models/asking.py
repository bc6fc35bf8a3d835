"""Asks a run's model: which request methods it supports, whether a question fits its window, and the requests of our
tasks, whose answers are saved and reused.

The harness calls `getattr(lm, instance.request_type)(instances)` once for all our tasks of a run; with REQUEST_TYPE,
this is `ask`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.backend_answers import BackendAnswers
from lm_eval_leakage.harness.models.model_identity import identity_of, named_identity
from lm_eval_leakage.harness.models.processes import are_replicas, is_first, warn_of_repeated_work
from lm_eval_leakage.harness.models.question_requests import (
    MEANING,
    REQUEST_TYPE,
    Broken,
    LeakageInstance,
    Response,
    refuses,
)
from lm_eval_leakage.harness.models.server_responses import accept_valid_answers_only
from lm_eval_leakage.harness.models.token_scores import offer_token_scores
from lm_eval_leakage.harness.seams.backends import offer_request_type
from lm_eval_leakage.harness.seams.call_frames import Evaluation
from lm_eval_leakage.harness.seams.results import on_next_results
from lm_eval_leakage.logs.answer_store import FOLDER, AnswerStore
from lm_eval_leakage.logs.run import IDENTITY
from lm_eval_leakage.records import Skipped, UntestableQuestion

logger = logging.getLogger(__name__)
SPECIAL_TOKENS = 8  # more than any tokenizer adds to a text


def lacking(lm: Any, need: str) -> str | None:
    """Why `lm` cannot answer requests of the method that a probe needs, as a sentence; None if it can."""
    model = getattr(lm, "lm", lm)  # unwraps the harness's response cache
    if need == "token_scores":
        can = offer_token_scores(lm)
    else:
        can = isinstance(model, HFLM) or not refuses(getattr(model, need, None), [])
    return None if can else f"{type(model).__name__} {MEANING[need]}"


class LongerThanWindow(UntestableQuestion):
    """A question that does not fit into the window of the run's model."""


def longer_than_window(lm: object | None, asked: Sequence[tuple[str, str]]) -> str | None:
    """Why the texts (context, continuation) do not all fit into the model's window, or None.

    Only texts with more bytes than the window has tokens are tokenised, since a token is at least one byte.
    If a model does not reveal its window or its tokenizer (chat APIs, fakes), texts are assumed to fit.
    """
    window = getattr(lm, "max_length", None)
    encode = getattr(lm, "tok_encode", None)
    if not isinstance(window, int) or encode is None:
        return None
    # a chat model behind an API takes turns instead of a text, and truncates them itself
    texts = [context + continuation for context, continuation in asked if isinstance(context, str)]
    long = [text for text in texts if len(text.encode("utf-8", "replace")) + SPECIAL_TOKENS > window]
    n_tokens = max((len(encode(text)) for text in long), default=0)
    if n_tokens <= window:
        return None
    return f"its text has {n_tokens} tokens; the model's window holds {window}, so raise max_length if possible"


def n_tokens_of(lm: object | None, text: str) -> int:
    """Number of tokens of `text`; estimated as one per three bytes if the model does not reveal its tokenizer."""
    encode = getattr(lm, "tok_encode", None)
    encoded = encode(text) if encode is not None else [text]
    hidden = any(isinstance(token, str) for token in encoded)
    return 1 + len(text.encode("utf-8", "replace")) // 3 if hidden else len(encoded)


def add_request_method(lm: Any) -> None:
    """Gives the model's class the method REQUEST_TYPE."""
    offer_request_type(lm, REQUEST_TYPE, ask)
    accept_valid_answers_only(type(getattr(lm, "lm", lm)))


def ask(lm: Any, instances: Sequence[LeakageInstance]) -> list[Response]:
    """Gives all requests of our tasks their answers; returns them in the harness's format. A question with an invalid
    answer is marked as skipped, with the reason."""
    tasks = dict.fromkeys(instance.task for instance in instances)
    for task in tasks:
        task.check_met(lm)
    warn_of_repeated_work(lm)
    resume, evaluation = any(task.resume for task in tasks), instances[0].task.evaluation
    with kept_answers(lm, resume, evaluation) as store:
        for method in sorted({instance.of.method for instance in instances}):
            asked = [one for one in instances if one.of.method == method and one.of.skipped is None]
            BackendAnswers(lm, method, asked, store).collect()
    for one in instances:
        answer = one.answer
        if isinstance(answer, Broken) and one.of.skipped is None:
            one.of.skipped = Skipped(answer.reason)
    return [one.response for one in instances]


@contextmanager
def kept_answers(lm: Any, resume: bool, evaluation: Evaluation | None) -> Iterator[AnswerStore | None]:
    """The run's answer store; None if it saves nothing, if resume is off, or if its model cannot be identified."""
    output = None if evaluation is None else evaluation.output_path
    identity = identity_of(evaluation) if resume and evaluation is not None and output is not None else None
    if evaluation is not None and evaluation.model is not None and output is not None:
        told = named_identity(evaluation)
        on_next_results(lambda results: results.setdefault(IDENTITY, told))
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
