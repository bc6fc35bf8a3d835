"""Adds a request type to a model: lm_eval calls the model's method that is named like the request's type.

lm_eval has no other way to make requests beyond its three types. A registry of request types, or tasks that may call
the model themselves, would replace this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval_leakage.harness.patches.patching import is_as_known


def offer_request_type(lm: Any, name: str, answer: Callable[..., list[Any]]) -> None:
    """Adds the method to the model's class, since the harness's response cache forwards unknown attributes to the
    model that it wraps."""
    if not hasattr(type(lm), name) and is_as_known("lm_eval.api.instance:Instance"):
        setattr(type(lm), name, answer)
