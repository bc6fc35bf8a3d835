"""Patches the template environment of lm_eval while rows are read: a template is compiled once, not once for each row.

`doc_to_text` of a task compiles the template that it renders, whoever calls it; a cache in lm_eval's `apply_template`
would replace this.
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
    """The harness compiles a template for every row, which takes longer than all the rest of reading one."""
    env = _environment()
    if env is None or "from_string" in vars(env):  # not there, or patched by who calls us
        yield
        return
    env.from_string = _compiled
    try:
        yield
    finally:
        del env.from_string


def fields_of(template: str) -> set[str]:
    """The names of the fields that a template uses; raises jinja2.TemplateSyntaxError."""
    env = _environment() or jinja2.Environment()
    return set(jinja2.meta.find_undeclared_variables(env.parse(template)))


@cache
def _environment() -> Any:
    """None where lm_eval has none."""
    return found("lm_eval.utils:env")


@lru_cache(maxsize=64)
def _compiled(template: str, *args: Any, **kwargs: Any) -> Any:
    env = _environment()
    return type(env).from_string(env, template, *args, **kwargs)
