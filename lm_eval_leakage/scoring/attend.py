"""Attention with the logarithm of its softmax's denominator, by which the results over two sets of keys are joined.

A softmax over the union of two sets of keys is the mean of the softmaxes over each, weighted by their denominators. So
keys that many queries share can be read once, without being copied to each query's own.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from lm_eval_leakage.scoring.layout import KEYS_MULTIPLE

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
    same_size = pad(value, (0, query.shape[3] - value.shape[3])) if value.shape[3] < query.shape[3] else value
    if softcap is None and query.device.type == "cpu" and same_size.shape[3] == query.shape[3]:
        out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, same_size, attn_mask=bias, scale=scaling
        )
        return out[..., : value.shape[3]], sums
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
