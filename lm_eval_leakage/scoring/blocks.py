"""Attention masks of a prefix tree as small dense blocks instead of one large sparse mask.

A block is a run of nodes in depth-first order. The ancestors of its nodes are in two places only: in the block itself,
and on the path from the root to the block's first node. So a block of b nodes at depth d attends to d + b keys,
however large the tree, and memory grows linearly with the number of nodes, not quadratically.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lm_eval_leakage.scoring.prefix_tree import IntArray

PATH_LENGTHS = sorted({0, *(round(16 * 2 ** (step / 2)) // 16 * 16 for step in range(30))})


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of one shape. Keys are numbered over the carried nodes (ancestors of the piece's first node, from the
    root) and then over the piece's own; the last block may be padded, and so may paths."""

    index: IntArray  # (n_blocks,), index among the piece's blocks
    keys: IntArray  # (n_blocks, n_path + size)
    seen: npt.NDArray[np.bool_]  # (n_blocks, size, n_path + size)
    query_depths: IntArray  # (n_blocks, size)
    key_depths: IntArray  # (n_blocks, n_path + size)


def last_at_each_depth(depths: IntArray, carried: int) -> IntArray:
    """The path to the node that follows a piece: at each depth, the last of the carried nodes and of `depths`."""
    path = np.arange(max(carried, int(depths.max(initial=0)) + 1), dtype=np.int32)
    path[depths] = carried + np.arange(
        len(depths), dtype=np.int32
    )  # if several have the same depth, the last one is kept
    return path


def blocks_of(depths: IntArray, carried: int, size: int) -> list[Blocks]:
    """The blocks of a piece with nodes at `depths`, whose first node has depth `carried`, grouped by path length."""
    n_blocks = -(-len(depths) // size)
    padded = np.zeros(n_blocks * size, np.int32)
    padded[: len(depths)] = depths
    rows = padded.reshape(n_blocks, size)
    lengths = rows[:, 0]
    room = np.array(PATH_LENGTHS, np.int32)[np.searchsorted(PATH_LENGTHS, lengths)]
    paths = list(_paths(depths, carried, size))
    in_block = _sees_block(rows)
    found = []
    for n_path in np.unique(room):
        index = np.flatnonzero(room == n_path).astype(np.int32)
        keys = np.zeros((len(index), n_path + size), np.int32)
        for row, block in zip(keys, index, strict=True):
            row[: lengths[block]] = paths[block]
        keys[:, n_path:] = carried + index[:, None] * size + np.arange(size, dtype=np.int32)
        keys = np.minimum(keys, carried + len(depths) - 1)
        on_path = np.broadcast_to(np.arange(n_path, dtype=np.int32), (len(index), n_path))
        found.append(
            Blocks(
                index,
                keys,
                np.concatenate([_sees_path(rows[index], int(n_path)), in_block[index]], axis=2),
                rows[index],
                np.concatenate([on_path, rows[index]], axis=1),
            )
        )
    return found


def _paths(depths: IntArray, carried: int, size: int) -> Iterator[IntArray]:
    """For each block, the keys from the root to its first node, excluding that node."""
    path = np.arange(max(carried, int(depths.max()) + 1), dtype=np.int32)
    for first in range(0, len(depths), size):
        yield path[: depths[first]].copy()
        block = depths[first : first + size]
        path[block] = carried + np.arange(first, first + len(block), dtype=np.int32)


def _sees_path(rows: IntArray, n_path: int) -> npt.NDArray[np.bool_]:
    """A node sees the path down to the shallowest node between the block's first and itself."""
    shallowest: IntArray = np.minimum.accumulate(rows, axis=1)
    sees: npt.NDArray[np.bool_] = np.arange(n_path) < shallowest[:, :, None]
    return sees


def _sees_block(rows: IntArray) -> npt.NDArray[np.bool_]:
    """A node sees an earlier one of its block, and itself, until a node follows that is not deeper than that one."""
    size = rows.shape[1]
    number = np.arange(size)
    not_deeper = (rows[:, None, :] <= rows[:, :, None]) & (number > number[:, None])
    until = np.where(not_deeper.any(axis=2), not_deeper.argmax(axis=2), size)
    sees: npt.NDArray[np.bool_] = (number[:, None] < until[:, None, :]) & (number <= number[:, None])
    return sees
