"""Says before the first request how much a run will ask, and after the first answers how long that takes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from lm_eval_leakage.harness.models.processes import is_first
from lm_eval_leakage.harness.models.request_tokens import (
    backend_name,
    has_tokenizer,
    n_characters,
    n_generated,
    read_by,
    size_estimated,
    tokens_of,
)
from lm_eval_leakage.harness.models.time_left import Pace, TimeLeft
from lm_eval_leakage.results.formatting import about, count, counted, duration
from lm_eval_leakage.scoring.token_counts import Lengths, TokenEstimate

logger = logging.getLogger(__name__)

QUESTIONS_MEASURED = 60  # at most, drawn at random; the rest is taken to be like them
SECONDS_OF_TOKENISING = 0.4  # after which no further question is drawn


class CountedRequest(Protocol):
    """What is needed of a request to be counted."""

    args: tuple[Any, ...]
    task: Any
    doc_id: int | None


def announced(lm: Any, method: str, requests: Sequence[CountedRequest]) -> TimeLeft:
    """Logs what these requests amount to, and returns the clock to be told of their answers."""
    if not requests or getattr(lm, "rank", None) or not is_first():
        return TimeLeft(0, _silent)
    try:
        size, n_long = _sampled(lm, method, requests)
    except Exception as problem:  # a tokenizer may raise anything, and the run itself will say so
        logger.debug("the requests cannot be counted: %r", problem)
        return TimeLeft(0, _silent)
    n_read = read_by(backend_name(lm), size.counts)
    logger.info("%s: %s", _names(requests), _in_words(lm, method, requests, size))
    return TimeLeft(n_long, lambda pace: _tell(pace, n_read))


def _sampled(lm: Any, method: str, requests: Sequence[CountedRequest]) -> tuple[TokenEstimate, int]:
    """The tokens, and the number of characters of all requests."""
    by_question = [[*own] for _, own in groupby(requests, key=lambda one: (id(one.task), one.doc_id))]
    lengths = np.array([_lengths(own) for own in by_question], np.float64)
    drawn = random.Random(0).sample(range(len(by_question)), min(len(by_question), QUESTIONS_MEASURED))
    texts, begun = [], time.monotonic()
    for place in drawn:
        texts.append(tokens_of(lm, method, [one.args for one in by_question[place]]))
        if time.monotonic() - begun > SECONDS_OF_TOKENISING:
            break
    known = Lengths(lengths[drawn[: len(texts)]].tolist(), lengths.mean(axis=0).tolist())
    return size_estimated(method, texts, len(by_question), known), int(lengths.sum())


def _lengths(own: Sequence[CountedRequest]) -> tuple[int, int]:
    """Characters of contexts and of continuations: shared prefixes are mostly of the former."""
    n_contexts = sum([n_characters(one.args[:1]) for one in own])
    return n_contexts, sum([n_characters(one.args[1:]) for one in own])


def _names(requests: Sequence[CountedRequest]) -> str:
    first, *others = dict.fromkeys(one.task.config.task for one in requests)
    return f"{first} and {counted(len(others), 'other task')}" if others else str(first)


def _in_words(lm: Any, method: str, requests: Sequence[CountedRequest], size: TokenEstimate) -> str:
    counts, name = size.counts, backend_name(lm)
    alone, read = counts.n_row_tokens, read_by(name, counts)
    asked = f"{counted(len(requests), 'request')} with {about(alone)} tokens"
    if counts.n_tree_tokens < alone:
        asked += f", {about(counts.n_tree_tokens)} with shared prefixes read once"
    if read < alone:
        asked += f"; {name} reads {about(read)}"
    if method == "generate_until":
        written = sum([n_generated(one.args) for one in requests])
        asked += f", and at most {about(written)} to generate"
    if size.n_measured < size.n_questions:
        asked += f"; estimated from {size.n_measured} of {count(size.n_questions)} questions"
    return asked if has_tokenizer(lm) else f"{asked}; four bytes taken for a token"


def _tell(pace: Pace, n_tokens: int) -> None:
    done = about(round(pace.share * n_tokens))
    logger.info(
        "about %s left (%s of %s tokens in %s)", duration(pace.left), done, about(n_tokens), duration(pace.seconds)
    )


def _silent(_: Pace) -> None:
    """Tells nothing."""
