"""Checks what a server says about texts by OpenAI's completions with `echo` and `logprobs`, before it counts.

`local-completions` takes whatever stands at the expected places. Here a response needs one choice per text, each index
once, as many log-probabilities as tokens, all of them finite and at most ROUNDING, with a value for every token but
the first, and those of the most likely tokens must belong to the same places. What it says about its texts must be
what was sent, as a whole, and about its model always the same. A response of which one choice is about another text is
not believed about any. A response that does not fit is asked for again, as often as `max_retries` says; then its texts
have no answer, and each has the reason.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Any

from lm_eval_leakage.harness.models.answer_faults import NoAnswer, fault_among
from lm_eval_leakage.harness.models.echoes import after, are_misplaced, is_text, readable, special_texts
from lm_eval_leakage.texts import brief

logger = logging.getLogger(__name__)
Parsed = list[tuple[float, bool]]
Batch = tuple[list[list[int]], list[int], list[Any]]  # texts, lengths of their contexts, keys of the cache
TOKEN_ANSWERED = "the server answered a token"
MISPLACED = "the server gave log-probabilities that are not those of the same tokens among the most likely ones"
# Last readable characters of a text, which an answer's text has where a server repeats what was sent; fewer, down to
# the second number, if the text is shorter.
LATE, FEWEST = 64, 16


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
        self._first_model: str | None = None  # as the server named it first
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
        """Send one request; the harness repeats what raises."""
        response = self._call(messages, generate=generate, **kwargs)
        if not generate:
            self.refuse_faulty(response, messages, self._context_lengths)
        return response

    def parse_logprobs(self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **kwargs: Any) -> Parsed:
        """Return the scores of many requests at a time; called where the harness repeats what raises."""
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
        """Return what is wrong with the answer about each text; empty where nothing is. Raises FaultyResponse if
        anything is, unless the request has been answered faultily as often as it may be sent."""
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
        """Return what is wrong with the model's name: another than the requested one may be an alias, but a name that
        changes is that of another model."""
        if not isinstance(name, str):
            return ""
        if self._first_model is None:
            self._first_model = name
            level = logging.INFO if name == self._lm.model else logging.WARNING
            logger.log(level, "requests name the model %s, the responses the model %s", self._lm.model, name)
        if name == self._first_model:
            return ""
        return f"the server answered as model {name}, before as {self._first_model}"

    def _fault_of_texts(self, choices: Sequence[Mapping[str, Any]], texts: Sequence[list[int]]) -> str:
        """Return that a choice is about another text than was sent. Whether a server repeats texts in `text` is seen
        from the end of any text of a response; it is then held to all of them."""
        if not any(choice.get("text") or choice["logprobs"].get("tokens") for choice in choices):
            return ""
        sent = self._lm.decode_batch(texts)
        written = [str(choice.get("text") or "") for choice in choices]
        if not self._echoes:
            ends = [readable(text)[-LATE:] for text in sent]
            long_ends = [end for end in ends if len(end) >= FEWEST]
            self._echoes = any(end in readable(text) for text in written for end in long_ends)
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
    """Return what is wrong with the values of a text's tokens but the first; the continuation needs the most likely
    ones, too."""
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
