"""What this package uses of HFLM, the model `hf`, beyond its public methods."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from lm_eval_leakage.harness.patches.patching import found, is_as_known

HF = "lm_eval.models.huggingface:HFLM"


def refuse_other_hf() -> None:
    """Raises OtherHarness where `hf` has not what hf-prefix-tree overrides, before a model is loaded."""
    for name in ("_loglikelihood_tokens", "rank"):
        is_as_known(f"{HF}.{name}")


def offer_method(lm: Any, name: str, method: Callable[..., Any]) -> bool:
    """Give one model of the class HFLM a method that reads its logits. Whether it has it now."""
    if found(f"{HF}._model_call") is None:
        return False
    setattr(lm, name, MethodType(method, lm))
    return True


def logits_of(lm: Any, tokens: Any) -> Any:
    """The logits after every token, in the model's own precision."""
    return lm._model_call(tokens)
