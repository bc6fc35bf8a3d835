"""Log-likelihoods put together from a toy engine's answers: a function of the prefix, with a cache of full blocks."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_leakage.scoring.engine import EngineAnswer, SharedScores
from lm_eval_leakage.scoring.prefix_tree import Text, lexicographic
from tests.scoring.trees import texts


def logprob(prefix: tuple[int, ...]) -> float:
    """Return the log-probability of the last token after those before it, as float32."""
    drawn = int.from_bytes(blake2b(repr(prefix).encode(), digest_size=4).digest(), "big") / 2**32
    return struct.unpack("f", struct.pack("f", -8 * drawn))[0]


def is_greedy(prefix: tuple[int, ...]) -> bool:
    return logprob(prefix) > -6


def plain(text: Text) -> tuple[float, bool]:
    whole = tuple(text.tokens.tolist())
    scored = [whole[: end + 1] for end in range(len(whole) - text.n_scored, len(whole))]
    return sum(map(logprob, scored)), all(map(is_greedy, scored))


class BlockCache:
    """Holds full blocks of the texts that an engine has read; a share `forgets` is lost after each text."""

    def __init__(self, block: int, forgets: float = 0, seed: int = 0) -> None:
        self.block, self.forgets, self.rng = block, forgets, random.Random(seed)
        self.held: dict[tuple[object, ...], None] = {}  # in their order, so that what is lost is drawn by the seed

    def read(self, tokens: Sequence[int], of: object = None, is_used: bool = True) -> int:
        """Return how many tokens of a text are cached, never its last one; from now on, all of it is cached.

        of: only texts of the same share blocks
        """
        n_cached, whole = 0, tuple(tokens)
        while is_used and n_cached + self.block < len(whole) and (of, whole[: n_cached + self.block]) in self.held:
            n_cached += self.block
        self.held |= dict.fromkeys((of, whole[:stop]) for stop in range(self.block, len(whole) + 1, self.block))
        if self.forgets:
            self.held = {key: None for key in self.held if self.rng.random() >= self.forgets}
        return n_cached


class ToyEngine:
    """Rows of cached tokens are left out or, where `whole`, hold garbage."""

    def __init__(self, block: int, whole: bool, forgets: float, seed: int) -> None:
        self.whole, self.rng = whole, random.Random(seed)
        self.cache = BlockCache(block, forgets, seed)

    def ask(self, text: Text) -> EngineAnswer:
        whole = tuple(text.tokens.tolist())
        n_cached = self.cache.read(whole)
        logprobs = np.array([logprob(whole[: end + 1]) for end in range(1, len(whole))])
        greedy = np.array([is_greedy(whole[: end + 1]) for end in range(1, len(whole))])
        if not self.whole:
            return EngineAnswer(n_cached, logprobs[n_cached:], greedy[n_cached:])
        logprobs[:n_cached] = [self.rng.choice([math.nan, 0.0, -1e30, math.inf]) for _ in range(n_cached)]
        greedy[:n_cached] = True
        return EngineAnswer(n_cached, logprobs, greedy)


def in_order(some: list[Text]) -> list[Text]:
    return [some[text] for text in lexicographic(some)]


def filled(scores: SharedScores) -> SharedScores:
    for hole in scores.holes():
        text, depth = hole
        prefix = tuple(scores.texts[text].tokens[: depth + 1].tolist())
        scores.fill(hole, logprob(prefix), is_greedy(prefix))
    return scores


ENGINES = st.builds(
    ToyEngine, st.integers(1, 6), st.booleans(), st.sampled_from([0.0, 0.2, 1.0]), st.integers(0, 2**16)
)


@given(texts(), ENGINES, st.randoms(use_true_random=False))
def test_answers_in_any_order_equal_those_of_texts_computed_alone(
    some: list[Text], engine: ToyEngine, rng: random.Random
) -> None:
    some = in_order(some)
    returned = [(number, engine.ask(text)) for number, text in enumerate(some)]
    rng.shuffle(returned)
    scores = SharedScores(some)
    for number, returned_text in returned:
        scores.receive(number, returned_text)
    filled(scores)
    for number, text in enumerate(some):
        answer = scores.answer(number)
        assert (answer.text, answer.loglikelihood, answer.greedy) == (number, *plain(text))


@given(texts(), ENGINES)
def test_the_holes_are_the_scored_tokens_that_no_answer_holds_each_once(some: list[Text], engine: ToyEngine) -> None:
    some = in_order(some)
    scores, computed, scored = SharedScores(some), set(), set()
    for number, text in enumerate(some):
        returned = engine.ask(text)
        scores.receive(number, returned)
        whole = tuple(text.tokens.tolist())
        computed |= {whole[: end + 1] for end in range(returned.n_cached + 1, len(whole))}
        scored |= {whole[: end + 1] for end in range(len(whole) - text.n_scored, len(whole))}
    holes = [tuple(some[text].tokens[: depth + 1].tolist()) for text, depth in scores.holes()]
    assert sorted(holes) == sorted(scored - computed)


def test_a_missing_or_infinite_value_is_a_hole_and_what_a_hole_gets_is_final() -> None:
    scores = SharedScores([Text([1, 2, 3, 4], 3)])
    scores.receive(0, EngineAnswer(0, np.array([math.nan, -math.inf, -1.0]), np.array([True, True, True])))
    assert scores.holes() == [(0, 1), (0, 2)]
    scores.fill((0, 1), -2.0, True)
    assert math.isnan(scores.answer(0).loglikelihood)
    scores.fill((0, 2), -math.inf, False)
    assert scores.holes() == []
    assert (scores.answer(0).loglikelihood, scores.answer(0).greedy) == (-math.inf, False)


def test_an_answer_longer_than_its_text_is_read_from_the_end() -> None:
    scores = SharedScores([Text([1, 2, 3], 1)])
    scores.receive(0, EngineAnswer(0, np.array([9.0, 9.0, -1.0, -2.0]), np.array([False, False, True, True])))
    assert scores.answer(0).loglikelihood == -2.0
