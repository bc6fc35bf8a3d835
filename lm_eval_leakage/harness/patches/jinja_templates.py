"""Patches lm_eval's Jinja environment while rows are read, so that a template is compiled once instead of per row.

A task's `doc_to_text` compiles its template at every call; a cache in lm_eval's `apply_template` would replace this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

import jinja2
import jinja2.meta

from lm_eval_leakage.harness.patches.patching import found


@contextmanager
def templates_compiled_once() -> Iterator[None]:
    """Caches compiled templates; the harness compiles one per row, which takes longer than the rest of reading it."""
    env = _environment()
    if env is None or "from_string" in vars(env):  # not found, or already patched by a caller
        yield
        return
    env.from_string = _compiled
    try:
        yield
    finally:
        del env.from_string


def fields_of(template: str) -> set[str]:
    """The names of the fields that a template uses; may raise jinja2.TemplateSyntaxError."""
    env = _environment() or jinja2.Environment()
    return set(jinja2.meta.find_undeclared_variables(env.parse(template)))


@cache
def _environment() -> Any:
    """lm_eval's Jinja environment; None if it has none."""
    return found("lm_eval.utils:env")


@lru_cache(maxsize=64)
def _compiled(template: str, *args: Any, **kwargs: Any) -> Any:
    env = _environment()
    return type(env).from_string(env, template, *args, **kwargs)
