"""A dummy request for a rank that has none of its own."""

from __future__ import annotations

from typing import Any

from lm_eval.api.instance import Instance


def stand_in(method: str) -> Instance:
    arguments: tuple[Any, ...] = ("Skipped", " question")
    if method == "generate_until":
        arguments = ("Skipped question", {"until": [], "max_gen_toks": 1, "do_sample": False, "temperature": 0.0})
    elif method == "token_scores":
        arguments = ("Skipped question",)
    return Instance(method, {}, arguments, 0)
