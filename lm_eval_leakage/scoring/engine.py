"""Log-likelihoods of texts by an inference engine that keeps the keys and values of prefixes it has read, in blocks:
each shared block is computed once.

Such an engine returns log-probabilities only for the tokens of a text that it computed. Those of the blocks that it
found in its cache were returned for the text that computed them, a *sibling* with the same prefix. What neither gives,
such as the token that follows the last cached block, is a *hole*, to be asked again on its own. Texts sent in
lexicographic order are next to the ones they share most with.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray, Text, Texts, lexicographic, shared_with_previous
from lm_eval_leakage.scoring.scorers import ScoredText, disagreement

DoubleArray = npt.NDArray[np.float64]


# a scored token that no text's answer holds, after those before it: of which text, and its depth
Hole = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Returned:
    """What the engine returned for one text.

    n_cached: number of tokens, from the first, that it did not compute; 0 if it cannot tell and computes all
    logprobs: log-probabilities of the last tokens of the text (nats), `(n_returned,)`; NaN where there is none. Those
        of tokens up to and including the first after the cached ones are not used, whatever they hold
    greedy: whether each of these tokens was the most likely one, `(n_returned,)`
    """

    n_cached: int
    logprobs: DoubleArray
    greedy: BoolArray


class SharedScores:
    """Puts the log-likelihoods of texts together from what an engine returned for each of them.

    The texts are given in lexicographic order. Of several values for the same token after the same prefix, the first
    finite one is used for all texts, so that equal texts get equal answers.
    """

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts
        self._nodes = _nodes([text.tokens for text in texts])
        n_nodes = 1 + max((int(nodes.max()) for nodes in self._nodes), default=-1)
        self._logprobs = np.full(n_nodes, np.nan)
        self._greedy = np.zeros(n_nodes, np.bool_)
        self._is_known = np.zeros(n_nodes, np.bool_)

    def to_send(self) -> list[int]:
        """The texts to ask the engine for: all but those that a later text begins with, or is equal to."""
        rows = [text.tokens for text in self.texts]
        shared_with_next = [*shared_with_previous(rows)[1:], 0]
        return [number for number, row in enumerate(rows) if shared_with_next[number] < len(row)]

    def receive(self, text: int, returned: Returned) -> None:
        """Takes the engine's answer to a text; in any order, and again if it is asked again."""
        nodes = self._nodes[text]
        n_computed = min(len(returned.logprobs), len(nodes) - 1 - returned.n_cached)
        if n_computed <= 0:
            return
        nodes = nodes[-n_computed:]
        logprobs, greedy = returned.logprobs[-n_computed:], returned.greedy[-n_computed:]
        new = np.isfinite(logprobs) & ~self._is_known[nodes]
        self._set(nodes[new], logprobs[new], greedy[new])

    def holes(self) -> list[Hole]:
        """The tokens that are scored and still unknown, each once, in the order of the texts."""
        found: dict[int, Hole] = {}
        for number, (text, nodes) in enumerate(zip(self.texts, self._nodes, strict=True)):
            first = len(nodes) - text.n_scored
            for offset in np.flatnonzero(~self._is_known[nodes[first:]]):
                found.setdefault(int(nodes[first + offset]), (number, first + int(offset)))
        return list(found.values())

    def fill(self, hole: Hole, logprob: float, greedy: bool) -> None:
        """Takes the engine's answer to a hole as it is: asking a third time would not change it."""
        text, depth = hole
        self._set(self._nodes[text][depth : depth + 1], logprob, greedy)

    def answer(self, text: int) -> ScoredText:
        """Sums over a text's scored tokens, in their order; NaN if one is unknown."""
        nodes = self._nodes[text][-self.texts[text].n_scored :]
        total = sum(self._logprobs[nodes].tolist())  # one after the other, so that the last bit is the engine's too
        return ScoredText(text, float(total), bool(self._greedy[nodes].all()))

    def _set(self, nodes: IntArray, logprobs: DoubleArray | float, greedy: BoolArray | bool) -> None:
        self._logprobs[nodes], self._greedy[nodes], self._is_known[nodes] = logprobs, greedy, True


def _nodes(rows: Sequence[IntArray]) -> list[IntArray]:
    """A number for each token of each row, equal where the tokens up to it are equal, `(n_tokens,)` each."""
    found: list[IntArray] = []
    n_nodes = 0
    for row, shared in zip(rows, shared_with_previous(rows).tolist(), strict=True):
        nodes = np.empty(len(row), np.int32)
        nodes[:shared] = found[-1][:shared] if found else 0
        nodes[shared:] = np.arange(n_nodes, n_nodes + len(row) - shared)
        n_nodes += len(row) - shared
        found.append(nodes)
    return found


