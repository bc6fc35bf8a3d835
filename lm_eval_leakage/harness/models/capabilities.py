"""Checks what a run's model can do: which request methods it supports, and whether a question fits its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.request_methods import MEANING, refuses
from lm_eval_leakage.harness.models.token_scores import offer_token_scores
from lm_eval_leakage.records import UntestableQuestion

BYTES_OF_A_CHARACTER = 4  # at most, in UTF-8
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
    texts = [
        context + continuation
        for context, continuation in asked
        if isinstance(context, str) and BYTES_OF_A_CHARACTER * len(context + continuation) + SPECIAL_TOKENS > window
    ]
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
