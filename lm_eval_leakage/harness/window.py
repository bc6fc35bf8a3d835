"""Does a question fit the window of the run's model? A truncated question would be compared with itself, cut."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

MARK = "_tells_leakage_tasks"
SPECIAL_TOKENS = 8  # more than any tokenizer puts around a text


def longer_than_window(lm: object | None, asked: Sequence[tuple[str, str]]) -> str | None:
    """Why the texts (context, continuation) do not all fit the model, or None.

    Only texts with more bytes than the window has tokens are tokenised: a token stands for at least a byte.
    A model that hides its window or its tokenizer (chat APIs, a fake) is taken to have room.
    """
    window = getattr(lm, "max_length", None)
    encode = getattr(lm, "tok_encode", None)
    if not isinstance(window, int) or encode is None:
        return None
    texts = [context + continuation for context, continuation in asked]
    long = [text for text in texts if len(text.encode("utf-8", "replace")) + SPECIAL_TOKENS > window]
    n_tokens = max((len(encode(text)) for text in long), default=0)
    if n_tokens <= window:
        return None
    return f"its text has {n_tokens} tokens; the model's window holds {window}, so raise max_length if it can be"


def tell_model_to(task_class: type) -> None:
    """Have `evaluate` set `lm` on tasks of `task_class` before they build requests: the harness does not pass
    it to them, and only the model knows which questions are longer than its window."""
    from lm_eval import evaluator

    original: Callable[..., Any] = evaluator.evaluate
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def evaluate(lm: Any, task_dict: Any, *args: Any, **kwargs: Any) -> Any:
        for task in _tasks(task_dict):
            if isinstance(task, task_class):
                task.lm = lm  # type: ignore[attr-defined]
        return original(lm, task_dict, *args, **kwargs)

    setattr(evaluate, MARK, True)
    evaluator.evaluate = evaluate


def _tasks(task_dict: Any) -> list[object]:
    """The tasks of either form of dictionary that `evaluate` takes: flat, or nested below groups."""
    if not isinstance(task_dict, dict):
        return [task_dict]
    return [task for value in task_dict.values() for task in _tasks(value)]
