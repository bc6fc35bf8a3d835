"""Finds how many tokens may be read together before the positions of one text change how a model reads another.

A tree reads texts of all lengths in one forward pass. Rotary embeddings of the types `dynamic` and `longrope` choose
their frequencies by the largest position of a pass, for one type of layers or for all, so that a text has another
value beside a longer one. Llama 4 scales its attention by a token's row in the pass instead of its position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from lm_eval_leakage.scoring.tree_model import TwoParts

logger = logging.getLogger(__name__)
Embed = Callable[[Tensor], list[Tensor]]  # from positions to the embeddings that a module of the model returns
SHORT = 2  # tokens of the text that is compared; the first position alone is embedded alike in every way


def steady_window(model: Any, device: torch.device, longest: int) -> int:
    """Return the most tokens, up to `longest`, that a text may have without changing how shorter texts beside it are
    read.

    Every module that maps positions to an embedding is called with the positions of a short text, alone and together
    with a later one. A model that cannot be called with positions has no such modules.
    """
    window = most_rows(model, longest)
    embeds = _embeds(model, device)
    if _is_steady(embeds, window, device):
        return window
    steady, unsteady = SHORT, window
    while unsteady - steady > 1:
        middle = (steady + unsteady) // 2
        steady, unsteady = (middle, unsteady) if _is_steady(embeds, middle, device) else (steady, middle)
    return steady


def most_rows(model: Any, n_rows: int) -> int:
    """Return how many rows, at most `n_rows`, a forward pass may have before attention is scaled by a token's row."""
    scaled = (part for part in model.modules() if getattr(part, "attn_temperature_tuning", False))
    return min([n_rows, *(int(part.floor_scale) - 1 for part in scaled)])


@torch.no_grad()
def _is_steady(embeds: list[Embed], n_tokens: int, device: torch.device) -> bool:
    """Return whether a text of so many tokens changes nothing for a short one."""
    positions = torch.arange(SHORT, device=device)
    beside = torch.cat([positions, positions.new_tensor([max(SHORT, n_tokens - 1)])])
    for embed in embeds:
        alone, together = embed(positions), embed(beside)
        embed(positions)  # `dynamic` keeps the frequencies of a long text until a short one comes
        if not all(_begins_with(*pair) for pair in zip(together, alone, strict=True)):
            return False
    return True


def _begins_with(together: Tensor, alone: Tensor) -> bool:
    for dim, size in enumerate(alone.shape):
        together = together.narrow(dim, 0, size)
    return torch.equal(together, alone)


@torch.no_grad()
def _embeds(model: Any, device: torch.device) -> list[Embed]:
    """Return the calls of modules without parameters that take positions, in a forward pass over a short text."""
    embeds: list[Embed] = []
    positions = torch.arange(SHORT, device=device)

    def record(part: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: object) -> None:
        if any(_are(positions, value) for value in [*args, *kwargs.values()]):
            embeds.append(partial(_embedded, part, args, kwargs, positions))

    try:
        backbone = TwoParts(model).backbone
        parts = [part for part in backbone.modules() if next(part.parameters(), None) is None]
        hooks = [part.register_forward_hook(record, with_kwargs=True) for part in parts]
        try:
            tokens = torch.zeros((1, SHORT), dtype=torch.long, device=device)
            backbone(input_ids=tokens, position_ids=positions[None], use_cache=False, return_dict=True)
        finally:
            for hook in hooks:
                hook.remove()
    except Exception as error:  # the model's own code may raise anything; then it does not suit a tree either
        logger.debug("%s cannot be called with positions: %r", type(model).__name__, error)
    return embeds


def _embedded(
    part: Module, args: tuple[Any, ...], kwargs: dict[str, Any], before: Tensor, positions: Tensor
) -> list[Tensor]:
    """Return the output of a module that is called as it was, but with other positions and in float32."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.float()  # the states, whose dtype the result has: bfloat16 hides small changes
        return positions.expand(*value.shape[:-1], -1) if _are(before, value) else value

    output = part(*map(changed, args), **{name: changed(value) for name, value in kwargs.items()})
    return [value for value in (output if isinstance(output, tuple) else (output,)) if isinstance(value, Tensor)]


def _are(positions: Tensor, value: object) -> bool:
    """Return whether an argument is these positions, possibly once for each of several dimensions."""
    if not isinstance(value, Tensor) or value.is_floating_point() or value.shape[-1:] != positions.shape:
        return False
    return torch.equal(value, positions.expand(*value.shape[:-1], -1))
