"""Requests in portions: while the model scores one, the next is tokenised and its tree is built, in a thread.

Only two portions are in memory at a time. Requests that share a prefix are usually next to each other; what two
portions share is computed twice, which is about a hundredth of the work.

A text's value depends, by rounding, on the texts that are computed with it: those of its portion. So portions are cut
from all requests of a run, and a run that is resumed asks those that are incomplete as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lm_eval_leakage.scoring.prefix_tree import Text, Texts

logger = logging.getLogger(__name__)
T = TypeVar("T")
Pair = tuple[str, str]  # context, continuation
MOST_REQUESTS = 512  # what a kill may cost; a question that two portions share costs about a hundredth
MOST_CHARACTERS = 1 << 24  # some 4 million tokens, 16 MiB


@dataclass(frozen=True, eq=False)
class Portion:
    """Consecutive requests, from `first` on, with their texts in the form that the scorer takes.

    pairs: None for a window of a rolling log-likelihood
    """

    first: int
    pairs: Sequence[Pair | None]
    texts: Texts

    @property
    def longest(self) -> Text:
        return self.texts[int(self.texts.lengths.argmax())]


def in_portions(sizes: Iterable[int]) -> list[slice]:
    """Consecutive requests of at most MOST_REQUESTS and MOST_CHARACTERS in all; `sizes`: characters of each."""
    found, first, n_requests, total = [], 0, 0, 0
    for index, size in enumerate(sizes):
        if index > first and (index - first >= MOST_REQUESTS or total + size > MOST_CHARACTERS):
            found.append(slice(first, index))
            first, total = index, 0
        total += size
        n_requests = index + 1
    return [*found, slice(first, n_requests)] if n_requests else found


class WholePortions(list[Any]):
    """Requests that are some portions of a larger set, cut there."""

    def __init__(self, portions: Iterable[Sequence[Any]]) -> None:
        super().__init__()
        self.portions: list[slice] = []
        for portion in portions:
            self.portions.append(slice(len(self), len(self) + len(portion)))
            self.extend(portion)


def portions_of(requests: Sequence[Any], sizes: Iterable[int]) -> list[slice]:
    return requests.portions if isinstance(requests, WholePortions) else in_portions(sizes)


def one_ahead(tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """The results of the tasks, in order; the next one is computed in a thread while the caller works on one."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenising") as pool:
        upcoming: Future[T] | None = None
        try:
            for task in tasks:
                following = pool.submit(task)
                if upcoming is not None:
                    yield upcoming.result()
                upcoming = following
            if upcoming is not None:
                yield upcoming.result()
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Fit:
    """How a backend of the harness fits a text into the model's window.

    n_beyond: by how many tokens the longest text exceeds the window
    argument: of the model, which sets the window
    """

    backend: str
    n_beyond: int
    argument: str


AS_HF = Fit("hf", 1, "max_length")  # the last token is no input
AS_VLLM = Fit("vllm", -1, "max_model_len")  # an engine generates at least one token


class FittedTexts:
    """Requests as a backend of the harness fits them into the model's window: truncated on the left. Counts those that
    are."""

    def __init__(self, window: int, fit: Fit = AS_HF) -> None:
        self.window, self.fit = window, fit
        self._longest = window + fit.n_beyond
        self._n_cut = self._n_texts = 0

    def texts(self, pairs: Sequence[Pair | None], encoded: Texts) -> Texts:
        """encoded: contexts with their continuations, which are scored; a pair is None for a window of a rolling
        log-likelihood. Raises ValueError for a continuation that does not fit."""
        n_scored, n_before = encoded.n_scored, encoded.lengths - encoded.n_scored
        wrong = np.flatnonzero((n_scored < 1) | (n_scored >= self._longest) | (n_before < 1))
        for place in wrong.tolist():
            raise ValueError(
                f"a request has {n_before[place]} tokens of context and {n_scored[place]} of continuation "
                f"({(pairs[place] or ('', ''))[1][:60]!r}); it needs at least one of each, and a continuation may "
                f"have at most {self._longest - 1} in the model's window of {self.window}: raise "
                f"{self.fit.argument}, or leave this request out"
            )
        self._n_texts += len(encoded)
        self._n_cut += int(np.count_nonzero(encoded.lengths > self._longest))
        return encoded.without_beginnings(self._longest)

    def warn_if_cut(self) -> None:
        if self._n_cut:
            logger.warning(
                "%d of %d texts are longer than the model's window of %d tokens, and truncated on the left as by `%s`",
                self._n_cut,
                self._n_texts,
                self.window,
                self.fit.backend,
            )

    def may_not_fit(self, pair: Pair) -> bool:
        """Whether the pair's continuation could have too many tokens, each of which has at least a byte."""
        continuation = pair[1]
        return (
            4 * len(continuation) >= self._longest
            and len(continuation.encode("utf-8", "surrogatepass")) >= self._longest
        )
