"""Uses of private parts of HFLM, lm_eval's model `hf`."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from lm_eval_leakage.harness.patches.patching import found, is_as_known

HF = "lm_eval.models.huggingface:HFLM"


def refuse_other_hf() -> None:
    """Raises UnsupportedHarness, before a model is loaded, if `hf` lacks what hf-prefix-tree overrides."""
    for name in ("_loglikelihood_tokens", "rank", "world_size"):
        is_as_known(f"{HF}.{name}")


def offer_method(lm: Any, name: str, method: Callable[..., Any]) -> bool:
    """Adds a method that reads the logits to an HFLM model. Returns whether it was added."""
    if found(f"{HF}._model_call") is None:
        return False
    setattr(lm, name, MethodType(method, lm))
    return True


def logits_of(lm: Any, tokens: Any) -> Any:
    """The logits for every position, in the model's own precision."""
    return lm._model_call(tokens)
