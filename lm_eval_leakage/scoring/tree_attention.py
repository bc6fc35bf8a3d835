"""Tree attention: each node of a prefix tree attends to its ancestors and itself, in plain torch.

A long tree is computed piece by piece: each piece takes the keys and values of its first node's ancestors from
the piece before it, so that nothing is computed twice and memory is bounded by the size of a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from lm_eval_leakage.scoring.blocks import Blocks, blocks_of, last_at_each_depth
from lm_eval_leakage.scoring.prefix_tree import IntArray, PrefixTree

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
SHORTEST_BLOCK = 64  # longer blocks compute more masked scores, shorter ones gather the path more often
LONGEST_BLOCK = 512


class UnsuitedModelError(Exception):
    """A scorer cannot be used with this model; the message says why."""


@dataclass(frozen=True, eq=False)
class Carried:
    """Keys and values of a path from the root, per attention layer in call order; each
    `(1, n_heads, n_path, head size)`."""

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Piece:
    """Nodes `first .. stop - 1` of a tree during one forward pass."""

    tree: PrefixTree
    first: int
    stop: int
    carried: Carried
    passed_on: Carried = field(default_factory=Carried)
    calls: int = 0  # of attention so far, which is the current layer's index

    def __post_init__(self) -> None:
        self.depths: IntArray = self.tree.node_depths[self.first : self.stop]
        self.n_carried = int(self.depths[0])
        path = last_at_each_depth(self.depths, self.n_carried)
        has_next = self.stop < len(self.tree.node_depths)
        self._path_on = path[: self.tree.node_depths[self.stop]] if has_next else path[:0]
        usual = 1 << (int(np.median(self.depths)) | 1).bit_length() - 1  # about the length of the paths
        self.block = min(max(usual, SHORTEST_BLOCK), LONGEST_BLOCK, len(self.depths))
        self.blocks = blocks_of(self.depths, self.n_carried, self.block)
        self._on_device: dict[torch.device, _Indices] = {}

    @property
    def tokens(self) -> IntArray:
        return self.tree.node_tokens[self.first : self.stop]

    def indices(self, device: torch.device) -> _Indices:
        """The indices for gathering, on the device of a layer (a model may be split over several)."""
        if device not in self._on_device:
            self._on_device[device] = _Indices(
                keys=[index_tensor(blocks.keys, device) for blocks in self.blocks],
                places=[index_tensor(blocks.index, device) for blocks in self.blocks],
                path_on=index_tensor(self._path_on, device),
            )
        return self._on_device[device]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Prepends the carried keys and values to this layer's, and stores those that the next piece needs."""
        if self.n_carried:
            if self.calls >= len(self.carried.keys):
                raise UnsuitedModelError("its layers do not attend the same number of times in each pass")
            key = torch.cat([self.carried.keys[self.calls].to(key.device), key], dim=2)
            value = torch.cat([self.carried.values[self.calls].to(value.device), value], dim=2)
        path_on = self.indices(key.device).path_on
        if len(path_on):
            self.passed_on.keys.append(key.index_select(2, path_on))
            self.passed_on.values.append(value.index_select(2, path_on))
        self.calls += 1
        return key, value


@dataclass(frozen=True, eq=False)
class _Indices:
    keys: list[Tensor]
    places: list[Tensor]
    path_on: Tensor


class TreeMask:
    """The model's own mask over positions (causal, sliding, chunked), restricted to ancestors."""

    def __init__(self, piece: Piece, mask_function: MaskFunction, device: torch.device) -> None:
        self.piece = piece
        self._seen = [_seen(blocks, mask_function, device) for blocks in piece.blocks]
        self._biases: dict[tuple[int, int, torch.dtype, torch.device], Tensor] = {}

    def bias(self, group: int, n_repeats: int, like: Tensor) -> Tensor:
        """0 where a node sees a key and -inf elsewhere, `(n_blocks, 1, n_repeats * size, n_keys)`."""
        key = (group, n_repeats, like.dtype, like.device)
        if key not in self._biases:
            seen = self._seen[group].to(like.device).repeat(1, n_repeats, 1)[:, None]
            self._biases[key] = torch.zeros(seen.shape, dtype=like.dtype, device=like.device).masked_fill_(
                ~seen, -torch.inf
            )
        return self._biases[key]


