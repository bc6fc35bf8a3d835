"""Builds the prefix tree (trie) of tokenised texts in depth-first order, and counts the tokens that a model reads.

In the tree, a prefix that several texts share exists once. Tokens are counted with and without the tree; those of all
questions of a benchmark are estimated from some of its questions.

A *node* is a token that the model reads: every token of a text but its last. A *target* is a token whose
log-likelihood is requested; it is predicted at its parent node. Depth is the position in the text, from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
Columns = npt.NDArray[np.float64]
ENGINE_BLOCK = 16  # tokens of a block in vLLM's prefix cache, unless `block_size` is given


@dataclass(frozen=True, eq=False)
class Text:
    """A tokenised text: the last `n_scored` of its token ids `(n_tokens,)` are scored, and never the first one."""

    tokens: IntArray
    n_scored: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", np.asarray(self.tokens, np.int32))
        if not 0 < self.n_scored < len(self.tokens):
            raise ValueError(
                f"{self.n_scored} of {len(self.tokens)} tokens are to be scored; at least one must be, and at least "
                "one token must come before them"
            )


class Texts(Sequence[Text]):
    """Many texts in three arrays, since thousands of small ones take longer to handle than to fill.

    flat: tokens of all texts, one text after another
    lengths: the number of tokens of each text, `(n_texts,)`
    n_scored: the number of scored tokens of each text, `(n_texts,)`
    """

    def __init__(self, flat: IntArray, lengths: IntArray, n_scored: IntArray) -> None:
        self.flat, self.lengths, self.n_scored = flat, lengths, n_scored
        self.begins = np.cumsum(lengths, dtype=np.int64) - lengths  # the place of each text's first token

    @classmethod
    def of(cls, texts: Sequence[Text]) -> Texts:
        """Return the same texts as Texts, which they may be already."""
        if isinstance(texts, Texts):
            return texts
        return cls(*_joined([text.tokens for text in texts]), np.array([text.n_scored for text in texts], np.int32))

    @classmethod
    def of_pairs(cls, pairs: Iterable[tuple[IntArray, IntArray]]) -> Texts:
        """Return texts given in two parts.

        pairs: tokens of each text before its first scored one, and the others
        """
        rows = [row for pair in pairs for row in pair]
        flat, lengths = _joined(rows)
        return cls(flat, lengths[::2] + lengths[1::2], lengths[1::2])

    def pairs(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield, for each text, the tokens before its first scored one, and the others."""
        ends = self.begins + self.lengths
        edges = zip(self.begins.tolist(), (ends - self.n_scored).tolist(), ends.tolist(), strict=True)
        return ((self.flat[begin:middle], self.flat[middle:end]) for begin, middle, end in edges)

    def without_beginnings(self, longest: int) -> Texts:
        """Return the texts, longer ones cut to their last `longest` tokens."""
        kept = np.minimum(self.lengths, longest)
        if np.array_equal(kept, self.lengths):
            return self
        ends = self.begins + self.lengths
        return Texts(self.flat[_ranges(kept, ends - kept, ends)[1]], kept, self.n_scored)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, place: int) -> Text:  # type: ignore[override]
        begin, length = int(self.begins[place]), int(self.lengths[place])
        return Text(self.flat[begin : begin + length], int(self.n_scored[place]))


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The prefix tree in depth-first order: any slice of the nodes can be computed given only the keys and values of
    the ancestors of its first node, since every other ancestor of its nodes is in the slice itself."""

    node_tokens: IntArray  # (n_nodes,)
    node_depths: IntArray  # (n_nodes,)
    target_tokens: IntArray  # (n_targets,), text by text in tree order
    target_depths: IntArray  # (n_targets,)
    target_parents: IntArray  # (n_targets,), index of a node
    by_parent: IntArray  # the targets in the order of their parents
    order: IntArray  # (n_texts,), the texts in tree order
    lengths: IntArray  # (n_texts,), in tree order, as all below
    scored_from: IntArray  # (n_texts,), depth of the first scored token
    nodes_until: IntArray  # (n_texts,), number of nodes of this text and those before it
    targets_until: IntArray  # (n_texts,), number of targets of this text and those before it

    @cached_property
    def _parents_in_order(self) -> IntArray:
        return self.target_parents[self.by_parent]

    def targets_below(self, first: int, stop: int) -> IntArray:
        """Return the targets whose parents are the nodes `first .. stop - 1`, in the order of their parents."""
        return self.by_parent[slice(*np.searchsorted(self._parents_in_order, [first, stop]))]


def prefix_tree(texts: Sequence[Text]) -> PrefixTree:
    """Return the tree of `texts`, which may be equal or prefixes of each other, in linear time but for sorting."""
    joined = Texts.of(texts)
    order = np.array(lexicographic(joined), np.int32)
    flat, lengths, begins = joined.flat, joined.lengths[order], joined.begins[order]
    scored_from = lengths - joined.n_scored[order]
    shared = _shared(flat, lengths, begins)
    # If a text continues the one before it, that one's last token is not a node yet.
    fresh = np.minimum(shared, np.concatenate([[0], lengths[:-1] - 1])).astype(np.int32)
    nodes_until = np.cumsum(lengths - 1 - fresh, dtype=np.int32)
    firsts = np.maximum(shared, _scored_from(shared, scored_from))  # of several texts, the first has the target
    targets_until = np.cumsum(lengths - firsts, dtype=np.int32)

    node_texts, node_depths = _ranges(np.arange(len(order)), fresh, lengths - 1)
    target_texts, target_depths = _ranges(np.arange(len(order)), firsts, lengths)
    # A target's parent is a node of the same text, except for a target at the depth of the text's first node.
    parents = (nodes_until - (lengths - 1))[target_texts] + target_depths - 1
    is_first = target_depths <= fresh[target_texts]
    parents[is_first] = _parents_of_first(fresh, lengths, nodes_until)[target_texts[is_first]]
    return PrefixTree(
        node_tokens=flat[begins[node_texts] + node_depths],
        node_depths=node_depths,
        target_tokens=flat[begins[target_texts] + target_depths],
        target_depths=target_depths,
        target_parents=parents,
        by_parent=np.argsort(parents, kind="stable").astype(np.int32),
        order=order,
        lengths=lengths,
        scored_from=scored_from,
        nodes_until=nodes_until,
        targets_until=targets_until,
    )


def lexicographic(texts: Sequence[Text]) -> list[int]:
    """Return the order in which each text is next to those with which it shares the longest prefix."""
    joined = Texts.of(texts)
    whole = joined.flat.astype(">u4").tobytes()  # big-endian bytes sort like the tokens
    begins, ends = 4 * joined.begins, 4 * (joined.begins + joined.lengths)
    keys = [whole[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    return sorted(range(len(texts)), key=keys.__getitem__)


def shared_with_previous(rows: Sequence[IntArray]) -> IntArray:
    """Return the length of the common prefix of each row and the one before it."""
    flat, lengths = _joined(rows)
    return _shared(flat, lengths, np.cumsum(lengths, dtype=np.int64) - lengths)


def _shared(flat: IntArray, lengths: IntArray, begins: npt.NDArray[np.int64]) -> IntArray:
    compared = np.minimum(lengths, np.concatenate([[0], lengths[:-1]])[: len(lengths)])
    steps = (begins - np.concatenate([[0], begins[:-1]])[: len(begins)]).astype(np.int32)
    places = np.repeat((begins - (np.cumsum(compared) - compared)).astype(np.int32), compared)
    places += np.arange(len(places), dtype=np.int32)
    differs = np.flatnonzero(flat[places] != flat[places - np.repeat(steps, compared)])
    # the first place of a row that differs, or that of a later row
    first_of_row = np.cumsum(compared) - compared
    first_differing = np.append(differs, len(places))[np.searchsorted(differs, first_of_row)]
    shared: IntArray = np.minimum(first_differing - first_of_row, compared).astype(np.int32)
    return shared


def _joined(rows: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the rows one after another, and their lengths."""
    lengths = np.array([len(row) for row in rows], np.int32)
    flat = np.concatenate(rows).astype(np.int32, copy=False) if len(rows) else np.empty(0, np.int32)
    return flat, lengths


