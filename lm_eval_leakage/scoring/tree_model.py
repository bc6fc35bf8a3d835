"""Runs a causal language model of transformers on prefix trees.

The model's layers, head and masks are used. Its attention is replaced by ours, in plain torch, in which each node
attends to its ancestors and itself.

The model is run in two parts, layers and head, so that memory for logits is bounded. Its own mask over positions
(causal, sliding, chunked) is restricted to the ancestors of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from lm_eval_leakage.scoring.pieces import (
    KEYS_MULTIPLE,
    Blocks,
    Piece,
    Trunk,
    UnsuitedModelError,
    attend,
    bias_where,
    index_tensor,
    join_,
)
from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray

LOGITS_AT_ONCE = {"cuda": 2**27, "cpu": 2**24}  # values: 512 and 64 MiB in float32
MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
HIDDEN_BIAS = -3e4  # the weight is 0 even in float16, but not NaN for a query that sees nothing of its trunk
ATTENTION_NAME = "lm_eval_leakage_prefix_tree"
SOFTMAX_AT_ONCE = 2**22  # values: 16 MiB, which fits into a CPU's cache
_current_piece: ContextVar[Piece] = ContextVar("current_piece")
FloatArray = npt.NDArray[np.float32]


class TwoParts:
    """Divides a model into its layers (the backbone) and its head.

    model: it must have a separate backbone and head; it is changed only during a forward pass
    """

    def __init__(self, model: Any) -> None:
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        decoder = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model
        self.backbone: Any = getattr(decoder, "model", decoder) if decoder is self.model else decoder
        if self.backbone is self.model:
            raise UnsuitedModelError("its output head cannot be distinguished from its layers")

    def layers_of(self, call: Callable[[], object]) -> Any:
        """Return the backbone's output during `call`, a forward pass of the model, whose head gets only the first
        token."""
        outputs: list[Any] = []
        forward = self.backbone.forward

        def captured(*args: object, **kwargs: object) -> Any:
            outputs.append(forward(*args, **kwargs))
            return type(outputs[-1])(last_hidden_state=outputs[-1].last_hidden_state[:, :1])

        with self._backbone_as(captured):
            call()
        if len(outputs) != 1:
            raise UnsuitedModelError("its output head cannot be distinguished from its layers")
        return outputs[0]

    def logits(self, output: Any, hidden: Tensor) -> Tensor:
        """Return the model's own logits, including soft caps and scales, `(n, vocabulary)`.

        They come from its forward pass with a backbone that returns `hidden`, some rows of `output`.
        """
        answer = type(output)(last_hidden_state=hidden[None])
        is_called = False

        def forward(*_: object, **__: object) -> Any:
            nonlocal is_called
            is_called = True
            return answer

        with self._backbone_as(forward):
            tokens = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            logits: Tensor = self.model(input_ids=tokens, use_cache=False, return_dict=True).logits[0]
        if not is_called:
            raise UnsuitedModelError("its output head cannot be distinguished from its layers")
        return logits

    @contextmanager
    def _backbone_as(self, forward: Callable[..., Any]) -> Iterator[None]:
        """Replace the backbone's forward pass within a `with` block."""
        original = self.backbone.__dict__.get("forward")
        self.backbone.forward = forward
        try:
            yield
        finally:
            if original is None:
                del self.backbone.forward
            else:
                self.backbone.forward = original


def vocabulary_size(model: Any) -> int:
    """Return the number of tokens that the model has logits for."""
    return int(model.config.get_text_config().vocab_size)