def tree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: TreeMask,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of a piece's nodes to their ancestors.

    query: `(1, n_heads, n_nodes, head size)`; key, value: `(1, n_key_heads, n_nodes, head size)`, position
        embeddings applied
    softcap, sinks: as in Gemma 2 (scores bounded by tanh) and gpt-oss (a learned score per head in the softmax)
    returns: `(1, n_nodes, n_heads, head size of value)`
    """
    piece = mask.piece
    if query.shape[0] != 1 or query.shape[2] != len(piece.depths) or key.shape[2] != len(piece.depths):
        raise UnsuitedModelError(f"it attends with queries of shape {tuple(query.shape)}, not of one row of tokens")
    if query.shape[1] % key.shape[1]:
        raise UnsuitedModelError(f"{query.shape[1]} query heads do not share {key.shape[1]} key heads evenly")
    key, value = piece.extend(key, value)
    n_nodes, n_key_heads = query.shape[2], key.shape[1]
    n_repeats, n_blocks, size = query.shape[1] // n_key_heads, -(-n_nodes // piece.block), piece.block
    padded = pad(query[0], (0, 0, 0, n_blocks * size - n_nodes))
    # (n_blocks, n_key_heads, n_repeats * size, head size): heads that share keys become rows of one matrix product
    rows = padded.reshape(n_key_heads, n_repeats, n_blocks, size, -1).permute(2, 0, 1, 3, 4).flatten(2, 3)
    out = rows.new_empty((*rows.shape[:3], value.shape[3]))
    indices = piece.indices(query.device)
    for group, (places, keys) in enumerate(zip(indices.places, indices.keys, strict=True)):
        asked = rows if len(places) == n_blocks else rows[places]
        near = _gathered(key, keys), _gathered(value, keys)
        bias = mask.bias(group, n_repeats, query)
        if softcap is None and sinks is None:
            out[places] = scaled_dot_product_attention(asked, *near, attn_mask=bias, scale=scaling)
        else:
            out[places] = _explicit_attention(asked, *near, bias, scaling, softcap, sinks)
    by_node = out.reshape(n_blocks, n_key_heads, n_repeats, size, -1).permute(0, 3, 1, 2, 4)
    return by_node.reshape(1, n_blocks * size, n_key_heads * n_repeats, -1)[:, :n_nodes]


def _explicit_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention with soft cap and sinks, which the fused kernels do not support; softmax in float32."""
    scores = (query @ key.transpose(2, 3)) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.float() + bias
    if sinks is not None:
        queries_per_head = scores.shape[1] * scores.shape[2] // len(sinks)
        per_row = sinks.float().view(key.shape[1], -1).repeat_interleave(queries_per_head, dim=1)
        scores = torch.cat([scores, per_row[None, :, :, None].expand(len(scores), -1, -1, 1)], dim=3)
    weights = torch.softmax(scores, dim=3)[..., : key.shape[2]].to(value.dtype)
    return torch.matmul(weights, value)


def _gathered(states: Tensor, keys: Tensor) -> Tensor:
    """`(1, n_heads, n, size)` and `(n_blocks, n_keys)` to `(n_blocks, n_heads, n_keys, size)`."""
    picked = states[0].transpose(0, 1).index_select(0, keys.flatten())
    return picked.reshape(*keys.shape, *picked.shape[1:]).transpose(1, 2)


def _seen(blocks: Blocks, mask_function: MaskFunction, device: torch.device) -> Tensor:
    queries, keys = (index_tensor(depths, device) for depths in (blocks.query_depths, blocks.key_depths))
    one = torch.zeros((), dtype=torch.long, device=device)  # one row per batch, the same mask for all heads
    allowed = torch.as_tensor(mask_function(one, one, queries[:, :, None], keys[:, None, :]))
    return torch.from_numpy(blocks.seen).to(device) & allowed.expand(blocks.seen.shape)


def index_tensor(indices: npt.NDArray[np.integer[Any]], device: torch.device) -> Tensor:
    """Indices as an int64 tensor, which torch needs for indexing."""
    return torch.from_numpy(indices.astype(np.int64)).to(device)
