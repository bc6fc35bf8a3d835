"""Log-likelihoods of texts by an inference engine whose prefix cache is read: each shared block is computed once."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from lm_eval_leakage.scoring.engine_cache import Returned, SharedScores
from lm_eval_leakage.scoring.path_sums import ScoredText
from lm_eval_leakage.scoring.prefix_tree import IntArray, Text, lexicographic

logger = logging.getLogger(__name__)

TOKENS_OF_FIRST_CALL = 2**13  # tokens of texts in the first call to the engine
TOKENS_OF_CALL = 2**20  # an engine's answer has some 300 bytes per token of a text, cached or not
SECONDS_AIMED_AT = 15.0  # length of later calls; a kill loses one, and another one that is not yet on disk


class Engine(Protocol):
    """What is asked of an engine. The texts of a call are sent in their order."""

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
    run have one salt of their own, so that whatever the engine takes from its cache is in an answer of this run."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.n_tokens, self.n_cached, self.n_holes = 0, 0, 0  # of all texts sent so far

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]:
        """Results of the texts, portion by portion, in the order in which they were sent."""
        salt = secrets.token_hex(8)
        order = lexicographic(texts)
        size, begun, before = TOKENS_OF_FIRST_CALL, 0, list[tuple[Text, Returned]]()
        while begun < len(order):
            portion = _portion(texts, order, begun, size)
            started = time.monotonic()
            scores = self._scored([texts[text] for text in portion], before, salt)
            faster = SECONDS_AIMED_AT / max(time.monotonic() - started, 0.1)
            size = min(TOKENS_OF_CALL, max(TOKENS_OF_FIRST_CALL, int(size * min(faster, 4))))
            for number, text in enumerate(portion, start=len(before)):
                answer = scores.answer(number)
                yield ScoredText(text, answer.loglikelihood, answer.greedy)
            last = len(scores.texts) - 1
            before = [(scores.texts[last], scores.row(last))]
            begun += len(portion)

    def _scored(self, texts: Sequence[Text], before: Sequence[tuple[Text, Returned]], salt: str) -> SharedScores:
        """The scores of `before`, whose answers are known, and of `texts`."""
        scores = SharedScores([*(text for text, _ in before), *texts])
        for number, (_, known) in enumerate(before):
            scores.receive(number, known)
        asked = [number for number in scores.to_send() if number >= len(before)]
        for number, one in zip(asked, self._returned([scores.texts[n].tokens for n in asked], salt), strict=True):
            scores.receive(number, one)
        holes = scores.holes()
        self.n_holes += len(holes)
        texts_of_holes = [scores.texts[hole.text].tokens[: hole.depth + 1] for hole in holes]
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
        self.n_tokens += sum(map(len, texts))
        self.n_cached += sum(one.n_cached for one in found)
        return found


def _portion(texts: Sequence[Text], order: Sequence[int], begun: int, size: int) -> list[int]:
    """The texts from number `begun` of the order on that have `size` tokens together, at least one."""
    portion: list[int] = []
    n_tokens = 0
    for text in order[begun:]:
        n_tokens += len(texts[text].tokens)
        if portion and n_tokens > size:
            break
        portion.append(text)
    return portion
