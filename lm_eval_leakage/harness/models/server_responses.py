"""Which log-likelihoods count, in audits as in ordinary tasks; what a server says about texts by OpenAI's completions
with `echo` and `logprobs`, checked before it counts; and how long a server is waited for.

`local-completions` takes whatever stands at the expected places. Here a response needs one choice per text, each index
once, as many log-probabilities as tokens, all of them finite and at most ROUNDING, with a value for every token but
the first, and those of the most likely tokens must belong to the same places. What it says about its texts must be
what was sent, as a whole, and about its model always the same. A response of which one choice is about another text is
not believed about any. A response that does not fit is asked for again, as often as `max_retries` says; then its texts
have no answer, and each has the reason.

lm_eval waits at most 10 seconds after any error and gives up after `max_retries`. Here a response with the status 429
or 503 that says in `Retry-After` when to come back is no error: the request keeps its place among the `num_concurrent`
and is sent again then. If that would be more than LONGEST_WAIT in all, the request fails as before, and the same
command goes on later.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from itertools import chain
from time import sleep, time
from typing import Any

import requests

from lm_eval_leakage.harness.models.echoes import after, are_misplaced, is_text, readable, special_texts
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
ROUNDING = 1e-3  # nats by which a log-likelihood may exceed 0
Parsed = list[tuple[float, bool]]
Batch = tuple[list[list[int]], list[int], list[Any]]  # texts, lengths of their contexts, keys of the cache
TOKEN_ANSWERED = "the server answered a token"
MISPLACED = "the server gave log-probabilities that are not those of the same tokens among the most likely ones"
# Last readable characters of a text, which an answer's text has where a server repeats what was sent; fewer, down to
# the second number, if the text is shorter.
LATE, FEWEST = 64, 16


class NoAnswer(float):
    """NaN with the reason why there is no log-likelihood."""

    reason: str

    def __new__(cls, reason: str) -> NoAnswer:
        one = super().__new__(cls, math.nan)
        one.reason = reason
        return one


def as_number(value: Any) -> float:
    """Return a real scalar of Python, numpy, torch or the like as a float; NaN for a truth value, a text, an array
    with an axis and anything else that is no number."""
    if type(value) is float:
        return value
    try:
        number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
        if getattr(number, "ndim", 0) or isinstance(number, (str, bytes, bool)):
            return math.nan
        return float(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # torch raises the last for a tensor without data
        return math.nan


def as_truth(value: Any) -> bool | None:
    """Return a truth value of Python, numpy, torch or the like, or a number that is one, as a bool; False for None;
    None for a text, an array with an axis and anything else that is neither true nor false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def fault_of(value: Any, answered: str = "the backend answered a request") -> str:
    """What is wrong with the log-likelihood that was `answered`, as a sentence; empty if nothing."""
    if isinstance(value, NoAnswer):
        return value.reason
    if -math.inf < as_number(value) <= ROUNDING:
        return ""
    return f"{answered} with {brief(value)}; it must be finite and at most 0"


def fault_among(values: Iterable[Any], answered: str = "the backend answered a request") -> str:
    """The first fault of any."""
    values = [*values]
    if {*map(type, values)} == {float} and math.isfinite(sum(values)) and max(values) <= ROUNDING:
        return ""  # as nearly always, and fast
    return next(filter(None, (fault_of(value, answered) for value in values)), "")


UNASKED = "_unasked_by_lm_eval_leakage"  # of a task: a function that says why a row was not asked


def fault_of_responses(responses: Iterable[Any]) -> str:
    """What is wrong with log-likelihoods, each alone or before whether it is greedy; empty if nothing."""
    return fault_among(one[0] if isinstance(one, (tuple, list)) and len(one) == 2 else one for one in responses)


def without_answer(task: Any, doc: Any, results: Sequence[Any]) -> bool:
    """Whether a question of an ordinary task has to be left out, which is said for each."""
    why_unasked = vars(task).get(UNASKED)
    if why_unasked is not None and why_unasked(doc):
        return True
    if task.OUTPUT_TYPE == "generate_until":
        return False
    fault = fault_of_responses(results)
    if fault:
        logger.warning("a question of %s is left out, of its accuracy too: %s", task.task_name, fault)
    return bool(fault)


class FaultyResponse(RuntimeError):
    """A server's response from which no answers can be read."""


