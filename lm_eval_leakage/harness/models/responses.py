"""What a backend returns, as answers, or in words where it is no answer."""

from __future__ import annotations

import math
from typing import Any

from lm_eval.api.instance import Instance

from lm_eval_leakage.harness.models.question_requests import Broken
from lm_eval_leakage.logs.answer_store import Answer
from lm_eval_leakage.records import TokenScores

REQUEST_SHOWN = 60  # characters of a request that are shown in a message


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
    return Broken(f"the backend answered {request} with {short(response)}; it must be {wanted}")


def is_finite(answer: Answer) -> bool:
    """Whether an answer may be saved; non-finite numbers are requested again by the next run."""
    return not isinstance(answer, tuple) or math.isfinite(answer[0])


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= REQUEST_SHOWN else f"{text[:REQUEST_SHOWN]}..."


def as_usual(response: object) -> bool:
    """Whether a response can be compared: that of a broken backend may raise whatever is done with it."""
    return type(response) is tuple and len(response) == 2 and type(response[0]) is float


def wrong_number(responses: object, n_asked: int) -> str:
    if not isinstance(responses, (list, tuple)):
        return f"the backend gave {short(responses)} instead of a list of {n_asked} answers"
    return f"the backend gave {len(responses)} answers to {n_asked} requests, so they cannot be matched"


def stand_in(method: str) -> Instance:
    """A dummy request for a rank that has none of its own."""
    arguments: tuple[Any, ...] = ("Skipped", " question")
    if method == "generate_until":
        arguments = ("Skipped question", {"until": [], "max_gen_toks": 1, "do_sample": False, "temperature": 0.0})
    elif method == "token_scores":
        arguments = ("Skipped question",)
    return Instance(method, {}, arguments, 0)
