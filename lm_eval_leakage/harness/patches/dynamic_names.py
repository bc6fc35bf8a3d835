"""Names of audits that no YAML lists: `<any task>_leakage_perm`, looked up when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from lm_eval.api.group import Group
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind

from lm_eval_leakage.harness.checks.known_keys import warn_of_misspelled_keys
from lm_eval_leakage.harness.tasks.audit import FIRST_AUDIT, audit_like, audits_of, split_name
from lm_eval_leakage.harness.tasks.audited_rows import refuse_one_file_for_many
from lm_eval_leakage.harness.tasks.task import LeakageTask


@dataclass
class AuditEntry(Entry):  # type: ignore[misc]
    """The audit of what another entry stands for."""

    base: Entry = field(kw_only=True)
    suffix: str = field(kw_only=True)


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also answers for the audits of what it lists. It does not list them."""

    def __missing__(self, name: str) -> AuditEntry:
        found = self._base_of(name)
        if found is None:
            raise KeyError(name)
        base, suffix = found
        return AuditEntry(name=name, kind=Kind.PY_TASK, yaml_path=base.yaml_path, base=base, suffix=suffix)

    def _base_of(self, name: object) -> tuple[Entry, str] | None:
        """What an audit's name is of: a task of the harness, or data that one of our own YAMLs describes."""
        parts = split_name(name) if isinstance(name, str) else None
        if parts is None or split_name(parts[0]) is not None:  # there is no audit of an audit
            return None
        base, suffix = parts
        for known in (base, f"{base}_{FIRST_AUDIT}"):
            if super().__contains__(known):
                return self[known], suffix
        return None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._base_of(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict.get knows nothing of __missing__)

    def audits_like(self, pattern: str) -> list[str]:
        """The audit of that name, or of every single task where it is a pattern (a group would hold them twice)."""
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
    """Builds an audit from whatever the harness builds for the name it is of."""

    def build(self, entry: Entry, *, overrides: Mapping[str, Any] | None = None, registry: dict[str, Entry]) -> Any:
        if split_name(entry.name) is not None:
            warn_of_misspelled_keys(frozenset(self._meta))
        if not isinstance(entry, AuditEntry):
            built = super().build(entry, overrides=overrides, registry=registry)
            if isinstance(built, Group):
                n_audits = sum(isinstance(task, LeakageTask) for task in built.get_all_tasks())
                refuse_one_file_for_many(entry.name, n_audits, self._meta, FIRST_AUDIT)
            return built
        metadata = self._meta | dict((overrides or {}).get("metadata") or {})
        if split_name(entry.base.name) is not None:
            return audit_like(self._load_full_config(entry.base, None), entry.name, entry.suffix, metadata)
        base = super().build(entry.base, overrides=None, registry=registry)
        return audits_of(base, entry.suffix, metadata)


def know_audits(manager: Any) -> None:
    """Have a task manager answer for the audits of all it knows."""
    manager._index = AuditIndex(manager._index)
    manager._factory = AuditFactory(meta=manager.metadata)