class ServerResponses:
    """Stands between one `local-completions` model and its parser.

    lm: the model, whose own methods are replaced by those of this object
    prove: called with the length of a text that is longer than all before, before it is sent; it may raise
    """

    def __init__(self, lm: Any, prove: Callable[[int], object] = lambda n_tokens: None) -> None:
        self._lm, self._call, self._parse, self._prove = lm, lm.model_call, lm.parse_logprobs, prove
        self._batch: Callable[..., Batch] = lm.batch_loglikelihood_requests
        self._context_lengths: Sequence[int] = ()  # of the texts about to be sent
        self._n_faulty: Counter[tuple[int, ...]] = Counter()  # by the first text of the request
        self._told_model: str | None = None  # as the server named it first
        self._echoes = False  # whether its texts have been among those that were sent
        self._longest = 0  # tokens of the longest text so far

    def stand_between(self) -> None:
        lm = self._lm
        lm.model_call, lm.parse_logprobs = self.model_call, self.parse_logprobs
        lm.batch_loglikelihood_requests = self.batch_loglikelihood_requests

    def batch_loglikelihood_requests(self, chunks: Any) -> Batch:
        batch = self._batch(chunks)
        self._context_lengths = batch[1]
        self.prove_length(max(map(len, batch[0]), default=0))
        return batch

    def prove_length(self, length: int) -> None:
        if length > self._longest:
            self._prove(length)
            self._longest = length

    def model_call(self, messages: Any, *, generate: bool = True, **kwargs: Any) -> Any:
        """One request at a time; the harness repeats what raises."""
        response = self._call(messages, generate=generate, **kwargs)
        if not generate:
            self.refuse_faulty(response, messages, self._context_lengths)
        return response

    def parse_logprobs(self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any) -> Parsed:
        """Many requests at a time: called where the harness repeats what raises."""
        response = outputs[0] if isinstance(outputs, list) and len(outputs) == 1 else outputs
        faults = self.refuse_faulty(response, tokens, ctxlens)
        answers: Parsed = []
        for place, (fault, text, n_context) in enumerate(zip(faults, tokens, ctxlens, strict=True)):
            if fault:
                answers.append((NoAnswer(fault), False))
            else:
                answers += self._parse({"choices": [by_index(response)[place]]}, [text], [n_context], **kwargs)
        return answers

    def refuse_faulty(self, response: Any, texts: Any, context_lengths: Sequence[int]) -> list[str]:
        """What is wrong with the answer about each text; empty where nothing is. Raises FaultyResponse if anything is,
        unless the request has been answered faultily as often as it may be sent."""
        faults = self.faults(response, texts, context_lengths)
        if any(faults):
            fault, request = next(filter(None, faults)), tuple(texts[0])
            self._n_faulty[request] += 1
            if self._n_faulty[request] < self._lm.max_retries:
                raise FaultyResponse(fault)
            logger.warning("%s, %d times; its texts have no answer", fault, self._lm.max_retries)
        return faults

    # ------------------------------------------------------------------ what is wrong, in words

    def faults(self, response: Any, texts: Any, context_lengths: Sequence[int]) -> list[str]:
        whole = self.fault_of_all(response, len(texts))
        if whole:
            return [whole] * len(texts)
        choices = by_index(response)
        shapes = [_fault_of_shape(*pair) for pair in zip(choices, texts, strict=True)]
        sound = [place for place, fault in enumerate(shapes) if not fault]
        whole = self._fault_of_texts([choices[place] for place in sound], [list(texts[place]) for place in sound])
        if whole:
            return [whole] * len(texts)
        return [
            shape or _fault_of_values(choice["logprobs"], n_context)
            for shape, choice, n_context in zip(shapes, choices, context_lengths, strict=True)
        ]

    def fault_of_all(self, response: Any, n_texts: int) -> str:
        if not isinstance(response, Mapping) or not isinstance(response.get("choices"), list):
            return f"the server answered with {brief(response)} instead of choices"
        choices = response["choices"]
        indices = [choice.get("index") if isinstance(choice, Mapping) else None for choice in choices]
        if sorted(indices, key=repr) != sorted(range(n_texts), key=repr):
            return f"the server gave choices with the indices {brief(indices)} to {n_texts} text(s)"
        return self._fault_of_model(response.get("model"))

    def _fault_of_model(self, name: Any) -> str:
        """Another name than was asked for may be an alias; one that changes is another model."""
        if not isinstance(name, str):
            return ""
        if self._told_model is None:
            self._told_model = name
            level = logging.INFO if name == self._lm.model else logging.WARNING
            logger.log(level, "asked for the model %s, the server answers as %s", self._lm.model, name)
        return "" if name == self._told_model else f"the server answered as model {name}, before as {self._told_model}"

    def _fault_of_texts(self, choices: Sequence[Mapping[str, Any]], texts: Sequence[list[int]]) -> str:
        """That a choice is about another text than was sent. Whether a server repeats texts in `text` is seen from the
        end of any text of a response; it is then held to all of them."""
        if not any(choice.get("text") or choice["logprobs"].get("tokens") for choice in choices):
            return ""
        sent = self._lm.decode_batch(texts)
        written = [str(choice.get("text") or "") for choice in choices]
        if not self._echoes:
            ends = [end for text in sent if len(end := readable(text)[-LATE:]) >= FEWEST]
            self._echoes = any(end in readable(text) for text in written for end in ends)
        for choice, text, tokens, string in zip(choices, written, texts, sent, strict=True):
            pieces = choice["logprobs"].get("tokens")
            if pieces is not None and not self._are_tokens([*map(str, pieces[:-1])], tokens, string):
                return f"the server answered about another text ({brief(''.join(map(str, pieces[:-1])))})"
            if text and self._echoes and not self._holds(_begins_with, [text], string):
                return f"the server answered about another text ({brief(text)})"
        return ""

    def _are_tokens(self, pieces: Sequence[str], tokens: Sequence[int], sent: str) -> bool:
        if pieces in ([*map(str, tokens)], [f"token_id:{token}" for token in tokens]):
            return True
        return self._holds(is_text, pieces, sent)

    def _holds(self, compare: Callable[[Sequence[str], str], bool], pieces: Sequence[str], sent: str) -> bool:
        """Compares what a server wrote with what was sent, with special tokens and, as it may leave some out,
        without."""
        if compare(pieces, sent):
            return True
        if self._special is None:
            return False
        without = partial(self._special.sub, "")
        return compare([*map(without, pieces)], without(sent))

    @cached_property
    def _special(self) -> re.Pattern[str] | None:
        return special_texts(self._lm.tokenizer)


