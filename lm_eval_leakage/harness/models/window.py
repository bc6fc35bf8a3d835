"""Does a question fit the window of the run's model? A truncated question would be compared with itself, cut."""

from __future__ import annotations

from collections.abc import Sequence

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
