"""Computes log-likelihoods of texts by an inference engine that caches the keys and values of prefixes in blocks.

Each shared block is computed once. Such an engine returns log-probabilities only for the tokens of a text that it
computed. Those of the blocks that it took from its cache were returned for the text that computed them, a *sibling*
with the same prefix. A token that neither answer has, such as the one that follows the last cached block, is a *hole*
and is sent again by itself. Texts sent in lexicographic order are next to the ones they share most with.
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
from lm_eval_leakage.scoring.scorers import TextScore, disagreement

DoubleArray = npt.NDArray[np.float64]
Hole = tuple[int, int]  # a scored token that no answer of the engine holds: the number of its text, and its depth
logger = logging.getLogger(__name__)
TOKENS_OF_FIRST_CALL = 2**13  # tokens of texts in the first call to the engine
TOKENS_OF_CALL = 2**20  # an engine's answer has some 300 bytes per token of a text, cached or not
SECONDS_AIMED_AT = 15.0  # length of later calls; a kill loses one call, and a second one that is not yet on disk


@dataclass(frozen=True, eq=False)
class EngineAnswer:
    """Holds the answer of the engine to one text.

    n_cached: number of tokens, from the first, that the engine did not compute; 0 if it does not report it and
        computes all
    logprobs: log-probabilities of the last tokens of the text (nats), `(n_returned,)`; NaN where there is none. Those
        of tokens up to and including the first after the cached ones are not used, whatever they hold
    greedy: whether each of these tokens was the most likely one, `(n_returned,)`
    """

    n_cached: int
    logprobs: DoubleArray
    greedy: BoolArray


class SharedScores:
    """Collects an engine's answers to texts, and puts the log-likelihoods of the texts together from them.

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
        """Return the numbers of the texts to send: all but those that a later text begins with, or is equal to."""
        rows = [text.tokens for text in self.texts]
        shared_with_next = [*shared_with_previous(rows)[1:], 0]
        return [number for number, row in enumerate(rows) if shared_with_next[number] < len(row)]

    def receive(self, text: int, answer: EngineAnswer) -> None:
        """Store the engine's answer to a text; answers may come in any order, and again if a text is sent again."""
        nodes = self._nodes[text]
        n_computed = min(len(answer.logprobs), len(nodes) - 1 - answer.n_cached)
        if n_computed <= 0:
            return
        nodes = nodes[-n_computed:]
        logprobs, greedy = answer.logprobs[-n_computed:], answer.greedy[-n_computed:]
        new = np.isfinite(logprobs) & ~self._is_known[nodes]
        self._set(nodes[new], logprobs[new], greedy[new])

    def holes(self) -> list[Hole]:
        """Return the tokens that are scored and still unknown, each once, in the order of the texts."""
        holes: dict[int, Hole] = {}
        for number, (text, nodes) in enumerate(zip(self.texts, self._nodes, strict=True)):
            first = len(nodes) - text.n_scored
            for offset in np.flatnonzero(~self._is_known[nodes[first:]]):
                holes.setdefault(int(nodes[first + offset]), (number, first + int(offset)))
        return list(holes.values())

    def fill(self, hole: Hole, logprob: float, greedy: bool) -> None:
        """Store the engine's answer to a hole even if it is NaN: sending the text a third time would not change it."""
        text, depth = hole
        self._set(self._nodes[text][depth : depth + 1], logprob, greedy)

    def answer(self, text: int) -> TextScore:
        """Return the sum over a text's scored tokens, in their order; NaN if one is unknown."""
        nodes = self._nodes[text][-self.texts[text].n_scored :]
        total = sum(self._logprobs[nodes].tolist())  # one after the other, so that the last bit is the engine's too
        return TextScore(text, float(total), bool(self._greedy[nodes].all()))

    def _set(self, nodes: IntArray, logprobs: DoubleArray | float, greedy: BoolArray | bool) -> None:
        self._logprobs[nodes], self._greedy[nodes], self._is_known[nodes] = logprobs, greedy, True


def _nodes(rows: Sequence[IntArray]) -> list[IntArray]:
    """Return a number for each token of each row, equal where the tokens up to it are equal, `(n_tokens,)` each."""
    numbered: list[IntArray] = []
    n_nodes = 0
    for row, shared in zip(rows, shared_with_previous(rows).tolist(), strict=True):
        nodes = np.empty(len(row), np.int32)
        nodes[:shared] = numbered[-1][:shared] if numbered else 0
        nodes[shared:] = np.arange(n_nodes, n_nodes + len(row) - shared)
        n_nodes += len(row) - shared
        numbered.append(nodes)
    return numbered


