"""Pieces of a prefix tree: the nodes of one forward pass, and what one piece passes on to the next.

Each piece takes the keys and values of its first node's ancestors from the piece before it, so that nothing is
computed twice and memory is bounded by the size of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lm_eval_leakage.scoring.blocks import blocks_of, last_at_each_depth
from lm_eval_leakage.scoring.layout import cheapest_layout
from lm_eval_leakage.scoring.prefix_tree import IntArray, PrefixTree


class UnsuitedModelError(Exception):
    """A scorer cannot be used with this model; the message says why."""


@dataclass(frozen=True, eq=False)
class Carried:
    """Keys and values of a path from the root, per attention layer in call order; each
    `(n_path, n_heads, head size)`."""

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
    device_type: str = "cpu"  # for which the layout is chosen

    def __post_init__(self) -> None:
        self.depths: IntArray = self.tree.node_depths[self.first : self.stop]
        self.n_carried = int(self.depths[0])
        path = last_at_each_depth(self.depths, self.n_carried)
        has_next = self.stop < len(self.tree.node_depths)
        self._path_on = path[: self.tree.node_depths[self.stop]] if has_next else path[:0]
        layout = cheapest_layout(self.depths, self.device_type)
        self.block = layout.size
        self.trunks, self.blocks = blocks_of(self.depths, self.n_carried, layout)
        self._on_device: dict[torch.device, Indices] = {}

    @property
    def tokens(self) -> IntArray:
        return self.tree.node_tokens[self.first : self.stop]

    def indices(self, device: torch.device) -> Indices:
        """The indices for gathering, on the device of a layer (a model may be split over several)."""
        if device not in self._on_device:
            self._on_device[device] = Indices(
                trunks=[_slice_or_index(trunk.keys, device) for trunk in self.trunks],
                keys=[index_tensor(blocks.keys, device) for blocks in self.blocks],
                places=[index_tensor(blocks.index, device) for blocks in self.blocks],
                path_on=index_tensor(self._path_on, device),
            )
        return self._on_device[device]

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """This layer's keys and values after the carried ones, `(n_carried + n_nodes, n_heads, head size)`; stores
        those that the next piece needs."""
        key, value = key[0].transpose(0, 1), value[0].transpose(0, 1)
        if self.n_carried:
            if self.calls >= len(self.carried.keys):
                raise UnsuitedModelError("its layers do not attend the same number of times in each pass")
            key = torch.cat([self.carried.keys[self.calls].to(key.device), key])
            value = torch.cat([self.carried.values[self.calls].to(value.device), value])
        key, value = key.contiguous(), value.contiguous()  # so that gathering copies whole rows
        if len(self._path_on):
            path_on = self.indices(key.device).path_on
            self.passed_on.keys.append(key.index_select(0, path_on))
            self.passed_on.values.append(value.index_select(0, path_on))
        self.calls += 1
        return key, value


@dataclass(frozen=True, eq=False)
class Indices:
    trunks: list[slice | Tensor]
    keys: list[Tensor]
    places: list[Tensor]
    path_on: Tensor


def _slice_or_index(keys: IntArray, device: torch.device) -> slice | Tensor:
    """A slice, which copies nothing, where the keys are consecutive."""
    if len(keys) and int(keys[-1]) - int(keys[0]) + 1 == len(keys):
        return slice(int(keys[0]), int(keys[-1]) + 1)
    return index_tensor(keys, device)


def index_tensor(indices: npt.NDArray[np.integer[Any]], device: torch.device) -> Tensor:
    """Indices as an int64 tensor, which torch needs for indexing."""
    return torch.from_numpy(indices.astype(np.int64)).to(device)
