"""Runs a transformers model on prefix trees: its own layers and head, with its attention replaced by ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lm_eval_leakage.scoring.pieces import Piece, UnsuitedModelError, index_tensor
from lm_eval_leakage.scoring.prefix_tree import BoolArray, IntArray
from lm_eval_leakage.scoring.tree_attention import tree_attention
from lm_eval_leakage.scoring.tree_mask import MaskFunction, TreeMask
from lm_eval_leakage.scoring.two_parts import TwoParts, rows_at_once

ATTENTION_NAME = "lm_eval_leakage_prefix_tree"
SOFTMAX_AT_ONCE = 2**22  # values: 16 MiB, which fits into a CPU's cache

_piece_at_hand: ContextVar[Piece] = ContextVar("piece_at_hand")
FloatArray = npt.NDArray[np.float32]


class TreeModel:
    """Log-likelihoods of a tree's targets by a causal language model of transformers.

    model: must have a separate backbone and head, and replaceable attention and masks; the model is changed only
        during a forward pass
    """

    def __init__(self, model: Any) -> None:
        self._parts = TwoParts(model)
        self.model, self.backbone = self._parts.model, self._parts.backbone
        self._configs = {id(part.config): part.config for part in self.model.modules() if hasattr(part, "config")}
        _register()

    @torch.inference_mode()
    def score(self, piece: Piece, device: torch.device) -> tuple[IntArray, FloatArray, BoolArray]:
        """Targets below the piece's nodes: indices, log-likelihoods (nats), and whether each is the most likely."""
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
            asked = np.flatnonzero((node_of >= first) & (node_of < first + step))
            rows = index_tensor(node_of[asked] - first, logits.device)
            tokens = index_tensor(tree.target_tokens[targets[asked]], logits.device)
            logprobs[asked], greedy[asked] = (
                found.cpu().numpy() for found in logprobs_and_greedy(logits, rows, tokens)
            )
        return targets, logprobs, greedy

    def _read(self, piece: Piece, device: torch.device) -> Any:
        """The backbone's output on the piece's nodes."""
        tokens, depths = (index_tensor(row, device)[None] for row in (piece.tokens, piece.depths))
        with _reading(piece), self._our_attention():
            output = self.backbone(
                input_ids=tokens,
                position_ids=depths,
                attention_mask=torch.ones_like(
                    tokens
                ),  # without one, jumps in position are taken for packed sequences
                use_cache=False,
                return_dict=True,
            )
        if not piece.calls:
            raise UnsuitedModelError("its attention cannot be replaced")
        return output

    @contextmanager
    def _our_attention(self) -> Iterator[None]:
        usual = {key: getattr(config, "_attn_implementation", None) for key, config in self._configs.items()}
        try:
            for config in self._configs.values():
                config._attn_implementation = ATTENTION_NAME
            yield
        finally:
            for key, config in self._configs.items():
                config._attn_implementation = usual[key]


def logprobs_and_greedy(logits: Tensor, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log-likelihood of each token in its row of `logits`, and whether it is the most likely one (the first, if tied);
    computed in float32 whatever the dtype of the logits."""
    logprobs = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    greedy = torch.empty(len(rows), dtype=torch.bool, device=logits.device)
    step = max(1, SOFTMAX_AT_ONCE // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    for first in range(0, len(logits), step):
        some = logits[first : first + step]
        (asked,) = torch.where((rows >= first) & (rows < first + step))
        places, wanted = rows[asked] - first, tokens[asked]
        logprobs[asked] = some.log_softmax(dim=1, dtype=torch.float32)[places, wanted]
        greedy[asked] = _is_first_maximum(some, places, wanted)
    return logprobs, greedy


def _is_first_maximum(logits: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """`logits.argmax(1)[rows] == tokens`, but several times faster on a CPU, where argmax is slow and max is not."""
    greedy = logits[rows, tokens] == logits.amax(dim=1)[rows]
    (candidates,) = torch.where(greedy)
    greedy[candidates] = logits[rows[candidates]].float().argmax(dim=1) == tokens[candidates]
    return greedy


@contextmanager
def _reading(piece: Piece) -> Iterator[None]:
    token = _piece_at_hand.set(piece)
    try:
        yield
    finally:
        _piece_at_hand.reset(token)


def _register() -> None:
    """Registers our attention and masks with transformers under ATTENTION_NAME."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise UnsuitedModelError("this version of transformers has no replaceable attention and masks") from error
    AttentionInterface.register(ATTENTION_NAME, _attention)
    AttentionMaskInterface.register(ATTENTION_NAME, _mask)


def _mask(*_: object, mask_function: MaskFunction, attention_mask: Tensor, **__: object) -> TreeMask:
    return TreeMask(_piece_at_hand.get(), mask_function, attention_mask.device)


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
