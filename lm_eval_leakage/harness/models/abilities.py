"""Finds out what a loaded model can answer: which request methods it supports, and whether a question fits its
window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval_leakage.harness.models.question_requests import (
    REFUSAL_BY_METHOD,
    refuses,
)
from lm_eval_leakage.harness.models.request_tokens import has_tokenizer
from lm_eval_leakage.harness.seams.backends import is_hf
from lm_eval_leakage.logs.audit_line import too_long
from lm_eval_leakage.records import UntestableQuestion

SPECIAL_TOKENS = 8  # more than any tokenizer adds to a text


def lacking(lm: Any, need: str) -> str | None:
    """Return why `lm` cannot answer requests of the method that a probe needs, as a sentence; None if it can."""
    model = getattr(lm, "lm", lm)  # unwraps the harness's response cache
    if need == "token_scores":
        from lm_eval_leakage.harness.models.token_scores import offer_token_scores  # needs torch, which takes a second

        can = offer_token_scores(lm)
    else:
        can = is_hf(model) or not refuses(getattr(model, need, None), [])
    return None if can else f"{type(model).__name__} {REFUSAL_BY_METHOD[need]}"


class LongerThanWindow(UntestableQuestion):
    """A question that does not fit into the window of the run's model."""


def longer_than_window(lm: object | None, requests: Sequence[tuple[str, str]], n_generated: int = 0) -> str | None:
    """Return why the texts (context, continuation) do not all fit into the model's window; None if they do.

    Only texts with more bytes than the window has tokens are tokenised, since a token is at least one byte.
    If a model does not reveal its window or its tokenizer (chat APIs, fakes), texts are assumed to fit.

    n_generated: tokens that are generated after each text, at most
    """
    window = getattr(lm, "max_length", None)
    encode = getattr(lm, "tok_encode", None)
    if not isinstance(window, int) or encode is None:
        return None
    # a chat model behind an API takes turns instead of a text, and truncates them itself
    texts = [context + continuation for context, continuation in requests if isinstance(context, str)]
    long = [text for text in texts if len(text.encode("utf-8", "replace")) + SPECIAL_TOKENS + n_generated > window]
    n_tokens = max((len(encode(text)) for text in long), default=0)
    return None if n_tokens + n_generated <= window else too_long(n_tokens + n_generated, window)


def n_tokens_of(lm: Any, text: str) -> int:
    """Return the number of tokens of `text`; one per three bytes if the model does not reveal its tokenizer."""
    return len(lm.tok_encode(text)) if has_tokenizer(lm) else 1 + len(text.encode("utf-8", "replace")) // 3
