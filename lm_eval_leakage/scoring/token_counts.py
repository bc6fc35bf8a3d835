"""Number of tokens to read for given tokenised texts: each in a row of its own, or shared prefixes once;
and how many for all questions of a benchmark, estimated from some of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
import numpy.typing as npt

from lm_eval_leakage.scoring.prefix_tree import IntArray, shared_with_previous

Columns = npt.NDArray[np.float64]
ENGINE_BLOCK = 16  # tokens: what vLLM's prefix cache holds as one, unless `block_size` is given


@dataclass(frozen=True)
class TokenCounts:
    """Of texts whose tokens' log-likelihoods are asked for.

    n_row_tokens: all tokens but the last of each text, which predicts nothing
    n_merged_tokens: the same with texts that differ only in their last token in one row: what `hf` reads, without its
        padding
    n_tree_tokens: the distinct prefixes among them: what `hf-prefix-tree` reads
    n_block_tokens: what an engine reads that keeps full blocks of `block` tokens and gets the texts in lexicographic
        order: a block that begins an earlier text is not read again, but the last token of a text always is
    """

    n_texts: int
    n_row_tokens: int
    n_merged_tokens: int
    n_tree_tokens: int
    n_block_tokens: int

    @property
    def n_prompt_tokens(self) -> int:
        """All tokens: what an inference engine reads without a prefix cache, since a prompt is read whole."""
        return self.n_row_tokens + self.n_texts


def token_counts(texts: Iterable[IntArray], block: int = ENGINE_BLOCK) -> TokenCounts:
    """texts: token ids `(n_tokens,)` of each, at least one, as a model would get them; they may be equal."""
    keys = sorted(np.asarray(text).astype(">u4").tobytes() for text in texts)  # big-endian bytes sort like the tokens
    rows = [np.frombuffer(key, ">u4") for key in keys]
    lengths = np.array([len(row) for row in rows], np.int64)
    if not lengths.all():
        raise ValueError("a text has no token; an empty request is not sent to a model, so leave it out")
    shared = shared_with_previous(rows).astype(np.int64)
    before = np.concatenate([[0], lengths[:-1]])[: len(rows)]
    # the last token of a text is no input, so a text that continues another one adds that token as an input
    in_tree = np.minimum(shared, np.maximum(np.minimum(lengths, before) - 1, 0))
    cached = np.minimum(shared, lengths - 1) // block * block
    n_row_tokens = int((lengths - 1).sum())
    return TokenCounts(
        n_texts=len(rows),
        n_row_tokens=n_row_tokens,
        n_merged_tokens=sum(len(key) // 4 for key in {key[:-4] for key in keys}),
        n_tree_tokens=n_row_tokens - int(in_tree.sum()),
        n_block_tokens=int((lengths - cached).sum()),
    )


@dataclass(frozen=True)
class TokenEstimate:
    """Counts of the texts about `n_questions` questions, from `n_measured` of them.

    errors: standard errors of the counts; 0 if all questions were measured
    """

    counts: TokenCounts
    errors: TokenCounts
    n_measured: int
    n_questions: int


@dataclass(frozen=True)
class Lengths:
    """Lengths of questions in any unit, of each part of which they consist.

    measured: of the measured questions, in their order, `(n_measured, n_parts)`; mean: over all questions
    """

    measured: Sequence[Sequence[float]]
    mean: Sequence[float]


def estimated(
    questions: Sequence[Sequence[IntArray]],
    n_questions: int,
    lengths: Lengths | None = None,
    block: int = ENGINE_BLOCK,
) -> TokenEstimate:
    """Of all `n_questions`, from the tokenised texts about a random sample of them. A question without texts counts.

    What questions share with each other, such as few-shot examples, is counted once: in the sample, the sum over
    questions exceeds the count of all texts together by this share for each question but the first.

    lengths: a regression on them removes the part of the error that comes from drawing long or short questions
    """
    whole = token_counts((text for question in questions for text in question), block)
    n = len(questions)
    if n >= n_questions or not n:
        return TokenEstimate(whole, token_counts([]), n, n_questions)
    each = np.array([astuple(token_counts(question, block)) for question in questions], np.float64)
    shared = (each.sum(axis=0) - astuple(whole)) / max(1, n - 1)
    mean, deviation = _regressed(each, lengths or Lengths([[]] * n, []))
    totals = n_questions * (mean - shared) + shared
    errors = n_questions * deviation / math.sqrt(n) * math.sqrt(1 - n / n_questions)
    return TokenEstimate(_rounded(totals), _rounded(errors), n, n_questions)


def _regressed(values: Columns, lengths: Lengths) -> tuple[Columns, Columns]:
    """The value of each column at the mean length, and the standard deviation of the values around the plane."""
    measured = np.array(lengths.measured, np.float64)
    centre, mean = measured.mean(axis=0), values.mean(axis=0)
    slopes, _, rank, _ = np.linalg.lstsq(measured - centre, values - mean, rcond=None)
    residuals = values - mean - (measured - centre) @ slopes
    freedom = max(1, len(values) - 1 - int(rank))
    return mean + (np.array(lengths.mean) - centre) @ slopes, np.sqrt((residuals**2).sum(axis=0) / freedom)


def without_sharing(estimate: TokenEstimate) -> TokenEstimate:
    """The same where a model reads every text in a row of its own, as when it generates."""
    return replace(estimate, counts=_in_rows(estimate.counts), errors=_in_rows(estimate.errors))


def _in_rows(counts: TokenCounts) -> TokenCounts:
    return TokenCounts(counts.n_texts, *[counts.n_row_tokens] * 4)


def together(estimates: Sequence[TokenEstimate]) -> TokenEstimate:
    """Of several tasks, whose texts are taken to share nothing with each other."""
    nothing = token_counts([])
    counts = np.array([astuple(nothing), *(astuple(one.counts) for one in estimates)], np.float64)
    errors = np.array([astuple(nothing), *(astuple(one.errors) for one in estimates)], np.float64)
    return TokenEstimate(
        _rounded(counts.sum(axis=0)),
        _rounded(np.sqrt((errors**2).sum(axis=0))),
        sum(one.n_measured for one in estimates),
        sum(one.n_questions for one in estimates),
    )


def _rounded(values: Iterable[float]) -> TokenCounts:
    return TokenCounts(*(round(value) for value in values))
