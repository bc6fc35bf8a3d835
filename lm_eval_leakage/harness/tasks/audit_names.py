"""Makes lm_eval's task managers find audits by their names; the code that builds audits is imported only for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.seams.registries import find_tasks
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, split_name

Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags
SINGLE = ("TASK", "PY_TASK")  # names of kinds; the others are GROUP and TAG


@dataclass
class AuditEntry:
    """The entry of an audit of another entry's task, group or tag, with the attributes of lm_eval's own entries."""

    name: str
    base: Entry
    suffix: str
    kind: Any
    yaml_path: Path | None
    cfg: None = None
    tags: frozenset[str] = frozenset()


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also finds the audits of everything that it lists, without listing them: 14,000 tasks
    with 13 audits each would be 180,000 entries, and `ls` would show them all."""

    def __missing__(self, name: str) -> AuditEntry:
        found = self._base_of(name)
        if found is None:
            raise KeyError(name)
        base, suffix = found
        return AuditEntry(name, base, suffix, type(base.kind).PY_TASK, base.yaml_path)

    def _base_of(self, name: object) -> tuple[Entry, str] | None:
        """The entry that an audit's name refers to: a task of the harness, or the data in one of our own YAMLs, which
        are in the index under the name of their first audit."""
        parts = split_name(name) if isinstance(name, str) else None
        if parts is None or split_name(parts[0]) is not None:  # an audit cannot be audited
            return None
        base, suffix = parts
        known = [one for one in (base, f"{base}_{FIRST_AUDIT}") if super(AuditIndex, self).__contains__(one)]
        return (self[known[0]], suffix) if known else None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._base_of(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict.get ignores __missing__)

    def audits_like(self, pattern: str) -> list[str]:
        """The audits that match a name or pattern; a pattern matches only single tasks, since groups repeat them."""
        listed = super().keys()
        if pattern in self:
            return [] if pattern in listed else [pattern]
        parts = split_name(pattern)
        if parts is None or not set("*?[") & set(pattern):
            return []
        base, suffix = parts
        tasks = [name for name, entry in self.items() if entry.kind.name in SINGLE and split_name(name) is None]
        names = [f"{name}_{suffix}" for name in tasks if fnmatchcase(name, base)]
        return sorted(name for name in names if name not in listed)


def know_audits(manager: Any) -> None:
    """Makes one task manager find the audits of everything that it knows."""
    from lm_eval_leakage.harness.seams.tasks import extend

    extend(manager, AuditIndex, _made)


def find_audits(task_manager_class: type) -> None:
    """Makes every task manager find our tasks, and audits of all tasks that it knows."""
    find_tasks(task_manager_class, know_audits)


def _made(of_harness: Callable[..., Any], entry: Entry, overrides: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What a name denotes, as the harness builds it or as an audit of that; with `shard` in the metadata, a part.

    of_harness: builds an entry of the harness
    """
    from lm_eval.api.group import Group

    from lm_eval_leakage.harness.seams.sharded_docs import ask_shard
    from lm_eval_leakage.logs.run import shard_in

    shard = shard_in(given)
    built = _whole(of_harness, entry, overrides, given)
    if shard is not None:
        tasks = built.get_all_tasks() if isinstance(built, Group) else built if isinstance(built, list) else [built]
        for task in tasks:
            ask_shard(task, shard)
    return built


def _whole(
    of_harness: Callable[..., Any], entry: Entry, overrides: Mapping[str, Any], given: Mapping[str, Any]
) -> Any:
    if split_name(entry.name) is not None:
        from lm_eval_leakage.harness.seams.patching import hide_tracebacks
        from lm_eval_leakage.harness.tasks.metadata import warn_of_misspelled_keys

        hide_tracebacks()  # first, since the rest may raise UnsupportedHarness
        warn_of_misspelled_keys(frozenset(given))
    if not isinstance(entry, AuditEntry):
        built = of_harness(entry, overrides)
        if "data_files" in given:
            from lm_eval_leakage.harness.tasks.audit import refuse_one_file_for_audits

            refuse_one_file_for_audits(entry.name, built, given)
        return built
    from lm_eval_leakage.harness.tasks.audit import audit_of_yaml, build_audits

    metadata = {**given, **(overrides.get("metadata") or {})}
    if split_name(entry.base.name) is not None:
        return audit_of_yaml(entry.base.yaml_path, entry.name, entry.suffix, metadata)
    return build_audits(of_harness(entry.base), entry.suffix, metadata)
