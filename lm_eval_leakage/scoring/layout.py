"""How a piece of a prefix tree is divided for attention: into blocks of equal size, and trunks that several share.

Where consecutive blocks share a path from the root (a few-shot prompt, the beginning of a long text), attention to it
is one dense product for all of them, and only the rest of each block's path is gathered for that block alone. Which
blocks share how much, and how large blocks are, is chosen by an estimate of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_leakage.scoring.prefix_tree import IntArray

# With other numbers of keys, the fused kernel of CPUs takes twice as long in bfloat16, and those of GPUs refuse masks.
KEYS_MULTIPLE = 16
BLOCK_SIZES = (64, 128, 256, 512)
MOST_BLOCKS = 512  # that a trunk spans; the time to find the best trunks grows with its square


@dataclass(frozen=True)
class Costs:
    """Costs relative to that of one query's score of one key without a mask."""

    masked: float  # a score with a mask
    gathered: float  # copying a key and its value
    joined: float  # joining a query's two results
    call: float  # one more attention call


COSTS = {
    "cpu": Costs(masked=1.15, gathered=8, joined=55, call=2**14),  # measured on SmolLM2-135M
    "cuda": Costs(masked=1.2, gathered=44, joined=180, call=2**20),  # on paper: 32 heads on an H100
}


@dataclass(frozen=True)
class Shared:
    """Nodes `first .. stop - 1` of a piece share their ancestors at depths below `length`."""

    first: int
    stop: int
    length: int


@dataclass(frozen=True)
class TreeLayout:
    size: int  # of each block, in nodes
    shared: tuple[Shared, ...] = ()
    cost: float = 0
    costs: Costs = COSTS["cpu"]

    def rooms(self, lengths: IntArray) -> IntArray:
        """Padded lengths of the blocks' paths: few different ones, so that few calls are needed."""
        wanted = -(-lengths // KEYS_MULTIPLE) * KEYS_MULTIPLE
        per_key = self.size * self.costs.masked + self.costs.gathered
        found, room = np.empty_like(wanted), 0
        for length in np.unique(wanted)[::-1]:
            alike = wanted == length
            if not room or np.count_nonzero(alike) * (room - length) * per_key > self.costs.call:
                room = int(length)
            found[alike] = room
        return found


def cheapest_layout(depths: IntArray, device_type: str = "cpu") -> TreeLayout:
    """The layout of least estimated cost for nodes in depth-first order at `depths`."""
    costs = COSTS.get(device_type, COSTS["cpu"])
    sizes = sorted({min(size, len(depths)) for size in BLOCK_SIZES})
    best = layout_of(depths, sizes[0], costs)
    for size in sizes[1:]:
        if _least_cost(depths, size, costs) < best.cost:
            best = min(best, layout_of(depths, size, costs), key=lambda layout: layout.cost)
    return best


def _least_cost(depths: IntArray, size: int, costs: Costs) -> float:
    """No layout with blocks of `size` nodes costs less: as if all of each block's path were a trunk, for nothing."""
    begins = depths[::size]
    return size * (len(begins) * (size * costs.masked + costs.gathered) + float(begins.sum(dtype=np.int64)))


def layout_of(depths: IntArray, size: int, costs: Costs) -> TreeLayout:
    """The cheapest layout with blocks of `size` nodes. Nodes share their ancestors down to the shallowest of them, so
    no trunk spans a block in which a node has so few that joining costs more; between such blocks, the best trunks
    are found."""
    starts = np.arange(0, len(depths), size)
    shallowest = np.minimum.reduceat(depths, starts)
    per_key = size * costs.masked + costs.gathered
    alone = (depths[starts] + float(size)) * per_key  # without trunks
    total, found = 0.0, []
    is_worth_it = shallowest * (per_key - size) > size * costs.joined
    edges = np.flatnonzero(np.diff(is_worth_it, prepend=False, append=False))
    for begin, end in edges.reshape(-1, 2).tolist():
        for first in range(begin, end, MOST_BLOCKS):
            some = slice(first, min(first + MOST_BLOCKS, end))
            saved, trunks = _best_trunks(shallowest[some], size, costs)
            total -= saved
            for own, stop, length in trunks:
                found.append(Shared((first + own) * size, min((first + stop) * size, len(depths)), length))
    return TreeLayout(size, tuple(found), total + float(alone.sum()), costs)


def _best_trunks(shallowest: IntArray, size: int, costs: Costs) -> tuple[float, list[tuple[int, int, int]]]:
    """What the best division of consecutive blocks into runs that share a path saves, and those runs that do: the
    first block, the one after the last, and the length of the path."""
    n = len(shallowest)
    saved, length = _saved_by_runs(shallowest, size, costs)
    best, begins = np.zeros(n + 1), np.zeros(n, int)
    for last in range(n):
        together = best[: last + 1] + saved[last, : last + 1]
        begin = int(together.argmax())
        best[last + 1], begins[last] = together[begin], begin
    found, stop = [], n
    while stop:
        begin = int(begins[stop - 1])
        if saved[stop - 1, begin]:
            found.append((begin, stop, int(length[stop - 1, begin])))
        stop = begin
    return float(best[-1]), found[::-1]


def _saved_by_runs(
    shallowest: IntArray, size: int, costs: Costs
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """What a trunk for all blocks from `begin` to `last` saves, at `[last, begin]`, and its length; 0 where it saves
    nothing."""
    place = np.arange(len(shallowest))
    per_key = size * costs.masked + costs.gathered
    shared = np.where(place[:, None] >= place, shallowest[:, None], np.iinfo(np.int32).max)
    length = np.minimum.accumulate(shared, axis=0).astype(np.int64) // KEYS_MULTIPLE * KEYS_MULTIPLE
    n_blocks = np.maximum(place[:, None] - place + 1, 0)
    of_key = n_blocks * (per_key - size) - costs.gathered  # saved by each key of the trunk
    saved = np.maximum(of_key * length - (n_blocks * size * costs.joined + costs.call), 0)
    return np.where(place[:, None] >= place, saved, 0), length
