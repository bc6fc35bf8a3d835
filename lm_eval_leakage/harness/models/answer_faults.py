"""Decides which log-likelihoods of a backend count, in audits as in ordinary tasks."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
ROUNDING = 1e-3  # nats by which a log-likelihood may exceed 0
UNASKED = "_unasked_by_lm_eval_leakage"  # of a task: a function that says why a row was not asked


class NoAnswer(float):
    """NaN with the reason why there is no log-likelihood."""

    reason: str

    def __new__(cls, reason: str) -> NoAnswer:
        value = super().__new__(cls, math.nan)
        value.reason = reason
        return value


def as_number(value: Any) -> float:
    """Return a real scalar of Python, numpy, torch or the like as a float; NaN for a truth value, a text, an array
    with an axis and anything else that is no number."""
    if type(value) is float:
        return value
    try:
        number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        if getattr(number, "ndim", 0) or isinstance(number, (str, bytes, bool)):
            return math.nan
        return float(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch raises the last for a tensor without data
        return math.nan


def as_truth(value: Any) -> bool | None:
    """Return a truth value of Python, numpy, torch or the like, or a number that is one, as a bool; False for None;
    None for a text, an array with an axis and anything else that is neither true nor false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def fault_of(value: Any, answered: str = "the backend answered a request") -> str:
    """Return what is wrong with the log-likelihood that was `answered`, as a sentence; empty if nothing."""
    if isinstance(value, NoAnswer):
        return value.reason
    if -math.inf < as_number(value) <= ROUNDING:
        return ""
    return f"{answered} with {brief(value)}; it must be finite and at most 0"


def fault_among(values: Iterable[Any], answered: str = "the backend answered a request") -> str:
    """Return the first fault of any value; empty if there is none."""
    values = [*values]
    if {*map(type, values)} == {float} and math.isfinite(sum(values)) and max(values) <= ROUNDING:
        return ""  # as nearly always, and fast
    return next(filter(None, (fault_of(value, answered) for value in values)), "")


def fault_of_responses(responses: Iterable[Any]) -> str:
    """Return what is wrong with log-likelihoods, each alone or before whether it is greedy; empty if nothing."""
    return fault_among(
        response[0] if isinstance(response, (tuple, list)) and len(response) == 2 else response
        for response in responses
    )


def without_answer(task: Any, doc: Any, results: Sequence[Any]) -> bool:
    """Return whether a question of an ordinary task has to be left out, and log why."""
    why_unasked = vars(task).get(UNASKED)
    if why_unasked is not None and why_unasked(doc):
        return True
    if task.OUTPUT_TYPE == "generate_until":
        return False
    fault = fault_of_responses(results)
    if fault:
        logger.warning("a question of %s is left out, of its accuracy too: %s", task.task_name, fault)
    return bool(fault)