def rows_at_once(model: Any, device: torch.device) -> int:
    """Return how many rows of logits may be in memory at once."""
    return max(1, LOGITS_AT_ONCE.get(device.type, LOGITS_AT_ONCE["cpu"]) // vocabulary_size(model))


class TreeMask:
    """Restricts the model's own mask over positions (causal, sliding, chunked) to ancestors."""

    def __init__(self, piece: Piece, mask_function: MaskFunction, device: torch.device) -> None:
        self.piece = piece
        self.of_blocks = [_seen_of_blocks(blocks, mask_function, device) for blocks in piece.blocks]
        self.of_trunks = [_seen_of_trunk(trunk, piece.depths, mask_function, device) for trunk in piece.trunks]
        self._biases: dict[tuple[object, ...], Tensor] = {}

    def bias(self, group: int, n_repeats: int, like: Tensor) -> Tensor:
        """Return a bias, 0 where a node sees a key and -inf elsewhere, `(n_blocks, 1, n_repeats * size, n_keys)`."""
        key = (group, n_repeats, like.dtype, like.device)
        if key not in self._biases:
            seen = self.of_blocks[group][1].to(like.device).repeat(1, n_repeats, 1)[:, None]
            self._biases[key] = bias_where(seen, -torch.inf, like)
        return self._biases[key]

    def bias_of_trunk(self, number: int, like: Tensor) -> Tensor | None:
        """Return the bias of a trunk, `(1, 1, n_nodes, n_keys)`; None where all nodes see all keys."""
        seen, key = self.of_trunks[number].seen, ("trunk", number, like.dtype, like.device)
        if seen is None:
            return None
        if key not in self._biases:
            self._biases[key] = bias_where(seen.to(like.device)[None, None], HIDDEN_BIAS, like)
        return self._biases[key]


@dataclass(frozen=True, eq=False)
class _SeenOfTrunk:
    """The keys of a trunk that its nodes see; no node sees a key before `begin` or from `stop` on.

    seen: which nodes see which of the keys `begin .. stop - 1`, `(n_nodes, n_keys)`; None if all see all
    """

    begin: int
    stop: int
    seen: Tensor | None


def _seen_of_blocks(blocks: Blocks, mask_function: MaskFunction, device: torch.device) -> tuple[int, Tensor]:
    """Return the number of the first key that a query sees, and which queries see which keys from it on."""
    queries, keys = (index_tensor(depths, device) for depths in (blocks.query_depths, blocks.key_depths))
    seen = torch.from_numpy(blocks.seen).to(device) & _allowed(mask_function, queries, keys).expand(blocks.seen.shape)
    begin, _ = _range_of(seen.flatten(0, 1).any(dim=0))
    return begin, seen[..., begin:]


def _seen_of_trunk(trunk: Trunk, depths: IntArray, mask_function: MaskFunction, device: torch.device) -> _SeenOfTrunk:
    """Return the keys of a trunk that its nodes see by the model's mask."""
    distinct, places = np.unique(depths[trunk.first : trunk.stop], return_inverse=True)
    queries, keys = index_tensor(distinct, device), torch.arange(len(trunk.keys), device=device)
    seen = _allowed(mask_function, queries[None], keys[None])[0].expand(len(queries), len(keys))
    begin, stop = _range_of(seen.any(dim=0))
    seen = seen[:, begin:stop]
    return _SeenOfTrunk(begin, stop, None if bool(seen.all()) else seen[index_tensor(places, device)])


def _allowed(mask_function: MaskFunction, queries: Tensor, keys: Tensor) -> Tensor:
    """Return which queries see which keys by the model's mask, `(n_blocks, n_queries, n_keys)`."""
    first = torch.zeros((), dtype=torch.long, device=queries.device)  # one row per batch, the same mask for all heads
    return torch.as_tensor(mask_function(first, first, queries[:, :, None], keys[:, None, :]))


def _range_of(columns: Tensor) -> tuple[int, int]:
    """Return the range from the first to the last column that is set, widened to aligned edges within the columns."""
    places = columns.nonzero()[:, 0].tolist()
    if not places:
        return 0, 0
    begin, stop = places[0] // KEYS_MULTIPLE, -(-(places[-1] + 1) // KEYS_MULTIPLE)
    return begin * KEYS_MULTIPLE, min(stop * KEYS_MULTIPLE, len(columns))


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
    """Return the attention of a piece's nodes to their ancestors, `(1, n_nodes, n_heads, head size of value)`.

    query: `(1, n_heads, n_nodes, head size)`
    key, value: `(1, n_key_heads, n_nodes, head size)`, with position embeddings applied
    softcap, sinks: as in Gemma 2 (scores bounded by tanh) and gpt-oss (a learned score per head in the softmax)
    """
    piece = mask.piece
    n_nodes, n_key_heads = query.shape[2], key.shape[1]
    grouped = query[0].reshape(n_key_heads, -1, n_nodes, query.shape[3])  # heads that share keys side by side
    key, value = piece.extend(key, value)
    kernel = partial(attend, scaling=scaling, softcap=softcap, with_sums=bool(piece.trunks) or sinks is not None)
    out, sums = _within_blocks(grouped, key, value, mask, kernel)
    for number, trunk in enumerate(piece.trunks):
        nodes = slice(trunk.first, trunk.stop)
        if mask.of_trunks[number].stop:
            join_(out[nodes], sums[nodes], *_to_trunk(grouped[:, :, nodes], key, value, mask, number, kernel))
    if sinks is not None:
        out *= torch.sigmoid(sums - sinks.float().view(sums.shape[1:]))[..., None].to(out.dtype)
    return out[:n_nodes].flatten(1, 2)[None]


def _within_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: TreeMask, kernel: Callable[..., tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Return the attention to the part of each block's keys that is not in a trunk.

    The results are `(n_blocks * size, n_key_heads, n_repeats, value size)` and, without the last dimension, the
    logarithms of their softmaxes' denominators.
    """
    n_heads, n_repeats, n_nodes, width = query.shape
    size = mask.piece.block
    n_blocks = -(-n_nodes // size)
    padded = pad(query, (0, 0, 0, n_blocks * size - n_nodes)) if n_blocks * size > n_nodes else query
    by_block = padded.reshape(n_heads, n_repeats, n_blocks, size, width).permute(2, 0, 1, 3, 4)
    rows = by_block.reshape(n_blocks, n_heads, n_repeats * size, width)  # so that no key is copied for several heads
    out = query.new_empty((n_blocks, size, n_heads, n_repeats, value.shape[2]))
    sums = query.new_empty(out.shape[:-1], dtype=torch.float32)
    for group, blocks in enumerate(mask.piece.blocks):
        places, keys = (mask.piece.on_device(indices, query.device) for indices in (blocks.index, blocks.keys))
        chosen = slice(None) if len(places) == n_blocks else places
        near = (_gathered(states, keys[:, mask.of_blocks[group][0] :]) for states in (key, value))
        results, result_sums = kernel(rows[chosen], *near, mask.bias(group, n_repeats, query))
        by_head = len(places), n_heads, n_repeats, size
        out[chosen] = results.reshape(*by_head, -1).permute(0, 3, 1, 2, 4)
        sums[chosen] = result_sums.reshape(by_head).permute(0, 3, 1, 2)
    return out.flatten(0, 1), sums.flatten(0, 1)


def _to_trunk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: TreeMask,
    number: int,
    kernel: Callable[..., tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Return the attention of nodes to the trunk that they share, without copying it, as `_within_blocks` does."""
    trunk, seen = mask.piece.on_device(mask.piece.trunks[number].keys, query.device), mask.of_trunks[number]
    # (n_repeats, n_key_heads, n_keys, head size)
    near = (
        states[trunk][seen.begin : seen.stop].transpose(0, 1).contiguous().expand(query.shape[1], -1, -1, -1)
        for states in (key, value)
    )
    results, sums = kernel(query.transpose(0, 1), *near, mask.bias_of_trunk(number, query))
    return results.permute(2, 1, 0, 3), sums.permute(2, 1, 0)


def _gathered(states: Tensor, keys: Tensor) -> Tensor:
    """Return the states of keys, `(n_blocks, n_heads, n_keys, size)`.

    states: `(n, n_heads, size)`
    keys: `(n_blocks, n_keys)`
    """
    return states.index_select(0, keys.flatten()).reshape(*keys.shape, *states.shape[1:]).transpose(1, 2)


class TreeModel:
    """Scores the targets of a tree by a causal language model of transformers.

    model: it must have a separate backbone and head, and replaceable attention and masks; it is changed only during a
        forward pass
    """

    def __init__(self, model: Any) -> None:
        from transformers import AttentionInterface, AttentionMaskInterface

        self._parts = TwoParts(model)
        self.model, self.backbone = self._parts.model, self._parts.backbone
        self._configs = {id(part.config): part.config for part in self.model.modules() if hasattr(part, "config")}
        AttentionInterface.register(ATTENTION_NAME, _attention)
        AttentionMaskInterface.register(ATTENTION_NAME, _mask)

    @torch.inference_mode()
    def score(self, piece: Piece, device: torch.device) -> tuple[IntArray, FloatArray, BoolArray]:
        """Return the indices of the targets below the piece's nodes, their log-likelihoods (nats), and whether each is
        the most likely token."""
        tree = piece.tree
        targets = tree.targets_below(piece.first, piece.stop)
        output = self._read(piece, device)
        hidden = output.last_hidden_state[0]
        # one row of logits per node, whatever its number of targets
        nodes, node_of = np.unique(tree.target_parents[targets] - piece.first, return_inverse=True)
        logprobs, greedy = np.empty(len(targets), np.float32), np.empty(len(targets), np.bool_)
        step = rows_at_once(self.model, device)
        for first in range(0, len(nodes), step):
            logits = self._parts.logits(output, hidden[index_tensor(nodes[first : first + step], hidden.device)])
            chosen = np.flatnonzero((node_of >= first) & (node_of < first + step))
            rows = index_tensor(node_of[chosen] - first, logits.device)
            tokens = index_tensor(tree.target_tokens[targets[chosen]], logits.device)
            logprobs[chosen], greedy[chosen] = (
                values.cpu().numpy() for values in logprobs_and_greedy(logits, rows, tokens)
            )
        return targets, logprobs, greedy

    def _read(self, piece: Piece, device: torch.device) -> Any:
        """Return the backbone's output on the piece's nodes."""
        rows = piece.tree.node_tokens[piece.first : piece.stop], piece.depths
        tokens, depths = (index_tensor(row, device)[None] for row in rows)
        with self._our_attention(piece):
            output = self.backbone(
                input_ids=tokens,
                position_ids=depths,
                # without one, jumps in position are taken for packed sequences
                attention_mask=torch.ones_like(tokens),
                use_cache=False,
                return_dict=True,
            )
        if not piece.calls:
            raise UnsuitedModelError("its attention cannot be replaced")
        return output

    @contextmanager
    def _our_attention(self, piece: Piece) -> Iterator[None]:
        """Make the model attend by `_attention` to the nodes of a piece, within a `with` block."""
        token = _current_piece.set(piece)
        usual = {key: getattr(config, "_attn_implementation", None) for key, config in self._configs.items()}
        try:
            for config in self._configs.values():
                config._attn_implementation = ATTENTION_NAME
            yield
        finally:
            for key, config in self._configs.items():
                config._attn_implementation = usual[key]
            _current_piece.reset(token)


def logprobs_and_greedy(logits: Tensor, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-likelihood of each token in its row of `logits` (nats), and whether it is the most likely token,
    the first if tied. Both are computed in float32 whatever the dtype of the logits."""
    logprobs = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    greedy = torch.empty(len(rows), dtype=torch.bool, device=logits.device)
    step = max(1, SOFTMAX_AT_ONCE // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    for first in range(0, len(logits), step):
        some = logits[first : first + step]
        (chosen,) = torch.where((rows >= first) & (rows < first + step))
        places, wanted = rows[chosen] - first, tokens[chosen]
        logprobs[chosen] = some.log_softmax(dim=1, dtype=torch.float32)[places, wanted]
        greedy[chosen] = _is_first_maximum(some, places, wanted)
    return logprobs, greedy


def _is_first_maximum(logits: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Return `logits.argmax(1)[rows] == tokens`, several times faster on CPUs, where argmax is slow and max is not."""
    greedy = logits[rows, tokens] == logits.amax(dim=1)[rows]
    (candidates,) = torch.where(greedy)
    greedy[candidates] = logits[rows[candidates]].float().argmax(dim=1) == tokens[candidates]
    return greedy


def _mask(*_: object, mask_function: MaskFunction, attention_mask: Tensor, **__: object) -> TreeMask:
    return TreeMask(_current_piece.get(), mask_function, attention_mask.device)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    if not isinstance(attention_mask, TreeMask):
        raise UnsuitedModelError("it creates its own attention masks")
    if position_bias is not None:
        raise UnsuitedModelError("its attention has a position bias")
    return tree_attention(query, key, value, attention_mask, scaling=scaling, softcap=softcap, sinks=s_aux), None
