"""Reads YAML files of tasks with lm_eval's private loader.

Patches lm_eval's Jinja environment while rows are read, so that a template is compiled once instead of per row.

A task's `doc_to_text` compiles its template at every call; a cache in lm_eval's `apply_template` would replace this.

Wraps ConfigurableTask.process_results, by which lm_eval scores one question, to leave a question out.

A backend that may say that it has no answer to a request would replace this.

Replaces a task manager's index and factory, so that `<any task>_leakage_perm` is found by name.

`AuditIndex` finds names that it does not list: 14,000 tasks with 13 audits each would be 180,000 entries, and `ls`
would show them all. lm_eval has no other place to look up a name: a task manager, the members of a group and the
command line's check all read this one mapping. An entry-point group for functions from name to task would replace both
classes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

from lm_eval.api.group import Group
from lm_eval.tasks._factory import TaskFactory

from lm_eval_leakage.harness.seams.patching import found, hide_tracebacks, patched_once
from lm_eval_leakage.harness.seams.sharded_docs import ask_shard
from lm_eval_leakage.logs.run import shard_in


class AuditsByName(Protocol):
    """Resolves names such as `arc_easy_leakage_perm`, and builds the tasks that they denote."""

    def split_name(self, name: str) -> tuple[str, str] | None:
        """The audited task and the audit; None if it is not an audit's name."""

    def described_as(self, base: str) -> tuple[str, ...]:
        """The names under which the data of `base` may be in the index, in order of preference."""

    def check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Called before an audit is built."""

    def check_group(self, name: str, tasks: list[Any], metadata: Mapping[str, Any]) -> None:
        """Called with the tasks of a group of lm_eval; raises ValueError if they cannot run together."""

    def of_config(self, config: dict[str, Any], name: str, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """Another audit of the data in one of our YAMLs."""

    def of_task(self, built: Any, suffix: str, metadata: Mapping[str, Any]) -> Any:
        """The audit of a task, a group, or the tasks of a tag."""


LOADER = "lm_eval.tasks._yaml_loader"


def task_settings(file: Path | str) -> dict[str, Any]:
    """A task's settings, with its includes resolved and its functions imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=True))


def own_settings(file: Path | str) -> dict[str, Any]:
    """What a YAML itself says, without its includes, whose names are under `include`."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=False, recursive=False))


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
SINGLE = ("TASK", "PY_TASK")  # names of kinds; the others are GROUP and TAG


def kind_of(entry: Entry) -> str:
    return str(entry.kind.name)


@dataclass
class AuditEntry:
    """The entry of an audit of another entry's task, group or tag, with the attributes of lm_eval's own entries."""

    name: str
    base: Entry
    suffix: str
    cfg: None = None
    tags: frozenset[str] = frozenset()

    @property
    def kind(self) -> Any:
        return type(self.base.kind).PY_TASK

    @property
    def yaml_path(self) -> Path | None:
        path: Path | None = self.base.yaml_path
        return path


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also finds the audits of everything that it lists, without listing them."""

    def __init__(self, index: Mapping[str, Entry], audits: AuditsByName) -> None:
        super().__init__(index)
        self.audits = audits

    def __missing__(self, name: str) -> AuditEntry:
        found = self._base_of(name)
        if found is None:
            raise KeyError(name)
        base, suffix = found
        return AuditEntry(name, base, suffix)

    def _base_of(self, name: object) -> tuple[Entry, str] | None:
        """The entry that an audit's name refers to: a task of the harness, or the data in one of our own YAMLs."""
        parts = self.audits.split_name(name) if isinstance(name, str) else None
        if parts is None or self.audits.split_name(parts[0]) is not None:  # an audit cannot be audited
            return None
        base, suffix = parts
        for known in self.audits.described_as(base):
            if super().__contains__(known):
                return self[known], suffix
        return None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._base_of(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict.get ignores __missing__)

    def audits_like(self, pattern: str) -> list[str]:
        """The audits that match a name or pattern; a pattern matches only single tasks, since groups repeat them."""
        split_name = self.audits.split_name
        if pattern in self:
            return [] if super().__contains__(pattern) else [pattern]
        parts = split_name(pattern)
        if parts is None or not set("*?[") & set(pattern):
            return []
        base, suffix = parts
        tasks = [name for name, entry in self.items() if kind_of(entry) in SINGLE]
        names = [f"{name}_{suffix}" for name in tasks if fnmatchcase(name, base) and split_name(name) is None]
        return sorted(name for name in names if not super(AuditIndex, self).__contains__(name))


class AuditFactory(TaskFactory):  # type: ignore[misc]
    """Builds an audit from what the harness builds for the audited name."""

    def __init__(self, metadata: Mapping[str, Any] | None, audits: AuditsByName) -> None:
        super().__init__(meta=metadata)
        self._audits = audits

    def build(self, entry: Entry, *, overrides: Mapping[str, Any] | None = None, registry: dict[str, Entry]) -> Any:
        shard = shard_in(self._meta)
        built = self._whole(entry, overrides, registry)
        if shard is not None:
            for task in _tasks_in(built):
                ask_shard(task, shard)
        return built

    def _whole(self, entry: Entry, overrides: Mapping[str, Any] | None, registry: dict[str, Entry]) -> Any:
        if self._audits.split_name(entry.name) is not None:
            hide_tracebacks()  # first, since the rest may raise UnsupportedHarness
            self._audits.check_metadata(self._meta)
        if not isinstance(entry, AuditEntry):
            built = super().build(entry, overrides=overrides, registry=registry)
            if isinstance(built, Group):
                self._audits.check_group(entry.name, built.get_all_tasks(), self._meta)
            return built
        metadata = self._meta | dict((overrides or {}).get("metadata") or {})
        if self._audits.split_name(entry.base.name) is not None:
            config = task_settings(entry.base.yaml_path)
            config["metadata"] = {**config["metadata"], **self._meta, "config_source": str(entry.base.yaml_path)}
            return self._audits.of_config(config, entry.name, entry.suffix, metadata)
        base = super().build(entry.base, overrides=None, registry=registry)
        return self._audits.of_task(base, entry.suffix, metadata)


def _tasks_in(built: Any) -> Iterable[Any]:
    """The tasks of what a name denotes: a task, a group, or the tasks of a tag."""
    if isinstance(built, Group):
        return list(built.get_all_tasks())
    return built if isinstance(built, list) else [built]


def know_audits(manager: Any, audits: AuditsByName) -> None:
    """Makes a task manager find the audits of everything that it knows."""
    index, factory = AuditIndex(manager._index, audits), AuditFactory(manager.metadata, audits)
    manager._index, manager._factory = index, factory


def with_metadata(manager: Any, metadata: Mapping[str, Any]) -> Any:
    """A task manager with the same index, which takes 11 seconds to build, for tasks with other metadata."""
    other = copy.copy(manager)
    other.metadata = dict(metadata)
    know_audits(other, manager._index.audits)
    return other
