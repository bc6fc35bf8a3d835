"""Tree attention: each node of a prefix tree attends to its ancestors and itself, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from lm_eval_leakage.scoring.attend import attend, join_
from lm_eval_leakage.scoring.pieces import UnsuitedModelError
from lm_eval_leakage.scoring.tree_mask import TreeMask


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
    n_nodes, n_key_heads = query.shape[2], key.shape[1]
    asked = query[0].reshape(n_key_heads, -1, n_nodes, query.shape[3])  # heads that share keys side by side
    key, value = piece.extend(key, value)
    kernel = partial(attend, scaling=scaling, softcap=softcap, with_sums=bool(piece.trunks) or sinks is not None)
    out, sums = _within_blocks(asked, key, value, mask, kernel)
    for number, trunk in enumerate(piece.trunks):
        nodes = slice(trunk.first, trunk.stop)
        if mask.of_trunks[number].stop:
            join_(out[nodes], sums[nodes], *_to_trunk(asked[:, :, nodes], key, value, mask, number, kernel))
    if sinks is not None:
        out *= torch.sigmoid(sums - sinks.float().view(sums.shape[1:]))[..., None].to(out.dtype)
    return out[:n_nodes].flatten(1, 2)[None]


def _within_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, kernel: Callable[..., tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Attention to the part of each block's keys that is not in a trunk: results `(n_blocks * size, n_key_heads,
    n_repeats, value size)` and, without the last dimension, the logarithms of their softmaxes' denominators."""
    n_heads, n_repeats, n_nodes, width = query.shape
    size = mask.piece.block
    n_blocks = -(-n_nodes // size)
    padded = pad(query, (0, 0, 0, n_blocks * size - n_nodes)) if n_blocks * size > n_nodes else query
    by_block = padded.reshape(n_heads, n_repeats, n_blocks, size, width).permute(2, 0, 1, 3, 4)
    rows = by_block.reshape(n_blocks, n_heads, n_repeats * size, width)  # so that no key is copied for several heads
    out = query.new_empty((n_blocks, size, n_heads, n_repeats, value.shape[2]))
    sums = query.new_empty(out.shape[:-1], dtype=torch.float32)
    indices = mask.piece.indices(query.device)
    for group, (places, keys) in enumerate(zip(indices.places, indices.keys, strict=True)):
        chosen = slice(None) if len(places) == n_blocks else places
        near = (_gathered(states, keys[:, mask.of_blocks[group][0] :]) for states in (key, value))
        found, found_sums = kernel(rows[chosen], *near, mask.bias(group, n_repeats, query))
        by_head = len(places), n_heads, n_repeats, size
        out[chosen] = found.reshape(*by_head, -1).permute(0, 3, 1, 2, 4)
        sums[chosen] = found_sums.reshape(by_head).permute(0, 3, 1, 2)
    return out.flatten(0, 1), sums.flatten(0, 1)


def _to_trunk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: TreeMask,
    number: int,
    kernel: Callable[..., tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Attention to a trunk by the nodes that share it, without a copy for each: as `_within_blocks`."""
    trunk, seen = mask.piece.indices(query.device).trunks[number], mask.of_trunks[number]
    # (n_repeats, n_key_heads, n_keys, head size)
    near = (
        states[trunk][seen.begin : seen.stop].transpose(0, 1).contiguous().expand(query.shape[1], -1, -1, -1)
        for states in (key, value)
    )
    found, sums = kernel(query.transpose(0, 1), *near, mask.bias_of_trunk(number, query))
    return found.permute(2, 1, 0, 3), sums.permute(2, 1, 0)


def _gathered(states: Tensor, keys: Tensor) -> Tensor:
    """`(n, n_heads, size)` and `(n_blocks, n_keys)` to `(n_blocks, n_heads, n_keys, size)`."""
    return states.index_select(0, keys.flatten()).reshape(*keys.shape, *states.shape[1:]).transpose(1, 2)
