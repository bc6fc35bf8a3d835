"""Reads YAML files of tasks with lm_eval's private loader.

Patches lm_eval's Jinja environment while rows are read, so that a template is compiled once instead of per row.

A task's `doc_to_text` compiles its template at every call; a cache in lm_eval's `apply_template` would replace this.

Wraps ConfigurableTask.process_results, by which lm_eval scores one question, to leave a question out.

A backend that may say that it has no answer to a request would replace this.

Replaces a task manager's index and factory, so that `<any task>_leakage_perm` is found by name: a task manager, the
members of a group and the command line's check all read this one mapping. An entry-point group for functions from name
to task would replace this.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lm_eval.tasks._factory import TaskFactory

from lm_eval_leakage.harness.seams.patching import found, patched_once

LOADER = "lm_eval.tasks._yaml_loader"


def task_settings(file: Path | str) -> dict[str, Any]:
    """A task's settings, with its includes resolved and its functions imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=True))


def own_settings(file: Path | str, includes: bool = False) -> dict[str, Any]:
    """What a YAML itself says, without its includes, whose names are under `include`, or with them. Its functions are
    not imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=False, recursive=includes))


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


@cache
def _environment() -> Any:
    """lm_eval's Jinja environment; None if it has none."""
    return found("lm_eval.utils:env")


@lru_cache(maxsize=64)
def _compiled(template: str, *args: Any, **kwargs: Any) -> Any:
    env = _environment()
    return type(env).from_string(env, template, *args, **kwargs)


SCORED = "lm_eval.api.task:ConfigurableTask.process_results"


def leave_out(unscored: Callable[[Any, Sequence[Any]], bool]) -> None:
    """A question for which `unscored(task, results)` holds has no metrics, so that none of lm_eval's averages counts
    it; its line in the samples log names none."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_results(self: Any, doc: Any, results: Any) -> Any:
            return {} if unscored(self, results) else original(self, doc, results)

        return process_results

    patched_once(SCORED, wrap)


Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags


def kind_of(entry: Entry) -> str:
    """TASK, PY_TASK, GROUP or TAG."""
    return str(entry.kind.name)


class Factory(TaskFactory):  # type: ignore[misc]
    """Builds tasks by `make`, which gets lm_eval's own way to build an entry, the entry, overrides and metadata."""

    def __init__(self, metadata: Mapping[str, Any] | None, make: Callable[..., Any]) -> None:
        super().__init__(meta=metadata)
        self.make = make

    def build(self, entry: Entry, *, overrides: Mapping[str, Any] | None = None, registry: dict[str, Entry]) -> Any:
        def of_harness(entry: Entry, overrides: Mapping[str, Any] | None = None) -> Any:
            return super(Factory, self).build(entry, overrides=overrides, registry=registry)

        return self.make(of_harness, entry, overrides or {}, self._meta)


def extend(manager: Any, index: Callable[[Mapping[str, Entry]], dict[str, Entry]], make: Callable[..., Any]) -> None:
    """Gives a task manager another index, made from its own, and another way to build tasks."""
    manager._index, manager._factory = index(manager._index), Factory(manager.metadata, make)


def with_metadata(manager: Any, metadata: Mapping[str, Any]) -> Any:
    """A task manager with the same index, which takes 11 seconds to build, for tasks with other metadata."""
    other = copy.copy(manager)
    other.metadata, other._factory = dict(metadata), Factory(metadata, manager._factory.make)
    return other