def _ranges(owners: npt.NDArray[Any], firsts: IntArray, stops: IntArray) -> tuple[npt.NDArray[np.int64], IntArray]:
    """Return owners and integers of the ranges `firsts[i] .. stops[i] - 1`, one range after another."""
    sizes = stops - firsts
    begins = np.cumsum(sizes) - sizes
    numbers = np.arange(int(sizes.sum()), dtype=np.int32) - np.repeat((begins - firsts).astype(np.int32), sizes)
    return np.repeat(owners.astype(np.int64), sizes), numbers


def _parents_of_first(fresh: IntArray, lengths: IntArray, nodes_until: IntArray) -> IntArray:
    """Return, for each text, the parent of the first node that the text before it does not have; -1 for a root."""
    # depth of the first node of a text on the current path, and its index minus depth
    path: list[tuple[int, int]] = []
    parents = []
    for depth, length, until in zip(fresh.tolist(), lengths.tolist(), nodes_until.tolist(), strict=True):
        while path and path[-1][0] >= depth:
            path.pop()
        parents.append(path[-1][1] + depth - 1 if path else -1)
        if depth < length - 1:
            path.append((depth, until - (length - 1)))
    return np.array(parents, np.int32)


def _scored_from(shared: IntArray, scored_from: IntArray) -> IntArray:
    """Return, for each text, the depth from which it, or a later text that shares that depth with it, is scored.

    A few tokens that no text scores may follow, where a later text is scored from a smaller depth.
    """
    depths = scored_from.tolist()
    for text in range(len(depths) - 1, 0, -1):
        if depths[text] < shared[text]:
            depths[text - 1] = min(depths[text - 1], depths[text])
    return np.array(depths, np.int32)