def _begins_with(pieces: Sequence[str], sent: str) -> bool:
    return after("".join(pieces), sent) is not None


def _fault_of_shape(choice: Mapping[str, Any], text: Sequence[int]) -> str:
    scores = choice.get("logprobs")
    if not isinstance(scores, Mapping):
        return f"the server gave {brief(scores)} instead of log-probabilities"
    for name in ("token_logprobs", "top_logprobs", "tokens"):
        column = scores.get(name)
        if column is None and name == "tokens":
            continue
        if not isinstance(column, list) or len(column) != len(text) + 1:
            n_given = f"{len(column)} entries" if isinstance(column, list) else brief(column)
            return f"the server gave {n_given} of {name} to {len(text)} tokens and the one that it adds"
    return ""


def _fault_of_values(scores: Mapping[str, Any], n_context: int) -> str:
    """Of a text's tokens but the first; the continuation needs the most likely ones, too."""
    values, tops = scores["token_logprobs"][1:-1], scores["top_logprobs"][1:-1]
    tops = [top if isinstance(top, dict) else {} for top in tops]
    needed = [*values, *(None for top in tops[n_context - 1 :] if not top)]
    if fault := fault_among([*needed, *chain.from_iterable(top.values() for top in tops)], TOKEN_ANSWERED):
        return fault
    tokens = None if scores.get("tokens") is None else scores["tokens"][1:-1]
    if are_misplaced(tokens, values, tops):
        return MISPLACED
    return ""


def by_index(response: Mapping[str, Any]) -> list[Any]:
    return sorted(response["choices"], key=lambda choice: int(choice["index"]))


# ---------------------------------------------------------------------- Retry-After

ASKS_TO_WAIT = (429, 503)
SHORTEST_WAIT, LONGEST_WAIT = 1.0, 600.0  # seconds: each wait at least, all waits of a request at most
pause = asyncio.sleep


class Patience:
    """How long one request waits."""

    def __init__(self) -> None:
        self._waited = 0.0

    def seconds(self, status: int, headers: Mapping[str, str]) -> float | None:
        """Until the request is to be sent again; None if it is not."""
        asked = seconds_asked(headers.get("Retry-After", "")) if status in ASKS_TO_WAIT else None
        seconds = math.inf if asked is None else max(asked, SHORTEST_WAIT)
        if self._waited + seconds > LONGEST_WAIT:
            return None
        self._waited += seconds
        logger.warning("the server answers with status %d and asks to wait; sending again in %.0f s", status, seconds)
        return seconds


def seconds_asked(text: str) -> float | None:
    """What `Retry-After` says, a number of seconds or a date; None if it says neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = max(0.0, parsedate_to_datetime(text).timestamp() - time())
        except (TypeError, ValueError, OverflowError):
            return None
    return seconds if 0 <= seconds < math.inf else None


class PatientSession:
    """An aiohttp session, of which lm_eval's models use `post`."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @asynccontextmanager
    async def post(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        patience = Patience()
        while True:
            async with self._session.post(*args, **kwargs) as response:
                seconds = patience.seconds(response.status, response.headers)
                if seconds is None:
                    yield response
                    return
            await pause(seconds)


def patient(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that sends one request and raises requests' HTTPError, with waits."""

    def model_call(*args: Any, **kwargs: Any) -> Any:
        patience = Patience()
        while True:
            try:
                return call(*args, **kwargs)
            except requests.HTTPError as error:
                response: Any = error.response  # never None after raise_for_status
                seconds = patience.seconds(response.status_code, response.headers)
                if seconds is None:
                    raise
            sleep(seconds)

    return model_call
