"""Results of texts, from the log-likelihoods of a prefix tree's targets, as they become known in tree order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray, PrefixTree

CELLS_AT_ONCE = 2**18  # texts times depths that are summed together: 1 MiB of indices


@dataclass(frozen=True)
class ScoredText:
    """One text's result: summed log-likelihood of its scored tokens (nats), and whether each was the most likely."""

    text: int
    loglikelihood: float
    greedy: bool


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """The same of several texts, each array `(n_texts,)`."""

    texts: IntArray
    loglikelihoods: npt.NDArray[np.float64]
    greedy: BoolArray

    def __len__(self) -> int:
        return len(self.texts)

    def __iter__(self) -> Iterator[ScoredText]:
        return map(ScoredText, self.texts.tolist(), self.loglikelihoods.tolist(), self.greedy.tolist())

    def answers(self) -> list[tuple[float, bool]]:
        """Of each text, its log-likelihood and whether its tokens were the most likely."""
        return list(zip(self.loglikelihoods.tolist(), self.greedy.tolist(), strict=True))


class PathSums:
    """Sums the log-likelihoods of the tree's targets along each text.

    logprobs, greedy: of each target, `(n_targets,)`, to be filled in as they become known
    """

    def __init__(self, tree: PrefixTree) -> None:
        self.tree = tree
        self.logprobs = np.empty(len(tree.target_tokens), np.float32)
        self.greedy = np.empty(len(tree.target_tokens), np.bool_)
        self._path = np.zeros(int(tree.lengths.max(initial=0)), np.int32)  # at each depth, the last target so far
        self._n_answered = 0

    def answers(self, n_nodes: int) -> ScoredTexts:
        """Results of the texts that are complete after the first `n_nodes` nodes and have not been returned yet."""
        tree, first = self.tree, self._n_answered
        stop = max(first, int(np.searchsorted(tree.nodes_until, n_nodes, side="right")))
        self._n_answered = stop
        totals, greedy = np.empty(stop - first, np.float64), np.empty(stop - first, np.bool_)
        if stop > first:
            width = int(tree.lengths[first:stop].max() - tree.scored_from[first:stop].min())
            step = max(1, CELLS_AT_ONCE // width)
            for begin in range(first, stop, step):
                some = slice(begin - first, begin - first + step)
                totals[some], greedy[some] = self._summed(begin, min(begin + step, stop))
        return ScoredTexts(tree.order[first:stop], totals, greedy)

    def _summed(self, first: int, stop: int) -> tuple[npt.NDArray[np.float64], BoolArray]:
        """Results of the texts `first .. stop - 1`. Those with the same number of tokens are summed together, which
        rounds as summing each alone does."""
        begins, ends = self.tree.scored_from[first:stop], self.tree.lengths[first:stop]
        paths, low = self._paths(first, stop, int(begins.min()), int(ends.max()))
        totals, greedy = np.empty(stop - first, np.float64), np.empty(stop - first, np.bool_)
        for n_scored in np.unique(ends - begins).tolist():
            alike = np.flatnonzero(ends - begins == n_scored)
            depths = (begins[alike] - low)[:, None] + np.arange(n_scored)
            targets = paths[alike[:, None], depths]
            totals[alike] = np.add.reduce(self.logprobs[targets].astype(np.float64), axis=1)
            greedy[alike] = self.greedy[targets].all(axis=1)
        return totals, greedy

    def _paths(self, first: int, stop: int, low: int, high: int) -> tuple[IntArray, int]:
        """At each depth from one of at most `low` on, which is also returned, the target on the path of each text."""
        until = self.tree.targets_until
        begin, end = int(until[first - 1]) if first else 0, int(until[stop - 1])
        depths = self.tree.target_depths[begin:end]
        low = min(low, int(depths.min(initial=low)))
        paths = np.zeros((stop - first, high - low), np.int32)
        owners = np.repeat(np.arange(stop - first), np.diff(until[first:stop], prepend=begin))
        paths[0] = self._path[low:high]
        paths[owners, depths - low] = np.arange(begin, end, dtype=np.int32)
        np.maximum.accumulate(paths, axis=0, out=paths)  # a later target has a higher index
        self._path[low:high] = paths[-1]
        return paths, low