@dataclass(frozen=True)
class TokenCounts:
    """The numbers of tokens that models read to score the tokens of some texts.

    n_row_tokens: all tokens but the last of each text, which predicts nothing
    n_merged_tokens: the same with texts that differ only in their last token in one row; `hf` reads these, without its
        padding
    n_tree_tokens: the distinct prefixes among them; `hf-prefix-tree` reads these
    n_block_tokens: tokens read by an engine that keeps full blocks of `block` tokens and gets the texts in
        lexicographic order; a block that begins an earlier text is not read again, but the last token of a text is
    """

    n_texts: int
    n_row_tokens: int
    n_merged_tokens: int
    n_tree_tokens: int
    n_block_tokens: int


def token_counts(texts: Iterable[IntArray], block: int = ENGINE_BLOCK) -> TokenCounts:
    """Return the numbers of tokens that models read.

    texts: token ids `(n_tokens,)` of each, at least one, as a model would get them; texts may be equal
    """
    keys = sorted(np.asarray(text).astype(">u4").tobytes() for text in texts)  # big-endian bytes sort like the tokens
    rows = [np.frombuffer(key, ">u4") for key in keys]
    lengths = np.array([len(row) for row in rows], np.int64)
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
    """Holds the numbers of tokens of the texts about `n_questions` questions, estimated from `n_measured` of them."""

    counts: TokenCounts
    n_measured: int
    n_questions: int


@dataclass(frozen=True)
class Lengths:
    """Holds the lengths, in any unit, of the parts of questions.

    measured: lengths of the measured questions, in their order, `(n_measured, n_parts)`
    mean: mean lengths over all questions, `(n_parts,)`
    """

    measured: Sequence[Sequence[float]]
    mean: Sequence[float]


def estimate_tokens(
    questions: Sequence[Sequence[IntArray]], n_questions: int, lengths: Lengths | None = None
) -> TokenEstimate:
    """Return the estimated numbers of tokens of all `n_questions`, from the texts about a random sample of them.

    A question without texts counts, too. A beginning that questions share, such as few-shot examples, is counted once:
    in the sample, the sum over questions exceeds the count of all texts together by this share for each question but
    the first.

    questions: the tokenised texts about each question of the sample
    lengths: a regression on them removes the part of the error that comes from drawing long or short questions
    """
    whole = token_counts(text for question in questions for text in question)
    n = len(questions)
    if n >= n_questions or not n:
        return TokenEstimate(whole, n, n_questions)
    each = np.array([astuple(token_counts(question)) for question in questions], np.float64)
    shared = (each.sum(axis=0) - astuple(whole)) / max(1, n - 1)
    mean = each.mean(axis=0) if lengths is None else _regressed(each, lengths)
    totals = n_questions * (mean - shared) + shared
    return TokenEstimate(TokenCounts(*map(round, totals.tolist())), n, n_questions)


def _regressed(values: Columns, lengths: Lengths) -> Columns:
    """Return the value of each column at the mean length, on the plane through the measured values."""
    measured = np.array(lengths.measured, np.float64)
    centre, mean = measured.mean(axis=0), values.mean(axis=0)
    slopes, *_ = np.linalg.lstsq(measured - centre, values - mean, rcond=None)
    at_mean: Columns = mean + (np.array(lengths.mean) - centre) @ slopes
    return at_mean


def without_sharing(estimate: TokenEstimate) -> TokenEstimate:
    """Return the estimate for a model that reads every text in a separate row, as when it generates."""
    counts = estimate.counts
    return replace(estimate, counts=TokenCounts(counts.n_texts, *[counts.n_row_tokens] * 4))
