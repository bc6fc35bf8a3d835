"""How a piece of a prefix tree is divided for attention: into blocks of equal size, and trunks that several share.

Where consecutive blocks share a path from the root (a few-shot prompt, the beginning of a long text), attention to it
is one dense product for all of them, and only the rest of each block's path is gathered for that block alone. Which
blocks share how much, and how large blocks are, is chosen by an estimate of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.scoring.prefix_tree import IntArray

# With other numbers of keys, the fused kernel of CPUs takes twice as long in bfloat16, and those of GPUs refuse masks.
KEYS_MULTIPLE = 16
BLOCK_SIZES = (64, 128, 256, 512)


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
    return min((layout_of(depths, size, costs) for size in sizes), key=lambda layout: layout.cost)


def layout_of(depths: IntArray, size: int, costs: Costs) -> TreeLayout:
    """The cheapest layout with blocks of `size` nodes. Nodes share their ancestors down to the shallowest of them, so
    the best division into runs of blocks that share a path is found from left to right."""
    starts = np.arange(0, len(depths), size)
    shallowest = np.minimum.reduceat(depths, starts)
    per_key = size * costs.masked + costs.gathered
    alone = np.concatenate([[0.0], np.cumsum((depths[starts] + float(size)) * per_key)])  # without trunks
    best, begins, lengths = np.zeros(len(starts) + 1), np.zeros(len(starts), int), np.zeros(len(starts), int)
    shared = np.empty(len(starts), int)  # length of the path that all blocks from each one to the last share
    for last in range(len(starts)):
        shared[last] = shallowest[last]
        np.minimum(shared[:last], shallowest[last], out=shared[:last])
        length = shared[: last + 1] // KEYS_MULTIPLE * KEYS_MULTIPLE
        n_blocks = np.arange(last + 1, 0, -1)
        dense = n_blocks * size * (length + costs.joined) + costs.gathered * length + costs.call
        saved = np.maximum(n_blocks * length * per_key - dense, 0)
        cost = best[: last + 1] + alone[last + 1] - alone[: last + 1] - saved
        begin = int(cost.argmin())
        best[last + 1], begins[last] = cost[begin], begin
        lengths[last] = length[begin] if saved[begin] else 0
    found, stop = [], len(starts)
    while stop:
        begin, length_of_all = int(begins[stop - 1]), int(lengths[stop - 1])
        if length_of_all:
            found.append(Shared(begin * size, min(stop * size, len(depths)), length_of_all))
        stop = begin
    return TreeLayout(size, tuple(found[::-1]), float(best[-1]), costs)
