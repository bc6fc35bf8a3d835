"""What a run's model can do for our tasks: which methods it has, and whether a question fits its window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.token_scores import offer_token_scores

MEANING = {
    "loglikelihood": "gives no log-likelihoods of a given text",
    "generate_until": "does not generate text",
    "token_scores": "does not show the distribution of the next token (`hf` and `hf-prefix-tree` do)",
}
SPECIAL_TOKENS = 8  # more than any tokenizer puts around a text


def lacking(lm: Any, need: str) -> str | None:
    """What `lm` cannot do of what a probe needs, in words; None where it can."""
    model = getattr(lm, "lm", lm)  # below the harness's response cache
    if need == "token_scores":
        can = offer_token_scores(lm)
    else:
        can = isinstance(model, HFLM) or _answers_nothing(getattr(model, need, None))
    return None if can else f"{type(model).__name__} {MEANING[need]}"


def _answers_nothing(method: Any) -> bool:
    """Whether a method takes an empty list. Chat models have it by inheritance and raise NotImplementedError."""
    try:
        method([])
    except NotImplementedError:
        return False
    except Exception:  # a method that needs requests to work is there
        return method is not None
    return True


def longer_than_window(lm: object | None, asked: Sequence[tuple[str, str]]) -> str | None:
    """Why the texts (context, continuation) do not all fit the model, or None.

    Only texts with more bytes than the window has tokens are tokenised: a token stands for at least a byte.
    A model that hides its window or its tokenizer (chat APIs, a fake) is taken to have room.
    """
    window = getattr(lm, "max_length", None)
    encode = getattr(lm, "tok_encode", None)
    if not isinstance(window, int) or encode is None:
        return None
    # a chat model behind an API takes turns instead of a text, and cuts them by itself
    texts = [context + continuation for context, continuation in asked if isinstance(context, str)]
    long = [text for text in texts if len(text.encode("utf-8", "replace")) + SPECIAL_TOKENS > window]
    n_tokens = max((len(encode(text)) for text in long), default=0)
    if n_tokens <= window:
        return None
    return f"its text has {n_tokens} tokens; the model's window holds {window}, so raise max_length if it can be"


def n_tokens_of(lm: object | None, text: str) -> int:
    """How many tokens `text` has for the model; for one that hides its tokenizer, one for every three bytes."""
    encode = getattr(lm, "tok_encode", None)
    encoded = encode(text) if encode is not None else [text]
    hidden = any(isinstance(token, str) for token in encoded)
    return 1 + len(text.encode("utf-8", "replace")) // 3 if hidden else len(encoded)
