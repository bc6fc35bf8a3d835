"""Texts as one prefix tree over token ids, in depth-first order: what texts share is in it once.

A *node* is a token that the model reads: every token of a text but its last. A *target* is a token whose
log-likelihood somebody asks for; it is predicted at its parent node. Depth is position in the text, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Text:
    """Token ids `(n_tokens,)`, of which the last `n_scored` are asked for; the first token is never asked for."""

    tokens: IntArray
    n_scored: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", np.asarray(self.tokens, np.int32))
        if not 0 < self.n_scored < len(self.tokens):
            raise ValueError(
                f"{self.n_scored} of {len(self.tokens)} tokens are to be scored; that must be at least one, and at "
                "least one must stand before them"
            )


@dataclass(frozen=True)
class ScoredText:
    """What the model says of one text: the sum over its scored tokens (nats), and whether each was the likeliest."""

    text: int
    loglikelihood: float
    greedy: bool


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The tree in depth-first order. Any slice of the nodes can be computed from the keys and values of the
    ancestors of its first node alone, for every other ancestor of its nodes is in the slice itself."""

    node_tokens: IntArray  # (n_nodes,)
    node_depths: IntArray  # (n_nodes,)
    target_tokens: IntArray  # (n_targets,), text by text in tree order
    target_depths: IntArray  # (n_targets,)
    target_parents: IntArray  # (n_targets,), index of a node
    by_parent: IntArray  # the targets in the order of their parents
    order: IntArray  # (n_texts,), the texts in tree order
    lengths: IntArray  # (n_texts,), as all below in tree order
    scored_from: IntArray  # (n_texts,), depth of the first scored token
    nodes_until: IntArray  # (n_texts,), so many nodes hold this text and those before it
    targets_until: IntArray  # (n_texts,)

    @property
    def n_row_tokens(self) -> int:
        """Tokens that the texts would have as rows of their own."""
        return int((self.lengths - 1).sum())

    @cached_property
    def _parents_in_order(self) -> IntArray:
        return self.target_parents[self.by_parent]

    def targets_below(self, first: int, stop: int) -> IntArray:
        """The targets whose parents are the nodes `first .. stop - 1`, in the order of their parents."""
        return self.by_parent[slice(*np.searchsorted(self._parents_in_order, [first, stop]))]


def prefix_tree(texts: Sequence[Text]) -> PrefixTree:
    """The tree of `texts`, which may repeat or begin one another; linear in their tokens but for the sort."""
    keys = [text.tokens.astype(">u4").tobytes() for text in texts]  # bytes sort as the tokens do
    order = np.array(sorted(range(len(texts)), key=keys.__getitem__), np.int32)
    del keys
    rows = [texts[text].tokens for text in order]
    lengths = np.array([len(row) for row in rows], np.int32)
    scored_from = lengths - np.array([texts[text].n_scored for text in order], np.int32)
    shared = _shared_with_previous(rows)
    # A text that goes on where the one before it ends: that one's last token was no node yet.
    fresh = np.minimum(shared, np.concatenate([[0], lengths[:-1] - 1])).astype(np.int32) if rows else shared
    nodes_until = np.cumsum(lengths - 1 - fresh, dtype=np.int32)
    asked = _asked_for(shared, lengths, scored_from)
    targets_until = np.cumsum([np.count_nonzero(new) for new in asked], dtype=np.int32)

    n_nodes, n_targets = (int(counts[-1]) if rows else 0 for counts in (nodes_until, targets_until))
    node_tokens, node_depths = np.empty((2, n_nodes), np.int32)
    target_tokens, target_depths, target_parents = np.empty((3, n_targets), np.int32)
    counting = np.arange(lengths.max(initial=0), dtype=np.int32)
    path = np.empty_like(counting)  # by depth, the nodes of the text at hand
    for row, begin, old, new, node, target in zip(rows, fresh, shared, asked, nodes_until, targets_until, strict=True):
        nodes = slice(node - (len(row) - 1 - begin), node)
        node_tokens[nodes] = row[begin:-1]
        node_depths[nodes] = counting[begin : len(row) - 1]
        path[begin : len(row) - 1] = np.arange(nodes.start, nodes.stop)
        depths = counting[old : len(row)][new]
        targets = slice(target - len(depths), target)
        target_tokens[targets] = row[depths]
        target_depths[targets] = depths
        target_parents[targets] = path[depths - 1]
    by_parent = np.argsort(target_parents, kind="stable").astype(np.int32)
    return PrefixTree(
        node_tokens,
        node_depths,
        target_tokens,
        target_depths,
        target_parents,
        by_parent,
        order,
        lengths,
        scored_from,
        nodes_until,
        targets_until,
    )


def _shared_with_previous(rows: Sequence[IntArray]) -> IntArray:
    """How many tokens each row has in common with the one before it, from its beginning."""
    shared = np.zeros(len(rows), np.int32)
    for index in range(1, len(rows)):
        before, row = rows[index - 1], rows[index]
        shorter = min(len(before), len(row))
        differs = before[:shorter] != row[:shorter]
        first = int(differs.argmax()) if shorter else 0
        shared[index] = first if shorter and differs[first] else shorter
    return shared


def _asked_for(shared: IntArray, lengths: IntArray, scored_from: IntArray) -> list[npt.NDArray[np.bool_]]:
    """For each text, which of the tokens that it does not share with the one before it are scored: in itself,
    or in one of the texts after it that share them."""
    asked = np.zeros(lengths.max(initial=0), np.bool_)
    found = []
    for old, length, begin in zip(shared[::-1], lengths[::-1], scored_from[::-1], strict=True):
        asked[begin:length] = True
        found.append(asked[old:length].copy())
        asked[old:] = False
    return found[::-1]


class PathSums:
    """Sums along the texts as the log-likelihoods of the tree's targets become known, from its first node on."""

    def __init__(self, tree: PrefixTree) -> None:
        self.tree = tree
        self.logprobs = np.empty(len(tree.target_tokens), np.float32)
        self.greedy = np.empty(len(tree.target_tokens), np.bool_)
        self._path_logprobs = np.empty(tree.lengths.max(initial=0), np.float64)
        self._path_greedy = np.empty(tree.lengths.max(initial=0), np.bool_)
        self._n_answered = 0

    def answers(self, n_nodes: int) -> Iterator[ScoredText]:
        """The texts that the first `n_nodes` nodes complete and that were not answered yet."""
        tree = self.tree
        first, stop = self._n_answered, int(np.searchsorted(tree.nodes_until, n_nodes, side="right"))
        for rank in range(first, stop):
            new = slice(tree.targets_until[rank - 1] if rank else 0, tree.targets_until[rank])
            depths = tree.target_depths[new]
            self._path_logprobs[depths] = self.logprobs[new]
            self._path_greedy[depths] = self.greedy[new]
            scored = slice(tree.scored_from[rank], tree.lengths[rank])
            total, greedy = self._path_logprobs[scored].sum(), self._path_greedy[scored].all()
            yield ScoredText(int(tree.order[rank]), float(total), bool(greedy))
        self._n_answered = max(first, stop)
