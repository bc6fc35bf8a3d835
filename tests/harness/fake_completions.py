"""An OpenAI-compatible completions server without a model, and forty ways in which one may misbehave.

Tokens are bytes; the log-probability of a token after others is a digest of both.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lm_eval.models.openai_completions import LocalCompletionsAPI

LIKELIEST = -0.5
MODEL = "served"
Response = dict[str, Any]
Spoil = Callable[[Response], Any]


def logprob(before: list[int], token: int) -> float:
    digest = blake2b(bytes([*before, token]), digest_size=2).digest()
    return min(LIKELIEST, -int.from_bytes(digest, "big") / 20000)


def expected(context: str, continuation: str) -> tuple[float, bool]:
    tokens, n_context = list((context + continuation).encode()), len(context.encode())
    values = [logprob(tokens[:place], tokens[place]) for place in range(n_context, len(tokens))]
    return sum(values), all(value == LIKELIEST for value in values)


def choice(index: int, tokens: list[int]) -> Response:
    """Return a choice with the one token that is generated."""
    values = [None] + [logprob(tokens[:place], tokens[place]) for place in range(1, len(tokens))] + [LIKELIEST]
    texts = [chr(token) for token in tokens] + ["."]
    tops = [
        None if value is None else {text: value, "likeliest": LIKELIEST}
        for text, value in zip(texts, values, strict=True)
    ]
    columns = {"token_logprobs": values, "top_logprobs": tops, "tokens": texts, "text_offset": list(range(len(texts)))}
    return {"index": index, "text": "".join(texts), "logprobs": columns, "finish_reason": "length"}


def right_response(sent: Response) -> Response:
    given = sent["prompt"]
    prompts = given if isinstance(given[0], list) else [[*given.encode()] if isinstance(given, str) else given]
    return {"model": MODEL, "choices": [choice(index, tokens) for index, tokens in enumerate(prompts)]}


class Raw(bytes):
    """Sent as it is, with the status 200."""


class Status(int):
    """Sent without a response.

    retry_after: value of the header of this name
    """

    retry_after = ""

    def asking(self, retry_after: str) -> Status:
        self.retry_after = retry_after
        return self


# ---------------------------------------------------------------------- what may be wrong


def in_logprobs(change: Callable[[dict[str, Any]], Any]) -> Spoil:
    def spoil(response: Response) -> Response:
        change(response["choices"][0]["logprobs"])
        return response

    return spoil


def with_value(value: Any, place: int = -2) -> Spoil:
    def change(logprobs_of_choice: dict[str, Any]) -> None:
        logprobs_of_choice["token_logprobs"][place] = value

    return in_logprobs(change)


def each_column(change: Callable[[list[Any]], Any]) -> Spoil:
    return in_logprobs(lambda columns: [change(column) for column in columns.values()])


def in_choices(change: Callable[[list[Any]], Any]) -> Spoil:
    def spoil(response: Response) -> Response:
        change(response["choices"])
        return response

    return spoil


def of_other_text(response: Response) -> Response:
    """The indices are right, the content is that of another request."""
    (first, *_) = response["choices"]
    tokens = [ord(text) for text in first["logprobs"]["tokens"][:-1]]
    response["choices"][0] = choice(0, [(token * 7) % 96 + 32 for token in tokens])
    return response


def tokens_of(choice: dict[str, Any]) -> list[int]:
    """Return the tokens of a choice, without the one that is generated."""
    return [ord(text) for text in choice["logprobs"]["tokens"][:-1]]


def with_tokens_of_another_text(logprobs_of_choice: dict[str, Any]) -> None:
    """Replace the tokens by as many of another text."""
    logprobs_of_choice["tokens"] = [*logprobs_of_choice["tokens"][-2::-1], "."]


def moved(*names: str, by: int = 1) -> Spoil:
    """These columns are moved by a place; the first entry stays null, and the last one is there twice."""

    def change(logprobs_of_choice: dict[str, Any]) -> None:
        for name in names:
            column = logprobs_of_choice[name]
            logprobs_of_choice[name] = [None, *column[2:], column[-1]] if by == 1 else [None, column[1], *column[1:-1]]

    return in_logprobs(change)


def of_the_tokens_before_themselves(logprobs_of_choice: dict[str, Any]) -> None:
    """Each token has the value that it would have after itself, as in servers that count from the wrong token."""
    tokens = [ord(text) for text in logprobs_of_choice["tokens"]]
    values = [None, *(logprob(tokens[: place + 1], tokens[place]) for place in range(1, len(tokens)))]
    following = [*logprobs_of_choice["tokens"][1:], "."]
    logprobs_of_choice["token_logprobs"] = values
    logprobs_of_choice["top_logprobs"] = [
        None if value is None else {text: value} | ({likeliest: LIKELIEST} if likeliest != text else {})
        for text, value, likeliest in zip(logprobs_of_choice["tokens"], values, following, strict=True)
    ]


def cut(response: Response, n_read: int, beyond: str) -> Response:
    """Only so many tokens at the end of each text are read.

    beyond: what those before have: `null`, `values` of a text of their own, or `nothing`, so that columns are short
    """
    for number, choice_of_response in enumerate(response["choices"]):
        tokens = tokens_of(choice_of_response)
        if len(tokens) <= n_read:
            continue
        end, begin = choice(number, tokens[-n_read:]), choice(number, tokens[:-n_read])
        logprobs_of_choice = choice_of_response["logprobs"]
        for name in ("token_logprobs", "top_logprobs"):
            filled = begin["logprobs"][name][:-1] if beyond == "values" else [None] * (len(tokens) - n_read)
            logprobs_of_choice[name] = filled + end["logprobs"][name]
            if beyond == "values":
                logprobs_of_choice[name][len(filled)] = logprobs_of_choice[name][1]
        if beyond == "nothing":
            response["choices"][number] = end
    return response


def rotated(response: Response) -> Response:
    """Each answer is about the text after its own."""
    choices = response["choices"]
    response["choices"] = [
        {**other, "index": option["index"]} for option, other in zip(choices, [*choices[1:], choices[0]], strict=True)
    ]
    return response


def log_probabilities_rotated(response: Response) -> Response:
    """The texts are right, log-probabilities and tokens are those of the text after."""
    texts = [choice["text"] for choice in response["choices"]]
    for choice, text in zip(rotated(response)["choices"], texts, strict=True):
        choice["text"] = text
    return response


def one_about_another_text(response: Response) -> Response:
    """Return values that are wrong for the other texts, too, which are reported rightly."""
    response = of_other_text(response)
    for choice in response["choices"][1:]:
        logprobs_of_choice = choice["logprobs"]
        logprobs_of_choice["token_logprobs"] = [value and value - 1 for value in logprobs_of_choice["token_logprobs"]]
        logprobs_of_choice["top_logprobs"] = [
            top and {name: value - 1 for name, value in top.items()} for top in logprobs_of_choice["top_logprobs"]
        ]
    return response


IN_BATCHES: dict[str, Spoil] = {  # of more than one text
    "answers rotated within a batch": rotated,
    "log-probabilities rotated within a batch": log_probabilities_rotated,
    "one answer of a batch about another text": one_about_another_text,
}
FAULTS: dict[str, Spoil] = {
    "one log-probability too few": each_column(lambda column: column.pop()),
    "the first log-probability is missing": each_column(lambda column: column.pop(0)),
    "one log-probability too many": each_column(lambda column: column.insert(1, column[1])),
    "no log-probabilities": in_logprobs(lambda logprobs_of_choice: logprobs_of_choice.update(token_logprobs=[])),
    "log-probabilities are null": in_choices(lambda choices: choices[0].update(logprobs=None)),
    "NaN": with_value(float("nan")),
    "infinity": with_value(float("inf")),
    "minus infinity": with_value(float("-inf")),
    "a positive log-probability": with_value(4.5),
    "a log-probability as text": with_value("-1.0"),
    "a log-probability is null": with_value(None),
    "no most likely token": in_logprobs(
        lambda logprobs_of_choice: logprobs_of_choice["top_logprobs"].__setitem__(-2, None)
    ),
    "a choice twice": in_choices(lambda choices: choices.append(choices[0])),
    "one choice for all": in_choices(
        lambda choices: choices.__setitem__(slice(None), [choices[0]] * max(2, len(choices)))
    ),
    "a choice too few": in_choices(lambda choices: choices.pop()),
    "indices from 1": in_choices(lambda choices: [option.update(index=option["index"] + 1) for option in choices]),
    "indices as texts": in_choices(lambda choices: [option.update(index=str(option["index"])) for option in choices]),
    "another text's answer": of_other_text,
    "tokens of another text": in_logprobs(with_tokens_of_another_text),
    "another text": in_choices(lambda choices: choices[0].update(text=choices[0]["text"][::-1])),
    "a value of the context is null": with_value(None, place=1),
    "log-probabilities moved by a place": moved("token_logprobs"),
    "log-probabilities moved back by a place": moved("token_logprobs", by=-1),
    "log-probabilities and likeliest tokens moved by a place": moved("token_logprobs", "top_logprobs"),
    "the context cut, with nulls": lambda response: cut(response, 20, "null"),
    "the context cut": lambda response: cut(response, 20, "nothing"),
    "another model's answer": lambda response: response | {"model": "another"},
    "an error in the place of choices": lambda response: {"error": "out of memory"},
    "status 500": lambda response: Status(500),
    "status 429": lambda response: Status(429),
    "cut JSON": lambda response: Raw(json.dumps(response).encode()[:-20]),
    "HTML": lambda response: Raw(b"<html><body>502 Bad Gateway</body></html>"),
    "a text": lambda response: "the answer",
    "null": lambda response: None,
    "a list": lambda response: [],
}


class FakeServer:
    """A stand-in for a completions server.

    spoil: of every response to a request that `is_spoiled(number of the request, what was sent)` names
    pause: seconds before each response
    """

    def __init__(
        self,
        spoil: Spoil | None = None,
        is_spoiled: Callable[[int, Response], bool] = lambda *_: True,
        pause: float = 0,
    ) -> None:
        self.spoil, self.is_spoiled, self.pause = spoil, is_spoiled, pause
        self.n_asked = 0
        self._lock = threading.Lock()

    def answer(self, sent: Response) -> Any:
        with self._lock:
            number, self.n_asked = self.n_asked, self.n_asked + 1
        time.sleep(self.pause)
        response = right_response(sent)
        return self.spoil(response) if self.spoil is not None and self.is_spoiled(number, sent) else response


@contextmanager
def served(post: Callable[[str, Response], Any]) -> Iterator[str]:
    """The URL of completions of a server.

    post: takes the path and what was sent, and returns what is sent back: an object for JSON, a Status, or Raw
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet: two would wait for each other
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.say(post(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def say(self, body: Any) -> None:
            content = b"{}" if isinstance(body, Status) else body
            if not isinstance(content, bytes):
                content = json.dumps(content).encode()
            self.send_response(int(body) if isinstance(body, Status) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if getattr(body, "retry_after", ""):
                self.send_header("Retry-After", body.retry_after)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/completions"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served_chat(post: Callable[[Response], Any]) -> Iterator[dict[str, str]]:
    """The arguments of a model behind the chat completions of a server."""
    with served(lambda _, sent: post(sent)) as url:
        yield {"base_url": url.replace("/completions", "/chat/completions"), "model": MODEL}


def serving(fake: FakeServer) -> AbstractContextManager[str]:
    """The URL of its completions."""
    return served(lambda _, sent: fake.answer(sent))


class ByteCompletions(LocalCompletionsAPI):
    """`local-completions` whose tokens are bytes, so that no tokenizer has to be loaded."""

    def __init__(self, base_url: str, model: str = MODEL, **given: Any) -> None:
        super().__init__(base_url=base_url, model=model, tokenizer_backend="None", **given)
        self.tokenizer, self.tokenized_requests = self, True

    def tok_encode(self, string: str, **_: Any) -> list[int]:  # type: ignore[override]
        return list(string.encode())

    def decode_batch(self, tokens: list[list[int]]) -> list[str]:
        return [bytes(text).decode("latin-1") for text in tokens]

    @property
    def eot_token_id(self) -> int:  # type: ignore[override]
        return 0

    @property
    def prefix_token_id(self) -> int:  # type: ignore[override]
        return 0
