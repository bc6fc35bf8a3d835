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
    """With the one token that is generated."""
    values = [None] + [logprob(tokens[:place], tokens[place]) for place in range(1, len(tokens))] + [LIKELIEST]
    texts = [chr(token) for token in tokens] + ["."]
    tops = [
        None if value is None else {text: value, "likeliest": LIKELIEST}
        for text, value in zip(texts, values, strict=True)
    ]
    told = {"token_logprobs": values, "top_logprobs": tops, "tokens": texts, "text_offset": list(range(len(texts)))}
    return {"index": index, "text": "".join(texts), "logprobs": told, "finish_reason": "length"}


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
    def change(told: dict[str, Any]) -> None:
        told["token_logprobs"][place] = value

    return in_logprobs(change)


def each_column(change: Callable[[list[Any]], Any]) -> Spoil:
    return in_logprobs(lambda told: [change(column) for column in told.values()])


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


def tokens_of(one: dict[str, Any]) -> list[int]:
    """Of a choice, without the one that is generated."""
    return [ord(text) for text in one["logprobs"]["tokens"][:-1]]


def with_tokens_of_another_text(told: dict[str, Any]) -> None:
    """As many."""
    told["tokens"] = [*told["tokens"][-2::-1], "."]


def moved(*names: str, by: int = 1) -> Spoil:
    """These columns are moved by a place; the first entry stays null, and the last one is there twice."""

    def change(told: dict[str, Any]) -> None:
        for name in names:
            column = told[name]
            told[name] = [None, *column[2:], column[-1]] if by == 1 else [None, column[1], *column[1:-1]]

    return in_logprobs(change)


def of_the_tokens_before_themselves(told: dict[str, Any]) -> None:
    """Each token has the value that it would have after itself, as in servers that count from the wrong token."""
    tokens = [ord(text) for text in told["tokens"]]
    values = [None, *(logprob(tokens[: place + 1], tokens[place]) for place in range(1, len(tokens)))]
    following = [*told["tokens"][1:], "."]
    told["token_logprobs"] = values
    told["top_logprobs"] = [
        None if value is None else {text: value} | ({likeliest: LIKELIEST} if likeliest != text else {})
        for text, value, likeliest in zip(told["tokens"], values, following, strict=True)
    ]


def cut(response: Response, n_read: int, beyond: str) -> Response:
    """Only so many tokens at the end of each text are read.

    beyond: what those before have: `null`, `values` of a text of their own, or `nothing`, so that columns are short
    """
    for number, one in enumerate(response["choices"]):
        tokens = tokens_of(one)
        if len(tokens) <= n_read:
            continue
        end, begin = choice(number, tokens[-n_read:]), choice(number, tokens[:-n_read])
        told = one["logprobs"]
        for name in ("token_logprobs", "top_logprobs"):
            filled = begin["logprobs"][name][:-1] if beyond == "values" else [None] * (len(tokens) - n_read)
            told[name] = filled + end["logprobs"][name]
            if beyond == "values":
                told[name][len(filled)] = told[name][1]
        if beyond == "nothing":
            response["choices"][number] = end
    return response


def rotated(response: Response) -> Response:
    """Each answer is about the text after its own."""
    choices = response["choices"]
    response["choices"] = [
        {**other, "index": one["index"]} for one, other in zip(choices, [*choices[1:], choices[0]], strict=True)
    ]
    return response


def log_probabilities_rotated(response: Response) -> Response:
    """The texts are right, log-probabilities and tokens are those of the text after."""
    texts = [one["text"] for one in response["choices"]]
    for one, text in zip(rotated(response)["choices"], texts, strict=True):
        one["text"] = text
    return response


def one_about_another_text(response: Response) -> Response:
    """The values of the other texts, which are told rightly, are wrong, too."""
    response = of_other_text(response)
    for one in response["choices"][1:]:
        told = one["logprobs"]
        told["token_logprobs"] = [value and value - 1 for value in told["token_logprobs"]]
        told["top_logprobs"] = [
            top and {name: value - 1 for name, value in top.items()} for top in told["top_logprobs"]
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
    "no log-probabilities": in_logprobs(lambda told: told.update(token_logprobs=[])),
    "log-probabilities are null": in_choices(lambda found: found[0].update(logprobs=None)),
    "NaN": with_value(float("nan")),
    "infinity": with_value(float("inf")),
    "minus infinity": with_value(float("-inf")),
    "a positive log-probability": with_value(4.5),
    "a log-probability as text": with_value("-1.0"),
    "a log-probability is null": with_value(None),
    "no most likely token": in_logprobs(lambda told: told["top_logprobs"].__setitem__(-2, None)),
    "a choice twice": in_choices(lambda found: found.append(found[0])),
    "one choice for all": in_choices(lambda found: found.__setitem__(slice(None), [found[0]] * max(2, len(found)))),
    "a choice too few": in_choices(lambda found: found.pop()),
    "indices from 1": in_choices(lambda found: [one.update(index=one["index"] + 1) for one in found]),
    "indices as texts": in_choices(lambda found: [one.update(index=str(one["index"])) for one in found]),
    "another text's answer": of_other_text,
    "tokens of another text": in_logprobs(with_tokens_of_another_text),
    "another text": in_choices(lambda found: found[0].update(text=found[0]["text"][::-1])),
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
    """spoil: of every response to a request that `is_spoiled(number of the request, what was sent)` names
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

        def say(self, found: Any) -> None:
            content = b"{}" if isinstance(found, Status) else found
            if not isinstance(content, bytes):
                content = json.dumps(content).encode()
            self.send_response(int(found) if isinstance(found, Status) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if getattr(found, "retry_after", ""):
                self.send_header("Retry-After", found.retry_after)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *told: object) -> None:
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
        return [bytes(one).decode("latin-1") for one in tokens]

    @property
    def eot_token_id(self) -> int:  # type: ignore[override]
        return 0

    @property
    def prefix_token_id(self) -> int:  # type: ignore[override]
        return 0