logger = logging.getLogger(__name__)

TOKENS_OF_FIRST_CALL = 2**13  # tokens of texts in the first call to the engine
TOKENS_OF_CALL = 2**20  # an engine's answer has some 300 bytes per token of a text, cached or not
SECONDS_AIMED_AT = 15.0  # length of later calls; a kill loses one, and another one that is not yet on disk


class Engine(Protocol):
    """What is asked of an engine. The texts of a call are sent in their order.

    no_counts, no_cache: why it cannot be used if it does not tell `n_preemptions`, or that it read from its cache
    """

    no_counts: ClassVar[str]
    no_cache: ClassVar[str]

    def scores(self, texts: Sequence[IntArray], salt: str | None) -> list[Returned]:
        """Log-probabilities of each text's tokens. Only blocks of requests with the same salt are taken from the
        cache, and none without a salt."""

    def last_tokens(self, texts: Sequence[IntArray], salt: str) -> list[tuple[float, bool]]:
        """Log-probability of each text's last token (nats), and whether it is the most likely one."""

    def n_preemptions(self) -> float | None:
        """How often requests were interrupted so far, after which what the engine says is cached may be wrong; None if
        unknown."""


class EngineScorer:
    """Sends texts in lexicographic order, in portions that bound memory and what a kill can lose. All requests of a
    portion have a salt of their own, so that whatever the engine takes from its cache is in an answer to them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.n_cached, self.n_holes = 0, 0  # tokens, of all texts sent so far

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]:
        """Results of the texts, portion by portion, in the order in which they were sent."""
        joined = Texts.of(texts)
        order = lexicographic(joined)
        until = np.cumsum(joined.lengths[order], dtype=np.int64)  # tokens up to each text of the order
        size, begun = TOKENS_OF_FIRST_CALL, 0
        while begun < len(order):
            n_sent = int(until[begun - 1]) if begun else 0
            portion = order[begun : max(begun + 1, int(np.searchsorted(until, n_sent + size, side="right")))]
            started = time.monotonic()
            scores = self._scored([texts[text] for text in portion])
            faster = SECONDS_AIMED_AT / max(time.monotonic() - started, 0.1)
            size = min(TOKENS_OF_CALL, max(TOKENS_OF_FIRST_CALL, int(size * min(faster, 4))))
            for number, text in enumerate(portion):
                yield scores.answer(number)._replace(text=text)
            begun += len(portion)

    def why_not_exact(self, texts: Sequence[Text], tolerance: float) -> str:
        """Why the cache cannot be used, as a clause; empty if `texts`, of which some must share blocks, get the
        log-likelihoods of plain requests up to `tolerance`, in nats as by `scorers.disagreement`."""
        found, own = [], []
        if self.engine.n_preemptions() is not None:
            found = [*self.answers(texts)]
            for text, returned in zip(texts, self.engine.scores([text.tokens for text in texts], None), strict=True):
                alone = SharedScores([text])
                alone.receive(0, returned)
                own.append(alone.answer(0).loglikelihood)
        if self.engine.n_preemptions() is None:
            return self.engine.no_counts
        if not self.n_cached:
            return self.engine.no_cache
        error = disagreement(found, own, texts)
        if not error <= tolerance:
            return f"its prefix cache is off by {error:.2g} nats per token, more than the tolerance of {tolerance:.2g}"
        logger.info("the prefix cache changes log-likelihoods by %.2g nats per token", error)
        return ""

    def _scored(self, texts: Sequence[Text]) -> SharedScores:
        salt, scores = secrets.token_hex(8), SharedScores(texts)
        asked = scores.to_send()
        for number, one in zip(asked, self._returned([texts[n].tokens for n in asked], salt), strict=True):
            scores.receive(number, one)
        holes = scores.holes()
        self.n_holes += len(holes)
        texts_of_holes = [scores.texts[text].tokens[: depth + 1] for text, depth in holes]
        for hole, (logprob, greedy) in zip(holes, self.engine.last_tokens(texts_of_holes, salt), strict=True):
            scores.fill(hole, logprob, greedy)
        return scores

    def _returned(self, texts: Sequence[IntArray], salt: str) -> list[Returned]:
        n_before = self.engine.n_preemptions()
        found = self.engine.scores(texts, salt)
        n_after = self.engine.n_preemptions()
        if n_before is None or n_after is None or n_after > n_before:
            logger.warning("the engine interrupted requests, or does not say; asking %d texts again", len(texts))
            found = self.engine.scores(texts, None)
        self.n_cached += sum(one.n_cached for one in found)
        return found
