"""Reports what a run's requests amount to before the first one, and how long they still take by the answers so far."""

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
from lm_eval_leakage.harness.models.question_requests import n_request_characters
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

FIRST_SECONDS = 10.0  # of the first batch, from which time is estimated
WORTH_TELLING = 30.0  # seconds left; whoever waits for less needs no estimate
CHANGED = 0.3  # of the time that was reported; another estimate is reported only if it differs by more
LATER = 2  # times the seconds of an estimate, after which the next one is made
QUESTIONS_WEIGHED = 600  # at most, drawn at random; only the length of their texts is measured
QUESTIONS_MEASURED = 60  # of these, at most; their texts are tokenised
SECONDS_OF_TOKENISING = 0.4  # after which no further question is tokenised

# A child of lm_eval's logger, so that the lines are shown where its own notes of progress are.
logger = logging.getLogger("lm_eval.leakage")


@dataclass(frozen=True)
class Pace:
    """The progress of a run.

    share: of the work that is done
    seconds: that this took
    left: seconds for the rest
    """

    share: float
    seconds: float
    left: float


class TimeLeft:
    """Calls `report` after the first batch of answers, and again whenever an estimate turns out to be wrong.

    An estimate is made anew when the run has taken twice as long, and when the time that was reported is over.

    The clock starts at the first answer, before which requests are tokenised and the backend warms up. Answers may
    come in bursts: the first answer after a pause marks the end of one, and what came before it, less the first burst
    and plus this one, is the work of the time since the first. So for bursts of one size the pace is exact.

    total: of the amounts passed to `done`
    """

    def __init__(
        self, total: float, report: Callable[[Pace], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._report, self._clock = total, report, clock
        self._done = 0.0
        self._start: float | None = None
        self._next, self._end = FIRST_SECONDS, math.nan

    def done(self, amount: float) -> None:
        """Count an answer, in less than a microsecond."""
        if self._start is None:
            self._start = self._clock()
        elif (seconds := self._clock() - self._start) >= self._next:
            self._judge(seconds)
        self._done += amount

    def _judge(self, seconds: float) -> None:
        share = self._done / self._total if self._total else 1.0
        if not share:
            return
        pace = Pace(share, seconds, max(0.0, seconds / share - seconds))
        expected = self._end - seconds
        if pace.left > WORTH_TELLING and not abs(pace.left - expected) <= CHANGED * expected:
            self._end = seconds + pace.left
            self._report(pace)
        self._next = min(LATER * seconds, self._end) if self._end > seconds else LATER * seconds


def announced(lm: Any, method: str, requests: Collection[Any]) -> TimeLeft | None:
    """Log what these requests amount to, estimated from a part of the questions.

    Returns the clock to which answers are reported; None if nothing is logged, as where lm_eval's notes of progress
    are not shown.
    """
    if not requests or getattr(lm, "rank", None) or not is_first() or not logger.isEnabledFor(logging.INFO):
        return None
    try:
        size = _estimated(lm, method, requests)
    except Exception as problem:  # a tokenizer may raise anything, and the run itself will say so
        logger.debug("the requests cannot be counted: %r", problem)
        return None
    logger.info("%s", _in_words(lm, requests, size))
    n_read = read_by(backend_name(lm), size.counts)
    return TimeLeft(sum(n_request_characters(request.args) for request in requests), lambda pace: _log(pace, n_read))


def _estimated(lm: Any, method: str, requests: Collection[Any]) -> TokenEstimate:
    by_question = [
        [request.args for request in of_question]
        for _, of_question in groupby(requests, key=lambda request: (id(request.task), request.doc_id))
    ]
    drawn = random.Random(0).sample(by_question, min(len(by_question), QUESTIONS_WEIGHED))
    lengths = np.array([_lengths(arguments) for arguments in drawn], np.float64)
    texts, start = [], time.monotonic()
    for arguments in drawn[:QUESTIONS_MEASURED]:
        texts.append(tokens_of(lm, method, arguments))
        if time.monotonic() - start > SECONDS_OF_TOKENISING:
            break
    measured = Lengths(lengths[: len(texts)].tolist(), lengths.mean(axis=0).tolist())
    return size_estimated(method, texts, len(by_question), measured)


def _lengths(arguments: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """Return the characters of contexts and of continuations: shared prefixes are mostly of the former."""
    return sum([n_request_characters(each[:1]) for each in arguments]), sum(
        [n_request_characters(each[1:]) for each in arguments]
    )


def _in_words(lm: Any, requests: Collection[Any], size: TokenEstimate) -> str:
    first, *others = dict.fromkeys(request.task.config.task for request in requests)
    counts, name = size.counts, backend_name(lm)
    alone, read = counts.n_row_tokens, read_by(name, counts)
    text = f"{first} and {counted(len(others), 'other task')}" if others else first
    text += f": {counted(len(requests), 'request')} with {about(alone)} tokens"
    if counts.n_tree_tokens < alone:
        text += f", {about(counts.n_tree_tokens)} with shared prefixes read once"
    if read < alone:
        text += f"; {name} reads {about(read)}"
    if n_written := sum(n_generated(request.args) for request in requests):
        text += f", and at most {about(n_written)} to generate"
    if size.n_measured < size.n_questions:
        text += f"; estimated from {size.n_measured} of {count(size.n_questions)} questions"
    return text if has_tokenizer(lm) else f"{text}; four bytes taken for a token"


def _log(pace: Pace, n_tokens: int) -> None:
    done = about(round(pace.share * n_tokens))
    logger.info(
        "about %s left (%s of %s tokens in %s)", duration(pace.left), done, about(n_tokens), duration(pace.seconds)
    )
