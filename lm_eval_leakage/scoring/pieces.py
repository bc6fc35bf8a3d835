"""Divides a prefix tree into pieces, each the nodes of one forward pass, and a piece into blocks for attention.

A piece passes on to the next the keys and values of the ancestors of that piece's first node. So nothing is computed
twice, and memory is bounded by the size of a piece.

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
# With other numbers of keys, the fused kernel of CPUs takes twice as long in bfloat16, and those of GPUs refuse masks.
KEYS_MULTIPLE = 16
BLOCK_SIZES = (64, 128, 256, 512)
# Keys and values of a path from the root, per attention layer in call order; each `(n_path, n_heads, head size)`.
Carried = list[tuple[Tensor, Tensor]]


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
    """Return results `(n, n_heads, n_queries, value size)` and the logarithms of the softmaxes' denominators `(n,
    n_heads, n_queries)`, in float32; without `with_sums`, the latter are undefined.

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
    """Return the same as `attend`, by plain operations. The softmax is computed in float32, for so many queries at
    once that SCORES_AT_ONCE bounds the memory."""
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
    """Return a bias, 0 where `seen` and `unseen` elsewhere, in rows aligned as the kernels of GPUs need them."""
    n_keys = seen.shape[-1]
    bias = like.new_zeros((*seen.shape[:-1], -(-n_keys // KEYS_MULTIPLE) * KEYS_MULTIPLE))[..., :n_keys]
    return bias.masked_fill_(~seen, unseen)


def join_(out: Tensor, sums: Tensor, other: Tensor, other_sums: Tensor) -> None:
    """Replace `out` and `sums` by the results over both sets of keys; `sums` has one dimension less."""
    share = torch.sigmoid(other_sums - sums)[..., None]
    step = max(1, JOINED_AT_ONCE // max(1, out[0].numel())) if out.device.type == "cpu" else len(out)
    for first in range(0, len(out), step):
        some = slice(first, first + step)
        joined = out[some].float()  # in bfloat16 it would add to the noise
        out[some] = joined.lerp_(other[some].float(), share[some])
    torch.logaddexp(sums, other_sums, out=sums)


@dataclass(frozen=True)
class Costs:
    """Holds the costs of the steps of attention, relative to one query's score of one key without a mask."""

    masked: float  # a score with a mask
    gathered: float  # copying a key and its value
    joined: float  # joining a query's two results
    call: float  # one more attention call


COSTS = {
    "cpu": Costs(masked=1.15, gathered=8, joined=55, call=2**14),  # measured on SmolLM2-135M
    "cuda": Costs(masked=1.2, gathered=44, joined=180, call=2**20),  # on paper: 32 heads on an H100
}


@dataclass(frozen=True)
class SharedPath:
    """A path that the nodes `first .. stop - 1` of a piece share: their ancestors at depths below `length`."""

    first: int
    stop: int
    length: int


@dataclass(frozen=True)
class Division:
    """The division of a piece into blocks, and the paths for which they get a trunk."""

    size: int  # of each block, in nodes
    shared: tuple[SharedPath, ...] = ()
    cost: float = 0
    costs: Costs = COSTS["cpu"]

    def padded_lengths(self, lengths: IntArray) -> IntArray:
        """Return the padded lengths of the blocks' paths: few different ones, so that few calls are needed."""
        wanted = -(-lengths // KEYS_MULTIPLE) * KEYS_MULTIPLE
        per_key = self.size * self.costs.masked + self.costs.gathered
        padded, longest = np.empty_like(wanted), 0
        for length in np.unique(wanted)[::-1]:
            alike = wanted == length
            if not longest or np.count_nonzero(alike) * (longest - length) * per_key > self.costs.call:
                longest = int(length)
            padded[alike] = longest
        return padded


def cheapest_division(depths: IntArray, device_type: str = "cpu") -> Division:
    """Return the division of least estimated cost for nodes in depth-first order at `depths`."""
    costs = COSTS.get(device_type, COSTS["cpu"])
    sizes = sorted({min(size, len(depths)) for size in BLOCK_SIZES})
    return min((division_of(depths, size, costs) for size in sizes), key=lambda division: division.cost)


def division_of(depths: IntArray, size: int, costs: Costs) -> Division:
    """Return the cheapest division into blocks of `size` nodes.

    Nodes share their ancestors down to the depth of the shallowest of them. So no trunk spans a block in which a node
    has so few ancestors that joining costs more. Between such blocks, the best trunks are chosen.
    """
    starts = np.arange(0, len(depths), size)
    shallowest = np.minimum.reduceat(depths, starts)
    per_key = size * costs.masked + costs.gathered
    alone = (depths[starts] + float(size)) * per_key  # without trunks
    total, paths = 0.0, []
    is_worth_it = shallowest * (per_key - size) > size * costs.joined
    edges = np.flatnonzero(np.diff(is_worth_it, prepend=False, append=False))
    for begin, end in edges.reshape(-1, 2).tolist():
        saved, trunks = _best_trunks(shallowest[begin:end], size, costs)
        total -= saved
        for first, stop, length in trunks:
            paths.append(SharedPath((begin + first) * size, min((begin + stop) * size, len(depths)), length))
    return Division(size, tuple(paths), total + float(alone.sum()), costs)


def _best_trunks(shallowest: IntArray, size: int, costs: Costs) -> tuple[float, list[tuple[int, int, int]]]:
    """Return the cost that the best trunks for consecutive blocks save, and these trunks.

    Each trunk is given as its first block, the block after its last, and the length of its path.
    """
    n = len(shallowest)
    saved, length = _saved_by_runs(shallowest, size, costs)
    best, begins = np.zeros(n + 1), np.zeros(n, int)
    for last in range(n):
        together = best[: last + 1] + saved[last, : last + 1]
        begin = int(together.argmax())
        best[last + 1], begins[last] = together[begin], begin
    trunks, stop = [], n
    while stop:
        begin = int(begins[stop - 1])
        if saved[stop - 1, begin]:
            trunks.append((begin, stop, int(length[stop - 1, begin])))
        stop = begin
    return float(best[-1]), trunks[::-1]


def _saved_by_runs(
    shallowest: IntArray, size: int, costs: Costs
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the cost that a trunk for all blocks from `begin` to `last` saves, at `[last, begin]`, and its length.

    The cost is 0 where a trunk saves nothing.
    """
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
    """Holds blocks of one shape. Keys are numbered over the carried nodes (ancestors of the piece's first node, from
    the root) and then over the nodes of the piece. The last block may be padded, and so may paths."""

    index: IntArray  # (n_blocks,), index among the piece's blocks
    keys: IntArray  # (n_blocks, n_path + size)
    seen: BoolArray  # (n_blocks, size, n_path + size)
    query_depths: IntArray  # (n_blocks, size)
    key_depths: IntArray  # (n_blocks, n_path + size)


def trunks_and_blocks(depths: IntArray, carried: int, division: Division) -> tuple[list[Trunk], list[Blocks]]:
    """Return the trunks of a piece, and its blocks, grouped by the length of their paths below the trunk.

    depths: the depths of its nodes
    carried: the depth of its first node
    """
    size = division.size
    n_blocks = -(-len(depths) // size)
    padded = np.zeros(n_blocks * size, np.int32)
    padded[: len(depths)] = depths
    rows = padded.reshape(n_blocks, size)
    paths = list(paths_to_blocks(depths, carried, size))
    trunks, begins = [], np.zeros(n_blocks, np.int32)
    for shared in division.shared:
        trunks.append(Trunk(shared.first, shared.stop, paths[shared.first // size][: shared.length]))
        begins[shared.first // size : -(-shared.stop // size)] = shared.length
    padded_lengths = division.padded_lengths(rows[:, 0] - begins)
    groups = []
    for n_path in np.unique(padded_lengths):
        index = np.flatnonzero(padded_lengths == n_path).astype(np.int32)
        groups.append(_group(rows, paths, begins, index, int(n_path), carried, len(depths)))
    return trunks, groups


def _group(
    rows: IntArray,
    paths: Sequence[IntArray],
    begins: IntArray,
    index: IntArray,
    n_path: int,
    carried: int,
    n_nodes: int,
) -> Blocks:
    """Return the blocks `index`, whose paths, from the depths `begins` on, fit into `n_path` keys."""
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
    """Yield, for each block, the keys from the root to its first node, excluding that node.

    In the end, yield the last key at each depth, which holds the path to the node that follows.
    """
    path = np.arange(max(carried, int(depths.max()) + 1), dtype=np.int32)
    keys = carried + np.arange(len(depths), dtype=np.int32)
    for first in range(0, len(depths), size):
        block = slice(first, first + size)
        yield path[: depths[first]].copy()
        path[depths[block]] = keys[block]  # if several have the same depth, the last one is kept
    yield path


def _sees_path(rows: IntArray, on_path: IntArray, sees: BoolArray) -> None:
    """Write into `sees` that a node sees the path down to the shallowest node from the block's first to itself.

    on_path: the depths of the keys on the path
    """
    shallowest: IntArray = np.minimum.accumulate(rows, axis=1)
    np.less(on_path[:, None, :], shallowest[:, :, None], out=sees)


def _sees_block(rows: IntArray, sees: BoolArray) -> None:
    """Write into `sees` that a node sees itself and an earlier node of its block until one follows that is not deeper
    than that earlier node."""
    number = np.arange(rows.shape[1])
    ahead = (number[:, None] - number).astype(np.uint16)  # of a later node, it is larger than any size of a block
    np.less(ahead, (_until(rows) - number).astype(np.uint16)[:, None, :], out=sees)


def _until(rows: IntArray) -> IntArray:
    """Return, for each node, the number of the first later node of the same block that is not deeper.

    That node begins another branch. The number is the size of the block where there is none.
    """
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
    """Raised if a scorer cannot be used with a model; the message says why."""


@dataclass(eq=False)
class Piece:
    """Holds the nodes `first .. stop - 1` of a tree during one forward pass, and the states that they pass on."""

    tree: PrefixTree
    first: int
    stop: int
    carried: Carried
    passed_on: Carried = field(default_factory=list)
    calls: int = 0  # of attention so far, which is the current layer's index
    device_type: str = "cpu"  # the division is chosen for it

    def __post_init__(self) -> None:
        self.depths: IntArray = self.tree.node_depths[self.first : self.stop]
        self.n_carried = int(self.depths[0])
        *_, path = paths_to_blocks(self.depths, self.n_carried, len(self.depths))
        has_next = self.stop < len(self.tree.node_depths)
        self._path_on = path[: self.tree.node_depths[self.stop]] if has_next else path[:0]
        division = cheapest_division(self.depths, self.device_type)
        self.block = division.size
        self.trunks, self.blocks = trunks_and_blocks(self.depths, self.n_carried, division)
        self._on_device: dict[tuple[int, torch.device], Tensor] = {}

    def on_device(self, indices: IntArray, device: torch.device) -> Tensor:
        """Return indices of this piece on the device of a layer; a model may be split over several devices."""
        key = id(indices), device
        if key not in self._on_device:
            self._on_device[key] = index_tensor(indices, device)
        return self._on_device[key]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return this layer's keys and values after the carried ones, `(n_carried + n_nodes, n_heads, head size)`.

        Those that the next piece needs are stored.
        """
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
    """Return indices as an int64 tensor, which torch needs for indexing."""
    return torch.from_numpy(indices.astype(np.int64)).to(device)
