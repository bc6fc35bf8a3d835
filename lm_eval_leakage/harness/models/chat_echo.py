"""Provides `--model chat-completions-echo`: log-likelihoods by chat completions that also return those of the
conversation.

The context is the user's message and the continuation, without the white space around it, that of the assistant; the
server applies its chat template. Two forms are known: vLLM's `prompt_logprobs`, with the conversation left open, and
`echo` with `logprobs`, which Together and Fireworks document. That of the server is found out with a known
conversation, and with it what the template puts before and after the assistant's message: the same tokens must stand
there in every response. What is between them is the continuation, and is compared with it; all other messages must
stand before it, whole and in their order.

`echo` does not return whether a token is the most likely one. It counts as if it was not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from lm_eval.models.api_models import JsonChatStr
from lm_eval.models.openai_completions import LocalChatCompletion

from lm_eval_leakage.harness.models.answer_faults import NoAnswer, fault_among
from lm_eval_leakage.harness.models.echoes import are_misplaced, ends_with_all, is_text, readable
from lm_eval_leakage.harness.models.server_proof import KNOWN_TEXT, TextScores, posted, proof_refusal, refuse_cut
from lm_eval_leakage.harness.models.server_responses import MISPLACED, TOKEN_ANSWERED, FaultyResponse, ServerResponses
from lm_eval_leakage.texts import brief

CHAT_COMPLETIONS = "/chat/completions"
KNOWN_QUESTION = "What does a baker do in the morning?"
CONTINUED = {"prompt_logprobs": 0, "continue_final_message": True, "add_generation_prompt": False}  # vLLM's
ECHOED = {"echo": True, "logprobs": 1}  # Together's, and Fireworks'
Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class ReportedToken:
    """A token as a server returns it.

    text: as the server writes it; logprob: None for the first; likeliest: False where that is not known
    top: the values of the most likely tokens; empty where they are not returned
    """

    text: str
    logprob: float | None
    likeliest: bool = False
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatFrame:
    """The parameters of a server's requests, and the template's text around the assistant's message in its responses.

    parameters: what a request has beside messages and model
    before, after: texts of the tokens around the assistant's message
    """

    parameters: Mapping[str, Any]
    before: tuple[str, ...]
    after: tuple[str, ...]

    def span(self, texts: Sequence[str], messages: Messages) -> slice:
        """Return the place of the tokens of the assistant's message, the last one. Raises FaultyResponse if they
        cannot be separated from the rest, or if the messages are not those of the conversation.

        texts: of all tokens
        """
        end, n_before = len(texts) - len(self.after), len(self.before)
        starts = (at for at in range(end, n_before - 1, -1) if tuple(texts[at - n_before : at]) == self.before)
        start = next(starts, None) if tuple(texts[max(0, end) :]) == self.after else None
        if start is None:
            raise FaultyResponse(
                "in the tokens that the server gave, the assistant's message cannot be separated from the rest"
            )
        *earlier, last = [message["content"] for message in messages]
        if start == end or not is_text(texts[start:end], last):
            raise FaultyResponse(f"the server answered about another message ({brief(''.join(texts[start:end]))})")
        before = texts[: start - n_before]
        if not ends_with_all(before, earlier):
            raise FaultyResponse(f"the server answered about another conversation ({brief(''.join(before))})")
        return slice(start, end)


def conversation(context: Any, continuation: str) -> list[dict[str, str]]:
    """Return the messages of a request.

    context: a text, or the turns of `--apply_chat_template`, of which the last may have begun the answer
    """
    turns = json.loads(context[0]) if isinstance(context, tuple) else [{"role": "user", "content": context}]
    if turns[-1]["role"] == "assistant":
        continuation = turns.pop()["content"] + continuation
    return [*turns, {"role": "assistant", "content": continuation.strip()}]


def reported_tokens(response: Any) -> list[ReportedToken]:
    """Return the tokens of the conversation, without what was generated; empty if the server returns none. Raises
    FaultyResponse for something else than log-probabilities."""
    try:
        if response.get("prompt_logprobs"):
            rows = [next(iter(row.values())) if row else {} for row in response["prompt_logprobs"]]
            return [
                ReportedToken(row.get("decoded_token") or "", row.get("logprob"), row.get("rank") == 1) for row in rows
            ]
        if response.get("prompt"):
            answer, n_generated = response["prompt"][0]["logprobs"], 0
        else:
            answer, n_generated = response["choices"][0]["logprobs"], 1
        texts, logprobs = (answer.get("tokens") or [], answer.get("token_logprobs") or []) if answer else ([], [])
        tops = [dict(top or {}) for top in (answer or {}).get("top_logprobs") or [{}] * len(texts)]
        columns = zip(texts, logprobs, tops, strict=True)
        tokens = [ReportedToken(str(text), logprob, top=top) for text, logprob, top in columns]
        return tokens[: len(tokens) - n_generated]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise FaultyResponse(f"the server gave {brief(response)} instead of log-probabilities") from None


class ChatResponses(ServerResponses):
    """Sends the requests of one `chat-completions-echo` model, of one text each, and reads the responses."""

    def faults(self, response: Any, texts: Sequence[JsonChatStr], context_lengths: Sequence[int]) -> list[str]:
        try:
            whole = self.fault_of_all(response, 1)
            if not whole:
                self._lm.scored(response, texts[0])
            return [whole]
        except FaultyResponse as fault:
            return [str(fault)]


class ChatCompletionsEchoLM(LocalChatCompletion):  # type: ignore[misc]
    """Takes all arguments of `local-chat-completions`, generates as it does, and has log-likelihoods.

    base_url: of chat completions, such as https://api.together.xyz/v1/chat/completions
    """

    def __init__(self, base_url: str | None = None, **kwargs: Any) -> None:
        if not (base_url or "").rstrip("/").endswith(CHAT_COMPLETIONS):
            raise ValueError(
                f"base_url is {base_url!r}; give the URL of chat completions, such as "
                f"http://127.0.0.1:8000/v1{CHAT_COMPLETIONS}"
            )
        super().__init__(base_url=base_url, **kwargs)
        self.max_length = None  # in tokens, which only the server knows
        self.responses = ChatResponses(self, lambda length: refuse_cut(self, length, n_echo_characters))

    # ------------------------------------------------------------------ the form of requests and of the template

    @cached_property
    def frame(self) -> ChatFrame:
        """Raises Unproven if neither form gives the tokens of a known conversation."""
        reasons = []
        for form in (CONTINUED, ECHOED):
            try:
                return frame_in(reported_tokens(self._posted(form)), form)
            except FaultyResponse as fault:
                reasons.append(f"with {', '.join(form)}: {fault}")
        raise proof_refusal(self, "; ".join(reasons))

    def text_scores(self, context: str, text: str) -> TextScores:
        """Return the scores of a text as the assistant's message after a context."""
        messages = conversation(context or KNOWN_QUESTION, text)
        tokens, of_text = self._read(posted(self, self._payload(messages, self.frame.parameters)), messages)
        scored = tokens[1 : of_text.stop]
        values = [float(token.logprob or 0) for token in scored]
        return TextScores([token.text for token in scored], values, of_text.start - 1)

    def _posted(self, parameters: Mapping[str, Any]) -> Any:
        return posted(self, self._payload(conversation(KNOWN_QUESTION, KNOWN_TEXT), parameters))

    def _payload(self, messages: Messages, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {"model": self.model, "messages": messages, "max_tokens": 1, "temperature": 0, **parameters}

    # ------------------------------------------------------------------ as lm_eval asks

    def loglikelihood(self, requests: Sequence[Any], **kwargs: Any) -> list[tuple[float, bool]]:
        if not requests:
            return []
        pairs = [request.args for request in requests]
        texts = [JsonChatStr(json.dumps(conversation(*pair), ensure_ascii=False)) for pair in pairs]
        self.frame  # noqa: B018 (found out before the first of them is sent)
        self.responses.prove_length(max(n_echo_characters(*pair) for pair in pairs))
        answers = asyncio.run(self.get_batched_requests(texts, pairs, generate=False))
        return [*chain.from_iterable(answers)]

    def loglikelihood_rolling(self, requests: Sequence[Any], **kwargs: Any) -> list[float]:
        raise NotImplementedError("chat completions have no text without a conversation")

    def _create_payload(self, messages: Any, generate: bool = False, **kwargs: Any) -> dict[str, Any]:
        if generate:
            payload: dict[str, Any] = super()._create_payload(messages, generate=True, **kwargs)
            return payload
        return self._payload(messages, self.frame.parameters)

    def parse_logprobs(self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any) -> Any:
        """Return the scores of the responses; called where the harness repeats what raises."""
        (fault,) = self.responses.refuse_faulty(outputs, tokens, ())
        if fault:
            return [(NoAnswer(fault), False)]
        message = self.scored(outputs, tokens[0])
        return [(sum(token.logprob or 0 for token in message), all(token.likeliest for token in message))]

    def scored(self, response: Any, text: JsonChatStr) -> Sequence[ReportedToken]:
        """Return the tokens of the assistant's message. Raises FaultyResponse."""
        tokens, of_text = self._read(response, json.loads(text.prompt))
        return tokens[of_text]

    def _read(self, response: Any, messages: Messages) -> tuple[Sequence[ReportedToken], slice]:
        """Return the tokens of the conversation, and which of them are the assistant's. Raises FaultyResponse."""
        tokens = reported_tokens(response)
        of_text = self.frame.span([token.text for token in tokens], messages)
        texts, values, tops = zip(*((token.text, token.logprob, token.top) for token in tokens[1:]), strict=True)
        if fault := fault_among([*values, *(value for top in tops for value in top.values())], TOKEN_ANSWERED):
            raise FaultyResponse(fault)
        if are_misplaced(texts, values, tops):
            raise FaultyResponse(MISPLACED)
        return tokens, of_text


def n_echo_characters(context: Any, continuation: str) -> int:
    """Return the number of characters of the conversation's messages."""
    return sum(len(message["content"]) for message in conversation(context, continuation))


def frame_in(tokens: Sequence[ReportedToken], parameters: Mapping[str, Any]) -> ChatFrame:
    """Return the frame of the known conversation. Raises FaultyResponse if its messages are not in the tokens."""
    if not tokens:
        raise FaultyResponse("the response has no log-probabilities of the conversation")
    starts = [0]  # of the tokens, and the end of the last one, in what is readable of them all
    for token in tokens:
        starts.append(starts[-1] + len(readable(token.text)))
    text = "".join(readable(token.text) for token in tokens)
    start = text.rfind(readable(KNOWN_TEXT))
    begin = text.rfind(readable(KNOWN_QUESTION), 0, max(0, start)) + len(readable(KNOWN_QUESTION))
    if begin < len(readable(KNOWN_QUESTION)):
        raise FaultyResponse(f"the response is not about the conversation that was sent ({brief(text)})")
    texts, end = [token.text for token in tokens], start + len(readable(KNOWN_TEXT))
    if not {begin, start, end} <= {*starts} or begin == start:
        raise FaultyResponse("a token of the template is one with a part of a message")
    # tokens of white space have no width here: those around the message are the template's
    last = len(texts) - starts[::-1].index(start)
    return ChatFrame(parameters, tuple(texts[starts.index(begin) : last]), tuple(texts[starts.index(end) :]))
