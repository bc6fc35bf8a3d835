"""A causal language model of transformers as two parts, layers and head, so that memory for logits is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lm_eval_leakage.scoring.pieces import UnsuitedModelError

LOGITS_AT_ONCE = {"cuda": 2**27, "cpu": 2**24}  # values: 512 and 64 MiB in float32


class TwoParts:
    """model: must have a separate backbone and head; changed only during a forward pass"""

    def __init__(self, model: Any) -> None:
        self.model = model.get_base_model() if hasattr(model, "get_base_model") else model
        found = self.model.get_decoder() if hasattr(self.model, "get_decoder") else self.model
        self.backbone: Any = getattr(found, "model", found) if found is self.model else found
        if self.backbone is self.model:
            raise UnsuitedModelError("its output head cannot be distinguished from its layers")

    def layers_of(self, call: Callable[[], object]) -> Any:
        """The backbone's output during `call`, a forward pass of the model, whose head gets the first token only."""
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
        """The model's own logits, including soft caps and scales, `(n, vocabulary)`: its forward pass with a backbone
        that returns `hidden`, some rows of `output`."""
        answer = type(output)(last_hidden_state=hidden[None])
        asked = False

        def forward(*_: object, **__: object) -> Any:
            nonlocal asked
            asked = True
            return answer

        with self._backbone_as(forward):
            tokens = torch.zeros((1, len(hidden)), dtype=torch.long, device=hidden.device)
            logits: Tensor = self.model(input_ids=tokens, use_cache=False, return_dict=True).logits[0]
        if not asked:
            raise UnsuitedModelError("its output head cannot be distinguished from its layers")
        return logits

    @contextmanager
    def _backbone_as(self, forward: Callable[..., Any]) -> Iterator[None]:
        own = self.backbone.__dict__.get("forward")
        self.backbone.forward = forward
        try:
            yield
        finally:
            if own is None:
                del self.backbone.forward
            else:
                self.backbone.forward = own


def vocabulary_size(model: Any) -> int:
    return int(model.config.get_text_config().vocab_size)


def rows_at_once(model: Any, device: torch.device) -> int:
    """How many rows of logits may be in memory at once."""
    return max(1, LOGITS_AT_ONCE.get(device.type, LOGITS_AT_ONCE["cpu"]) // vocabulary_size(model))
