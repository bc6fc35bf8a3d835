"""A model's own attention mask, restricted to the ancestors of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.scoring.attend import bias_where
from lm_eval_leakage.scoring.blocks import Blocks, Trunk
from lm_eval_leakage.scoring.layout import KEYS_MULTIPLE
from lm_eval_leakage.scoring.pieces import Piece, index_tensor
from lm_eval_leakage.scoring.prefix_tree import IntArray

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
SEEN_AT_ONCE = 2**22  # values, of one byte
HIDDEN_BIAS = -3e4  # in a bias: weight 0 even in float16, but not NaN for a query that sees nothing of its trunk


class TreeMask:
    """The model's own mask over positions (causal, sliding, chunked), restricted to ancestors."""

    def __init__(self, piece: Piece, mask_function: MaskFunction, device: torch.device) -> None:
        self.piece = piece
        self.of_blocks = [_seen_of_blocks(blocks, mask_function, device) for blocks in piece.blocks]
        self.of_trunks = [_seen_of_trunk(trunk, piece.depths, mask_function, device) for trunk in piece.trunks]
        self._biases: dict[tuple[object, ...], Tensor] = {}

    def bias(self, group: int, n_repeats: int, like: Tensor) -> Tensor:
        """0 where a node sees a key and -inf elsewhere, `(n_blocks, 1, n_repeats * size, n_keys)`."""
        key = (group, n_repeats, like.dtype, like.device)
        if key not in self._biases:
            seen = self.of_blocks[group][1].to(like.device).repeat(1, n_repeats, 1)[:, None]
            self._biases[key] = bias_where(seen, -torch.inf, like)
        return self._biases[key]

    def bias_of_trunk(self, number: int, like: Tensor) -> Tensor | None:
        """The same for a trunk, `(1, 1, n_nodes, n_keys)`; None where all nodes see all keys."""
        seen, key = self.of_trunks[number].seen, ("trunk", number, like.dtype, like.device)
        if seen is None:
            return None
        if key not in self._biases:
            self._biases[key] = bias_where(seen.to(like.device)[None, None], HIDDEN_BIAS, like)
        return self._biases[key]


@dataclass(frozen=True, eq=False)
class _SeenOfTrunk:
    """Which nodes see which keys `begin .. stop - 1` of their trunk, `(n_nodes, n_keys)`; None: all of them.
    No node sees any of the others."""

    begin: int
    stop: int
    seen: Tensor | None


def _seen_of_blocks(blocks: Blocks, mask_function: MaskFunction, device: torch.device) -> tuple[int, Tensor]:
    """Which queries see which keys from a number on, and that number; none sees one before."""
    queries, keys = (index_tensor(depths, device) for depths in (blocks.query_depths, blocks.key_depths))
    seen = torch.from_numpy(blocks.seen).to(device) & _allowed(mask_function, queries, keys).expand(blocks.seen.shape)
    begin, _ = _range_of(seen.flatten(0, 1).any(dim=0))
    return begin, seen[..., begin:]


def _seen_of_trunk(trunk: Trunk, depths: IntArray, mask_function: MaskFunction, device: torch.device) -> _SeenOfTrunk:
    distinct, places = np.unique(depths[trunk.first : trunk.stop], return_inverse=True)
    queries, keys = index_tensor(distinct, device), torch.arange(len(trunk.keys), device=device)
    step = max(1, SEEN_AT_ONCE // len(keys))  # queries: for all of them, a long trunk's mask may be large

    def seen(begin: int, stop: int) -> Iterator[Tensor]:
        for first in range(0, len(queries), step):
            some = queries[None, first : first + step]
            yield _allowed(mask_function, some, keys[None, begin:stop])[0].expand(some.shape[1], stop - begin)

    begin, stop = _range_of(torch.stack([some.any(dim=0) for some in seen(0, len(keys))]).any(dim=0))
    if all(bool(some.all()) for some in seen(begin, stop)):
        return _SeenOfTrunk(begin, stop, None)
    return _SeenOfTrunk(begin, stop, torch.cat(list(seen(begin, stop)))[index_tensor(places, device)])


def _allowed(mask_function: MaskFunction, queries: Tensor, keys: Tensor) -> Tensor:
    one = torch.zeros((), dtype=torch.long, device=queries.device)  # one row per batch, the same mask for all heads
    return torch.as_tensor(mask_function(one, one, queries[:, :, None], keys[:, None, :]))


def _range_of(columns: Tensor) -> tuple[int, int]:
    """The columns from the first to the last that is set, extended to an aligned number of them where there are."""
    found = columns.nonzero()[:, 0].tolist()
    if not found:
        return 0, 0
    begin, stop = found[0] // KEYS_MULTIPLE, -(-(found[-1] + 1) // KEYS_MULTIPLE)
    return begin * KEYS_MULTIPLE, min(stop * KEYS_MULTIPLE, len(columns))
