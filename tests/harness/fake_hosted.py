"""Responses as hosted providers document them, without a model: words and marks of the template are the tokens, and a
token's log-probability is a digest of it and of what stands before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

Sent = dict[str, Any]
MODEL = "served"
MARKS = re.compile(r"<\|\w+\|>|\s+|\w+|[^\w\s]")
Frame = Callable[[list[dict[str, str]]], str]


def left_open(messages: list[dict[str, str]]) -> str:
    """Render a conversation as vLLM does if its last message is to be continued."""
    *before, last = [f"<|im_start|>{message['role']}\n{message['content']}" for message in messages]
    return "<|bos|>" + "".join(f"{message}<|im_end|>\n" for message in before) + last


def closed(messages: list[dict[str, str]]) -> str:
    """Render a conversation with the beginning of a further answer, and contents without the white space around
    them."""
    turns = [
        f"<|start_header|>{message['role']}<|end_header|>\n\n{message['content'].strip()}<|eot|>"
        for message in messages
    ]
    return "<|bos|>" + "".join(turns) + "<|start_header|>assistant<|end_header|>\n\n"


def tokens_of(text: str) -> list[str]:
    return MARKS.findall(text)


def logprob(tokens: list[str], place: int) -> float:
    digest = blake2b("".join(tokens[: place + 1]).encode(), digest_size=2).digest()
    return -0.1 - int.from_bytes(digest, "big") / 20000


def logprobs(tokens: list[str]) -> list[float | None]:
    return [None, *(logprob(tokens, place) for place in range(1, len(tokens)))]


def expected(messages: list[dict[str, str]], render: Frame) -> float:
    """Sum of the log-probabilities of the last message's tokens."""
    tokens, content = tokens_of(render(messages)), tokens_of(messages[-1]["content"].strip())
    starts = [at for at in range(len(tokens)) if tokens[at : at + len(content)] == content]
    return sum(logprob(tokens, starts[-1] + place) for place in range(len(content)))


def generated(tokens: list[str]) -> Sent:
    """Return the one generated token, as OpenAI reports it."""
    content = [{"token": tokens[-1], "logprob": -0.5, "bytes": None, "top_logprobs": []}]
    return {
        "index": 0,
        "message": {"role": "assistant", "content": tokens[-1]},
        "logprobs": {"content": content},
        "finish_reason": "length",
    }


def with_top(tokens: list[str], values: list[float | None]) -> list[Sent | None]:
    """The token beside a likelier one."""
    pairs = zip(tokens, values, strict=True)
    return [None if value is None else {text: value, "likeliest": -0.05} for text, value in pairs]


def reading(change: Callable[[list[dict[str, str]]], list[dict[str, str]]], post: Callable[[Sent], Sent]):
    """A server that reads a part of each conversation, or another one."""
    return lambda sent: post(sent | {"messages": change(sent["messages"])})


def openai_chat(sent: Sent) -> Sent:
    """Ignores `echo`."""
    return {"model": MODEL, "object": "chat.completion", "choices": [generated(["so"])]}


def vllm_chat(sent: Sent) -> Sent:
    """`prompt_logprobs` beside the choices, for messages that are to be continued."""
    response = openai_chat(sent)
    if sent.get("prompt_logprobs") is None:
        return response
    tokens = tokens_of(left_open(sent["messages"]) if sent.get("continue_final_message") else closed(sent["messages"]))
    rows = [
        None if value is None else {str(place): {"logprob": value, "rank": 1 + place % 2, "decoded_token": text}}
        for place, (text, value) in enumerate(zip(tokens, logprobs(tokens), strict=True))
    ]
    return response | {"prompt_logprobs": rows}


def together_chat(sent: Sent) -> Sent:
    """Answer with `echo` the conversation in `prompt`; the generated token is reported in lists."""
    logprobs_of_choice = {"tokens": ["so"], "token_logprobs": [-0.5], "token_ids": [1]}
    response = {"model": MODEL, "prompt": [], "choices": [generated(["so"]) | {"logprobs": logprobs_of_choice}]}
    if sent.get("echo"):
        text = closed(sent["messages"])
        tokens = tokens_of(text)
        response["prompt"] = [{"text": text, "logprobs": {"tokens": tokens, "token_logprobs": logprobs(tokens)}}]
    return response


def fireworks_chat(sent: Sent) -> Sent:
    """Answer with `echo` conversation and generated token in the lists of the choice."""
    tokens = [*(tokens_of(closed(sent["messages"])) if sent.get("echo") else []), "so"]
    logprobs_of_choice = {"tokens": tokens, "token_logprobs": logprobs(tokens), "text_offset": [0] * len(tokens)}
    return {"model": MODEL, "choices": [generated(tokens) | {"logprobs": logprobs_of_choice}]}
