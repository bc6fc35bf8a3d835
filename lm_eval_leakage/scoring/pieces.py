"""Pieces of a prefix tree: the nodes of one forward pass, how they are divided for attention, and what one piece
passes on to the next: the keys and values of the ancestors of its first node, so that nothing is computed twice and
memory is bounded by the size of a piece.

A piece is divided into blocks, runs of nodes in depth-first order. The ancestors of a block's nodes are in two places
only: in the block itself, and on the path from the root to its first node. So a block of b nodes at depth d attends to
d + b keys, however large the tree, and its mask is a small dense one. Where consecutive blocks share a path (a
few-shot prompt, the beginning of a long text), attention to this trunk is one dense product for all of them, and only
the rest of each block's path is gathered for that block alone; an estimate of the cost chooses trunks and sizes.

Results over trunk and block are joined by the logarithms of their softmaxes' denominators: a softmax over the union of
two sets of keys is the mean of the softmaxes over each, weighted by their denominators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray, PrefixTree

SCORES_AT_ONCE = 2**24  # values of explicit attention: 64 MiB in float32
JOINED_AT_ONCE = 2**17  # values: 512 KiB in float32, which fits into a CPU's cache


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    with_sums: bool = True,
) -> tuple[Tensor, Tensor]:
    """Results `(n, n_heads, n_queries, value size)` and the logarithms of the denominators `(n, n_heads, n_queries)`,
    in float32; without `with_sums`, the latter are undefined.

    query: `(n, n_heads, n_queries, head size)`; key, value: the same with `n_keys`
    bias: added to the scores; broadcast to `(n, n_heads, n_queries, n_keys)`
    softcap: bounds the scores by tanh, as in Gemma 2; no fused kernel does
    """
    if softcap is None and not with_sums:
        out = scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling)
        return out, query.new_empty(query.shape[:3], dtype=torch.float32)
    if softcap is None and query.device.type == "cpu" and value.shape[3] == query.shape[3]:
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, attn_mask=bias, scale=scaling
        )
        return out, sums
    if softcap is None and query.device.type == "cuda":
        whole = None if bias is None else bias.expand(*query.shape[:3], key.shape[2])
        out, sums, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, whole, True, scale=scaling
        )
        return out, sums[:, :, : query.shape[2]]  # the kernel pads them
    return explicit_attention(query, key, value, bias, scaling, softcap)


def explicit_attention(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float | None, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """The same in plain operations; softmax in float32, for as many queries at once as memory is bounded for."""
    rows = max(1, SCORES_AT_ONCE // max(1, query.shape[0] * query.shape[1] * key.shape[2]))
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    outs, sums = [], []
    for first in range(0, query.shape[2], rows):
        scores = (query[:, :, first : first + rows] @ key.transpose(2, 3)) * scale
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores = scores.float()
        if bias is not None:
            scores += bias[:, :, first : first + rows]
        sums.append(scores.logsumexp(dim=3))
        outs.append(scores.sub_(sums[-1][..., None]).exp_().to(value.dtype) @ value)
    return torch.cat(outs, dim=2), torch.cat(sums, dim=2)


def bias_where(seen: Tensor, unseen: float, like: Tensor) -> Tensor:
    """0 where `seen` and `unseen` elsewhere, in rows aligned as the kernels of GPUs need them."""
    n_keys = seen.shape[-1]
    bias = like.new_zeros((*seen.shape[:-1], -(-n_keys // KEYS_MULTIPLE) * KEYS_MULTIPLE))[..., :n_keys]
    return bias.masked_fill_(~seen, unseen)


def join_(out: Tensor, sums: Tensor, other: Tensor, other_sums: Tensor) -> None:
    """Replaces `out` and `sums` by the results over both sets of keys; `sums` has one dimension less."""
    share = torch.sigmoid(other_sums - sums)[..., None]
    step = max(1, JOINED_AT_ONCE // max(1, out[0].numel())) if out.device.type == "cpu" else len(out)
    for first in range(0, len(out), step):
        some = slice(first, first + step)
        joined = out[some].float()  # in bfloat16 it would add to the noise
        out[some] = joined.lerp_(other[some].float(), share[some])
    torch.logaddexp(sums, other_sums, out=sums)


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
        saved, trunks = _best_trunks(shallowest[begin:end], size, costs)
        total -= saved
        for own, stop, length in trunks:
            found.append(Shared((begin + own) * size, min((begin + stop) * size, len(depths)), length))
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


def blocks_of(depths: IntArray, carried: int, layout: TreeLayout) -> tuple[list[Trunk], list[Blocks]]:
    """The trunks of a piece with nodes at `depths`, whose first node has depth `carried`, and its blocks, grouped by
    the length of their paths below the trunk."""
    size = layout.size
    n_blocks = -(-len(depths) // size)
    padded = np.zeros(n_blocks * size, np.int32)
    padded[: len(depths)] = depths
    rows = padded.reshape(n_blocks, size)
    paths = list(paths_to_blocks(depths, carried, size))
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


def paths_to_blocks(depths: IntArray, carried: int, size: int) -> Iterator[IntArray]:
    """For each block, the keys from the root to its first node, excluding that node; and in the end the last key at
    each depth, which holds the path to the node that follows."""
    path = np.arange(max(carried, int(depths.max()) + 1), dtype=np.int32)
    keys = carried + np.arange(len(depths), dtype=np.int32)
    for first in range(0, len(depths), size):
        block = slice(first, first + size)
        yield path[: depths[first]].copy()
        path[depths[block]] = keys[block]  # if several have the same depth, the last one is kept
    yield path


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


class UnsuitedModelError(Exception):
    """A scorer cannot be used with this model; the message says why."""


# Keys and values of a path from the root, per attention layer in call order; each `(n_path, n_heads, head size)`.
Carried = list[tuple[Tensor, Tensor]]


@dataclass(eq=False)
class Piece:
    """Nodes `first .. stop - 1` of a tree during one forward pass."""

    tree: PrefixTree
    first: int
    stop: int
    carried: Carried
    passed_on: Carried = field(default_factory=list)
    calls: int = 0  # of attention so far, which is the current layer's index
    device_type: str = "cpu"  # for which the layout is chosen

    def __post_init__(self) -> None:
        self.depths: IntArray = self.tree.node_depths[self.first : self.stop]
        self.n_carried = int(self.depths[0])
        *_, path = paths_to_blocks(self.depths, self.n_carried, len(self.depths))
        has_next = self.stop < len(self.tree.node_depths)
        self._path_on = path[: self.tree.node_depths[self.stop]] if has_next else path[:0]
        layout = cheapest_layout(self.depths, self.device_type)
        self.block = layout.size
        self.trunks, self.blocks = blocks_of(self.depths, self.n_carried, layout)
        self._on_device: dict[tuple[int, torch.device], Tensor] = {}

    def on_device(self, indices: IntArray, device: torch.device) -> Tensor:
        """Indices of this piece, kept on the device of a layer (a model may be split over several)."""
        key = id(indices), device
        if key not in self._on_device:
            self._on_device[key] = index_tensor(indices, device)
        return self._on_device[key]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """This layer's keys and values after the carried ones, `(n_carried + n_nodes, n_heads, head size)`; stores
        those that the next piece needs."""
        key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)
        if self.n_carried:
            if self.calls >= len(self.carried):
                raise UnsuitedModelError("its layers do not attend the same number of times in each pass")
            earlier_key, earlier_value = self.carried[self.calls]
            key = torch.cat([earlier_key.to(key.device), key])
            value = torch.cat([earlier_value.to(value.device), value])
        key, value = key.contiguous(), value.contiguous()  # so that gathering copies whole rows
        if len(self._path_on):
            path_on = self.on_device(self._path_on, key.device)
            self.passed_on.append((key.index_select(0, path_on), value.index_select(0, path_on)))
        self.calls += 1
        return key, value


def index_tensor(indices: npt.NDArray[np.integer[Any]], device: torch.device) -> Tensor:
    """Indices as an int64 tensor, which torch needs for indexing."""
    return torch.from_numpy(indices.astype(np.int64)).to(device)