class Engine(Protocol):
    """Describes an engine as `EngineScorer` needs it. The texts of a call are sent in their order.

    no_counts: the reason, as a clause, why an engine that does not count `n_preemptions` cannot be used
    no_cache: the reason why an engine that never reports cached tokens cannot be used
    """

    no_counts: ClassVar[str]
    no_cache: ClassVar[str]

    def scores(self, texts: Sequence[IntArray], salt: str | None) -> list[EngineAnswer]:
        """Return log-probabilities of each text's tokens. Only blocks of requests with the same salt are taken from
        the cache, and none without a salt."""

    def last_tokens(self, texts: Sequence[IntArray], salt: str) -> list[tuple[float, bool]]:
        """Return the log-probability of each text's last token (nats), and whether it is the most likely one."""

    def n_preemptions(self) -> float | None:
        """Return how often requests were interrupted so far; None if unknown. After an interruption, the engine's
        number of cached tokens may be wrong."""


class EngineScorer:
    """Scores texts by an engine, to which it sends them in lexicographic order, in portions.

    Portions bound memory and the work that a kill can lose. The requests of a portion have a salt that no others have,
    so that an answer within the portion holds whatever the engine takes from its cache.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.n_cached, self.n_holes = 0, 0  # tokens, of all texts sent so far

    def answers(self, texts: Sequence[Text]) -> Iterator[TextScore]:
        """Yield the results of the texts, portion by portion, in the order in which they were sent."""
        joined = Texts.of(texts)
        order = lexicographic(joined)
        until = np.cumsum(joined.lengths[order], dtype=np.int64)  # tokens up to each text of the order
        size, n_begun = TOKENS_OF_FIRST_CALL, 0
        while n_begun < len(order):
            n_sent = int(until[n_begun - 1]) if n_begun else 0
            portion = order[n_begun : max(n_begun + 1, int(np.searchsorted(until, n_sent + size, side="right")))]
            started = time.monotonic()
            scores = self._scored([texts[text] for text in portion])
            faster = SECONDS_AIMED_AT / max(time.monotonic() - started, 0.1)
            size = min(TOKENS_OF_CALL, max(TOKENS_OF_FIRST_CALL, int(size * min(faster, 4))))
            for number, text in enumerate(portion):
                yield scores.answer(number)._replace(text=text)
            n_begun += len(portion)

    def why_not_exact(self, texts: Sequence[Text], tolerance: float) -> str:
        """Return why the cache cannot be used, as a clause; empty if it can.

        It can if `texts`, of which some must share blocks, get the log-likelihoods of plain requests.

        tolerance: the largest `scorers.disagreement`, in nats
        """
        scores, plain_scores = [], []
        if self.engine.n_preemptions() is not None:
            scores = [*self.answers(texts)]
            for text, answer in zip(texts, self.engine.scores([text.tokens for text in texts], None), strict=True):
                alone = SharedScores([text])
                alone.receive(0, answer)
                plain_scores.append(alone.answer(0).loglikelihood)
        if self.engine.n_preemptions() is None:
            return self.engine.no_counts
        if not self.n_cached:
            return self.engine.no_cache
        error = disagreement(scores, plain_scores, texts)
        if not error <= tolerance:
            return f"its prefix cache is off by {error:.2g} nats per token, more than the tolerance of {tolerance:.2g}"
        logger.info("the prefix cache changes log-likelihoods by %.2g nats per token", error)
        return ""

    def _scored(self, texts: Sequence[Text]) -> SharedScores:
        """Return the scores of one portion of texts."""
        salt, scores = secrets.token_hex(8), SharedScores(texts)
        sent = scores.to_send()
        for number, answer in zip(sent, self._answers_to([texts[n].tokens for n in sent], salt), strict=True):
            scores.receive(number, answer)
        holes = scores.holes()
        self.n_holes += len(holes)
        texts_of_holes = [scores.texts[text].tokens[: depth + 1] for text, depth in holes]
        for hole, (logprob, greedy) in zip(holes, self.engine.last_tokens(texts_of_holes, salt), strict=True):
            scores.fill(hole, logprob, greedy)
        return scores

    def _answers_to(self, texts: Sequence[IntArray], salt: str) -> list[EngineAnswer]:
        """Return the engine's answers to texts, which are computed whole if a request was interrupted."""
        n_before = self.engine.n_preemptions()
        answers = self.engine.scores(texts, salt)
        n_after = self.engine.n_preemptions()
        if n_before is None or n_after is None or n_after > n_before:
            logger.warning(
                "the engine interrupted requests, or does not count them; sending %d texts again", len(texts)
            )
            answers = self.engine.scores(texts, None)
        self.n_cached += sum(answer.n_cached for answer in answers)
        return answers
