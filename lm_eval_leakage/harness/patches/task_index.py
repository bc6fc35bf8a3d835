"""Replaces a task manager's index and factory, so that `<any task>_leakage_perm` is found by name.

`AuditIndex` finds names that it does not list: 14,000 tasks with 13 audits each would be 180,000 entries, and `ls`
would show them all. lm_eval has no other place to look up a name: a task manager, the members of a group and the
command line's check all read this one mapping. An entry-point group for functions from name to task would replace both
classes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from lm_eval.api.group import Group
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind

from lm_eval_leakage.harness.patches.audits_by_name import AuditsByName
from lm_eval_leakage.harness.patches.exception_hook import hide_tracebacks
from lm_eval_leakage.harness.patches.sharded_docs import ask_shard
from lm_eval_leakage.logs.run_shard import shard_in

__all__ = ["AuditEntry", "AuditFactory", "AuditIndex", "Entry", "Kind", "know_audits", "with_metadata"]


@dataclass
class AuditEntry(Entry):  # type: ignore[misc]
    """The entry of an audit of another entry's task, group or tag."""

    base: Entry = field(kw_only=True)
    suffix: str = field(kw_only=True)


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
        return AuditEntry(name=name, kind=Kind.PY_TASK, yaml_path=base.yaml_path, base=base, suffix=suffix)

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
        tasks = [name for name, entry in self.items() if entry.kind in (Kind.TASK, Kind.PY_TASK)]
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
            config = self._load_full_config(entry.base, None)
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
