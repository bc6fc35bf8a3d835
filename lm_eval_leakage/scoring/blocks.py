"""Attention masks of a prefix tree as small dense blocks instead of one large sparse mask.

A block is a run of nodes in depth-first order. The ancestors of its nodes are in two places only: in the block itself,
and on the path from the root to the block's first node. So a block of b nodes at depth d attends to d + b keys,
however large the tree, and memory grows linearly with the number of nodes, not quadratically. Of the path, a block
holds only what is below its trunk: the path that it shares with the blocks around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.scoring.layout import TreeLayout
from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Trunk:
    """The path from the root that the nodes `first .. stop - 1` of a piece share; keys are numbered as in `Blocks`,
    and the depth of each is its index."""

    first: int
    stop: int
    keys: IntArray  # (length,)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of one shape. Keys are numbered over the carried nodes (ancestors of the piece's first node, from the
    root) and then over the piece's own; the last block may be padded, and so may paths."""

    index: IntArray  # (n_blocks,), index among the piece's blocks
    keys: IntArray  # (n_blocks, n_path + size)
    seen: BoolArray  # (n_blocks, size, n_path + size)
    query_depths: IntArray  # (n_blocks, size)
    key_depths: IntArray  # (n_blocks, n_path + size)


def last_at_each_depth(depths: IntArray, carried: int) -> IntArray:
    """The path to the node that follows a piece: at each depth, the last of the carried nodes and of `depths`."""
    path = np.arange(max(carried, int(depths.max(initial=0)) + 1), dtype=np.int32)
    path[depths] = carried + np.arange(
        len(depths), dtype=np.int32
    )  # if several have the same depth, the last one is kept
    return path


def blocks_of(depths: IntArray, carried: int, layout: TreeLayout) -> tuple[list[Trunk], list[Blocks]]:
    """The trunks of a piece with nodes at `depths`, whose first node has depth `carried`, and its blocks, grouped by
    the length of their paths below the trunk."""
    size = layout.size
    n_blocks = -(-len(depths) // size)
    padded = np.zeros(n_blocks * size, np.int32)
    padded[: len(depths)] = depths
    rows = padded.reshape(n_blocks, size)
    paths = list(_paths(depths, carried, size))
    trunks, begins = [], np.zeros(n_blocks, np.int32)
    for shared in layout.shared:
        trunks.append(Trunk(shared.first, shared.stop, paths[shared.first // size][: shared.length]))
        begins[shared.first // size : -(-shared.stop // size)] = shared.length
    room = layout.rooms(rows[:, 0] - begins)
    groups = [np.flatnonzero(room == n_path).astype(np.int32) for n_path in np.unique(room)]
    return trunks, [_group(rows, paths, begins, index, int(room[index[0]]), carried, len(depths)) for index in groups]


def _group(
    rows: IntArray,
    paths: Sequence[IntArray],
    begins: IntArray,
    index: IntArray,
    n_path: int,
    carried: int,
    n_nodes: int,
) -> Blocks:
    """The blocks `index`, whose paths, from the depths `begins` on, fit into `n_path` keys."""
    size = rows.shape[1]
    keys = np.zeros((len(index), n_path + size), np.int32)
    for row, block in zip(keys, index, strict=True):
        path = paths[block][begins[block] :]
        row[: len(path)] = path
    keys[:, n_path:] = carried + index[:, None] * size + np.arange(size, dtype=np.int32)
    on_path = (begins[index, None] + np.arange(n_path)).astype(np.int32)
    seen = np.empty((len(index), size, n_path + size), np.bool_)
    _sees_path(rows[index], on_path, seen[:, :, :n_path])
    _sees_block(rows[index], seen[:, :, n_path:])
    return Blocks(
        index,
        np.minimum(keys, carried + n_nodes - 1),
        seen,
        rows[index],
        np.concatenate([on_path, rows[index]], axis=1),
    )


def _paths(depths: IntArray, carried: int, size: int) -> Iterator[IntArray]:
    """For each block, the keys from the root to its first node, excluding that node."""
    path = np.arange(max(carried, int(depths.max()) + 1), dtype=np.int32)
    keys = carried + np.arange(len(depths), dtype=np.int32)
    for first in range(0, len(depths), size):
        block = slice(first, first + size)
        yield path[: depths[first]].copy()
        path[depths[block]] = keys[block]


def _sees_path(rows: IntArray, on_path: IntArray, sees: BoolArray) -> None:
    """A node sees the path, at depths `on_path`, down to the shallowest node between the block's first and itself."""
    shallowest: IntArray = np.minimum.accumulate(rows, axis=1)
    np.less(on_path[:, None, :], shallowest[:, :, None], out=sees)


def _sees_block(rows: IntArray, sees: BoolArray) -> None:
    """A node sees an earlier one of its block, and itself, until a node follows that is not deeper than that one."""
    number = np.arange(rows.shape[1])
    ahead = (number[:, None] - number).astype(np.uint16)  # of a later node, it is larger than any size of a block
    np.less(ahead, (_until(rows) - number).astype(np.uint16)[:, None, :], out=sees)


def _until(rows: IntArray) -> IntArray:
    """The number of the first later node of the same block that is not deeper, which begins another branch; the size
    of the block where there is none."""
    size, depths = rows.shape[1], rows.ravel()
    begins = np.ones(rows.shape, np.bool_)  # whether a node begins a branch: any other one is its predecessor's child
    begins[:, 1:] = rows[:, 1:] <= rows[:, :-1]
    branches, branch_of = np.flatnonzero(begins), np.cumsum(begins) - 1
    until = np.full(len(depths), size, np.int32)
    left, ahead = np.arange(len(depths)), 1
    while len(left):
        branch = branch_of[left] + ahead
        left = left[branch < len(branches)]
        first = branches[branch[: len(left)]]
        is_within = first // size == left // size
        left, first = left[is_within], first[is_within]
        ends = depths[first] <= depths[left]
        until[left[ends]] = first[ends] % size
        left, ahead = left[~ends], ahead + 1
    return until.reshape(rows.shape)
