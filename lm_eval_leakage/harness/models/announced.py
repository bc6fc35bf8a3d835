"""How long a run still takes, by the pace of the answers so far.

Says before the first request how much a run will ask, and after the first answers how long that takes.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from lm_eval_leakage.harness.models.processes import is_first
from lm_eval_leakage.harness.models.question_requests import n_characters
from lm_eval_leakage.harness.models.request_tokens import (
    backend_name,
    has_tokenizer,
    n_generated,
    read_by,
    size_estimated,
    tokens_of,
)
from lm_eval_leakage.results.formatting import about, count, counted, duration
from lm_eval_leakage.scoring.prefix_tree import Lengths, TokenEstimate

FIRST_SHARE, FIRST_SECONDS = 0.05, 10.0  # whatever comes first ends the first batch, from which time is estimated
FEWEST_SECONDS = 1.0  # of the first batch; less says too little
WORTH_TELLING = 30.0  # seconds left; whoever waits for less needs no estimate
CHANGED = 0.3  # of the time that was told; another estimate is told only if it differs by more
LATER = 2  # times the seconds of an estimate, after which the next one is made


@dataclass(frozen=True)
class Pace:
    """share: of the work that is done; seconds: that this took; left: seconds for the rest"""

    share: float
    seconds: float
    left: float


class TimeLeft:
    """Calls `tell` after the first batch of answers, and again whenever an estimate turns out to be wrong: it is made
    anew when the run has taken twice as long, and when the time that was told is over.

    The clock starts at the first answer, before which requests are tokenised and the backend warms up. Answers may
    come in bursts: the first answer after a pause marks the end of one, and what came before it, less the first burst
    and plus this one, is the work of the time since the first. So for bursts of one size the pace is exact.

    total: of the amounts passed to `done`
    """

    def __init__(
        self, total: float, tell: Callable[[Pace], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._tell, self._clock = total, tell, clock
        self._done = 0.0
        self._begun: float | None = None
        self._next, self._end = FEWEST_SECONDS, math.nan

    def done(self, amount: float) -> None:
        """Counts an answer. Takes less than a microsecond."""
        if self._begun is None:
            self._begun = self._clock()
        elif (seconds := self._clock() - self._begun) >= self._next:
            self._judge(seconds)
        self._done += amount

    def _judge(self, seconds: float) -> None:
        share = self._done / self._total if self._total else 1.0
        if not share or (seconds < FIRST_SECONDS and share < FIRST_SHARE):
            return
        pace = Pace(share, seconds, max(0.0, seconds / share - seconds))
        expected = self._end - seconds
        if pace.left > WORTH_TELLING and not abs(pace.left - expected) <= CHANGED * expected:
            self._end = seconds + pace.left
            self._tell(pace)
        self._next = min(LATER * seconds, self._end) if self._end > seconds else LATER * seconds


# A child of lm_eval's logger, so that the lines are shown where its own notes of progress are.
logger = logging.getLogger("lm_eval.leakage")

QUESTIONS_WEIGHED = 600  # at most, drawn at random; only the length of their texts is measured
QUESTIONS_MEASURED = 60  # of these, at most; their texts are tokenised
SECONDS_OF_TOKENISING = 0.4  # after which no further question is tokenised


def announced(lm: Any, method: str, requests: Collection[Any]) -> TimeLeft | None:
    """Logs what these requests amount to, and returns the clock to be told of their answers; None if nothing is said,
    as where lm_eval's notes of progress are not shown. Numbers are estimated from a part of the questions."""
    if not requests or getattr(lm, "rank", None) or not is_first() or not logger.isEnabledFor(logging.INFO):
        return None
    try:
        size, n_long, n_written = _estimated(lm, method, requests)
    except Exception as problem:  # a tokenizer may raise anything, and the run itself will say so
        logger.debug("the requests cannot be counted: %r", problem)
        return None
    logger.info("%s", _in_words(lm, requests, size, n_written))
    n_read = read_by(backend_name(lm), size.counts)
    return TimeLeft(n_long, lambda pace: _tell(pace, n_read))


def _estimated(lm: Any, method: str, requests: Collection[Any]) -> tuple[TokenEstimate, float, float]:
    """Tokens, characters and the most tokens that are generated, of all requests."""
    by_question = [[*own] for _, own in groupby(requests, key=lambda one: (id(one.task), one.doc_id))]
    drawn = random.Random(0).sample(by_question, min(len(by_question), QUESTIONS_WEIGHED))
    asked = [[one.args for one in own] for own in drawn]
    lengths = np.array([_lengths(own) for own in asked], np.float64)
    texts, begun = [], time.monotonic()
    for own in asked[:QUESTIONS_MEASURED]:
        texts.append(tokens_of(lm, method, own))
        if time.monotonic() - begun > SECONDS_OF_TOKENISING:
            break
    scale, mean = len(by_question) / len(asked), lengths.mean(axis=0).tolist()
    size = size_estimated(method, texts, len(by_question), Lengths(lengths[: len(texts)].tolist(), mean))
    return size, scale * float(lengths.sum()), scale * sum(n_generated(one) for own in asked for one in own)


def _lengths(own: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Characters of contexts and of continuations: shared prefixes are mostly of the former."""
    return sum([n_characters(one[:1]) for one in own]), sum([n_characters(one[1:]) for one in own])


def _in_words(lm: Any, requests: Collection[Any], size: TokenEstimate, n_written: float) -> str:
    first, *others = dict.fromkeys(one.task.config.task for one in requests)
    counts, name = size.counts, backend_name(lm)
    alone, read = counts.n_row_tokens, read_by(name, counts)
    told = f"{first} and {counted(len(others), 'other task')}" if others else first
    told += f": {counted(len(requests), 'request')} with {about(alone)} tokens"
    if counts.n_tree_tokens < alone:
        told += f", {about(counts.n_tree_tokens)} with shared prefixes read once"
    if read < alone:
        told += f"; {name} reads {about(read)}"
    if n_written:
        told += f", and at most {about(round(n_written))} to generate"
    if size.n_measured < size.n_questions:
        told += f"; estimated from {size.n_measured} of {count(size.n_questions)} questions"
    return told if has_tokenizer(lm) else f"{told}; four bytes taken for a token"


def _tell(pace: Pace, n_tokens: int) -> None:
    done = about(round(pace.share * n_tokens))
    logger.info(
        "about %s left (%s of %s tokens in %s)", duration(pace.left), done, about(n_tokens), duration(pace.seconds)
    )
