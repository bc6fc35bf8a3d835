"""Gives a model's class a method of ours: lm_eval asks a model by the name of a request's type.

lm_eval has no other way to ask for what its three request types do not name. A registry of request types, or a task
that may ask its model itself, would replace this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval_leakage.harness.patches.patching import is_as_known


def offer_request_type(lm: Any, name: str, answer: Callable[..., list[Any]]) -> None:
    """Make a request type known to the model. To its class, since the harness's response cache hands unknown
    attributes of an object on to the model within it."""
    if not hasattr(type(lm), name) and is_as_known("lm_eval.api.instance:Instance"):
        setattr(type(lm), name, answer)
