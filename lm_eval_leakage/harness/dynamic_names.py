"""Names of audits that no YAML lists: `<any task>_leakage_perm`, looked up when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry, Kind

from lm_eval_leakage.harness.audit import audits_of, split_name


@dataclass
class AuditEntry(Entry):  # type: ignore[misc]
    """The audit of what another entry stands for."""

    base: Entry | None = None
    suffix: str = ""


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also answers for the audits of what it lists. It does not list them."""

    def __missing__(self, name: str) -> AuditEntry:
        parts = split_name(name) if isinstance(name, str) else None
        if parts is None or not super().__contains__(parts[0]):
            raise KeyError(name)
        base, suffix = parts
        entry = self[base]
        return AuditEntry(name=name, kind=Kind.PY_TASK, yaml_path=entry.yaml_path, base=entry, suffix=suffix)

    def __contains__(self, name: object) -> bool:
        parts = split_name(name) if isinstance(name, str) else None
        return super().__contains__(name) or (parts is not None and super().__contains__(parts[0]))

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
        if not isinstance(entry, AuditEntry):
            return super().build(entry, overrides=overrides, registry=registry)
        base = super().build(entry.base, overrides=None, registry=registry)
        return audits_of(base, entry.suffix, self._meta | dict((overrides or {}).get("metadata") or {}))


def know_audits(manager: Any) -> None:
    """Have a task manager answer for the audits of all it knows."""
    manager._index = AuditIndex(manager._index)
    manager._factory = AuditFactory(meta=manager.metadata)
