"""Prefix tree (trie) of tokenised texts in depth-first order: a prefix that several texts share is in it once.

A *node* is a token that the model reads: every token of a text but its last. A *target* is a token whose
log-likelihood is requested; it is predicted at its parent node. Depth is the position in the text, from 0.
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
    """Token ids `(n_tokens,)`, of which the last `n_scored` are scored; the first token is never scored."""

    tokens: IntArray
    n_scored: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", np.asarray(self.tokens, np.int32))
        if not 0 < self.n_scored < len(self.tokens):
            raise ValueError(
                f"{self.n_scored} of {len(self.tokens)} tokens are to be scored; at least one must be, and at least "
                "one token must come before them"
            )


@dataclass(frozen=True)
class ScoredText:
    """One text's result: summed log-likelihood of its scored tokens (nats), and whether each was the most likely."""

    text: int
    loglikelihood: float
    greedy: bool


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The tree in depth-first order. Any slice of the nodes can be computed given only the keys and values of the
    ancestors of its first node, since every other ancestor of its nodes is in the slice itself."""

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

    @property
    def n_row_tokens(self) -> int:
        """Number of tokens to compute if every text had its own row."""
        return int((self.lengths - 1).sum())

    @cached_property
    def _parents_in_order(self) -> IntArray:
        return self.target_parents[self.by_parent]

    def targets_below(self, first: int, stop: int) -> IntArray:
        """The targets whose parents are the nodes `first .. stop - 1`, in the order of their parents."""
        return self.by_parent[slice(*np.searchsorted(self._parents_in_order, [first, stop]))]


def prefix_tree(texts: Sequence[Text]) -> PrefixTree:
    """The tree of `texts`, which may be equal or prefixes of each other; linear in their tokens except for sorting."""
    keys = [text.tokens.astype(">u4").tobytes() for text in texts]  # big-endian bytes sort like the tokens
    order = np.array(sorted(range(len(texts)), key=keys.__getitem__), np.int32)
    del keys
    rows = [texts[text].tokens for text in order]
    lengths = np.array([len(row) for row in rows], np.int32)
    scored_from = lengths - np.array([texts[text].n_scored for text in order], np.int32)
    shared = shared_with_previous(rows)
    # If a text continues the one before it, that one's last token is not a node yet.
    fresh = np.minimum(shared, np.concatenate([[0], lengths[:-1] - 1])).astype(np.int32) if rows else shared
    nodes_until = np.cumsum(lengths - 1 - fresh, dtype=np.int32)
    asked = _asked_for(shared, lengths, scored_from)
    targets_until = np.cumsum([np.count_nonzero(new) for new in asked], dtype=np.int32)

    n_nodes, n_targets = (int(counts[-1]) if rows else 0 for counts in (nodes_until, targets_until))
    node_tokens, node_depths = np.empty((2, n_nodes), np.int32)
    target_tokens, target_depths, target_parents = np.empty((3, n_targets), np.int32)
    counting = np.arange(lengths.max(initial=0), dtype=np.int32)
    path = np.empty_like(counting)  # the nodes of the current text, by depth
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


def shared_with_previous(rows: Sequence[IntArray]) -> IntArray:
    """Length of the common prefix of each row and the one before it."""
    shared = np.zeros(len(rows), np.int32)
    for index in range(1, len(rows)):
        before, row = rows[index - 1], rows[index]
        shorter = min(len(before), len(row))
        differs = before[:shorter] != row[:shorter]
        first = int(differs.argmax()) if shorter else 0
        shared[index] = first if shorter and differs[first] else shorter
    return shared


def _asked_for(shared: IntArray, lengths: IntArray, scored_from: IntArray) -> list[npt.NDArray[np.bool_]]:
    """For each text, which of the tokens that it does not share with the one before it are scored, in this text or in
    a later one that shares them."""
    asked = np.zeros(lengths.max(initial=0), np.bool_)
    found = []
    for old, length, begin in zip(shared[::-1], lengths[::-1], scored_from[::-1], strict=True):
        asked[begin:length] = True
        found.append(asked[old:length].copy())
        asked[old:] = False
    return found[::-1]


class PathSums:
    """Sums the log-likelihoods of the tree's targets along each text, as they become known in tree order."""

    def __init__(self, tree: PrefixTree) -> None:
        self.tree = tree
        self.logprobs = np.empty(len(tree.target_tokens), np.float32)
        self.greedy = np.empty(len(tree.target_tokens), np.bool_)
        self._path_logprobs = np.empty(tree.lengths.max(initial=0), np.float64)
        self._path_greedy = np.empty(tree.lengths.max(initial=0), np.bool_)
        self._n_answered = 0

    def answers(self, n_nodes: int) -> Iterator[ScoredText]:
        """Results of the texts that are complete after the first `n_nodes` nodes and have not been yielded yet."""
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
