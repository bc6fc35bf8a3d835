"""A request as the model's methods take it: in the frame of system instruction and chat template, with arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval_leakage.harness.models.capabilities import n_tokens_of
from lm_eval_leakage.probes import Probe
from lm_eval_leakage.records import Request

ChatTemplate = Callable[..., str]  # for a chat model behind an API, it returns the turns as JSON in a tuple


def framing(system: str, chat_template: ChatTemplate | None) -> Callable[[str], str]:
    """Turns a request's context into what the model reads."""
    return _plain_frame(system) if chat_template is None else _chat_frame(chat_template, system)


def _plain_frame(system: str) -> Callable[[str], str]:
    return lambda context: f"{system}\n\n{context}" if system else context


def _chat_frame(chat_template: ChatTemplate, system: str) -> Callable[[str], str]:
    """Puts the context into the user's turn, so that the continuation is scored as the assistant's."""
    before = [{"role": "system", "content": system}] if system else []
    return lambda context: chat_template([*before, {"role": "user", "content": context}])


def framed_texts(requests: Sequence[Request], framed: Callable[[str], str]) -> Sequence[tuple[str, str]]:
    """Context and continuation of each request as the model reads them; each distinct context is framed once."""
    frames = {context: framed(context) for context in {request.context for request in requests}}
    if all(own is context for context, own in frames.items()):
        return requests
    return [(frames[context], continuation) for context, continuation in requests]


def arguments_of(probe: Probe, lm: object, context: str, continuation: str) -> tuple[Any, ...]:
    """The arguments of the model's method for one request."""
    if probe.needs == "token_scores":
        return (context + continuation,)
    if probe.needs == "generate_until":
        n_tokens = probe.n_tokens(Request(context, continuation))
        wanted = n_tokens_of(lm, continuation) + 1 if n_tokens is None else n_tokens
        return context, {"until": [*probe.stops], "max_gen_toks": wanted, "do_sample": False, "temperature": 0.0}
    return context, continuation
