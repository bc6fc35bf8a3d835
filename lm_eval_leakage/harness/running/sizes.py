"""What a run will ask, known before the model is loaded: whether its backend can answer, how many requests, and about
how many tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import lm_eval.models  # noqa: F401 (registers the harness's models, before ours)
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.request_methods import MEANING
from lm_eval_leakage.harness.patches.registries import add_models
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.records import UntestableQuestion

CHARACTERS_OF_A_TOKEN = 4  # of English text, by most tokenizers
QUESTIONS_MEASURED = 60  # drawn at random; the rest is taken to be like them
SHARING = "hf-prefix-tree"  # the backend that reads a context once for all of its continuations


@dataclass(frozen=True)
class RunSize:
    """n_tokens: estimated from characters, including the contexts that are repeated with every request"""

    n_requests: int
    n_tokens: int


def cannot_answer(model: str, need: str) -> str | None:
    """Why the backend `model` cannot answer requests of this kind, known without loading it; None if it may.

    Raises ValueError if there is no such backend, ImportError if it needs a package that is not installed.
    """
    add_models()
    kind = get_model(model)
    if need == "token_scores":
        can = issubclass(kind, HFLM)
    else:
        method = getattr(kind, need, None)
        can = method is not None and not _always_refuses(method)
    return None if can else f"{model} {MEANING[need]}"


def _always_refuses(method: Callable[..., Any]) -> bool:
    """Chat backends inherit the method and raise NotImplementedError, whatever they are asked."""
    try:
        method(None, [])
    except NotImplementedError:
        return True
    except Exception:  # it needs a loaded model
        return False
    return False


def needs_of(task: Any) -> str:
    """The method of the model that answers a task's requests."""
    if isinstance(task, LeakageTask):
        return str(task.probe.needs)
    return "generate_until" if task.OUTPUT_TYPE == "generate_until" else "loglikelihood"


def size_of_run(some: Iterable[tuple[Any, Any]], n_questions: int, model: str) -> RunSize:
    """Of `n_questions`, judged by some of them, as pairs of task and row."""
    measured = [_texts(task, doc) for task, doc in some]
    scale = n_questions / len(measured) if measured else 0.0
    n_requests = sum(map(len, measured))
    n_characters = sum(_n_characters(texts, model == SHARING) for texts in measured)
    return RunSize(round(n_requests * scale), round(n_characters * scale / CHARACTERS_OF_A_TOKEN))


def why_no_request(task: Any, doc: Any) -> str:
    """Why a row leads to no request."""
    try:
        task.pooled_probe.requests(task.question(doc))
    except UntestableQuestion as error:
        return str(error)
    return "its questions cannot be asked"


def _n_characters(texts: Sequence[tuple[str, str]], is_shared: bool) -> int:
    contexts = [context for context, _ in texts]
    once = set(contexts) if is_shared else contexts
    return sum(map(len, once)) + sum(len(continuation) for _, continuation in texts)


def _texts(task: Any, doc: Any) -> list[tuple[str, str]]:
    """Context and continuation of every request about one row; none if there is no question in it."""
    if isinstance(task, LeakageTask):
        try:
            question = task.question(doc)
            requests = task.pooled_probe.requests(question)
            if task.asks_control:
                requests += task.pooled_probe.control(question)
        except UntestableQuestion:
            return []
        return [(request.context, request.continuation) for request in requests]
    try:
        prompt = task.doc_to_text(doc)
        choices = task.doc_to_choice(doc) if task.OUTPUT_TYPE == "multiple_choice" else [""]
    except Exception:  # a task's templates and functions may raise anything; the run itself will say so
        return []
    examples = (task.config.num_fewshot or 0) + 1
    return [(str(prompt) * examples, str(choice)) for choice in choices]
