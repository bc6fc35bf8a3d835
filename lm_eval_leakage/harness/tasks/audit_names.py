"""Makes lm_eval's task managers find audits by their names, and suggests the nearest names for a misspelled one. The
code that builds audits is imported only where one is built."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage.harness.seams.registries import find_tasks
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, names_an_audit, split_name, suffixes
from lm_eval_leakage.texts import did_you_mean, nearest_names

if TYPE_CHECKING:
    from lm_eval_leakage.harness.seams.tasks import Factory

Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags
SINGLE = ("TASK", "PY_TASK")  # names of kinds; the others are GROUP and TAG
CLOSE_SUFFIX = 0.75  # difflib ratio


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also finds the audits of everything that it lists, without listing them: 14,000 tasks
    with 13 audits each would be 180,000 entries, and `ls` would show them all."""

    def __missing__(self, name: str) -> Entry:
        audited = self.base_of(name)
        if audited is None:
            raise KeyError(name)
        base, _ = audited
        return replace(base, name=name, kind=type(base.kind).PY_TASK, cfg=None, tags=frozenset())

    def base_of(self, name: object) -> tuple[Entry, str] | None:
        """Return the entry that is audited under a name that is not listed, and the audit's suffix: a task of the
        harness, or the data in one of our own YAMLs, which are in the index under the name of their first audit."""
        is_listed = super().__contains__(name)
        parts = split_name(name) if isinstance(name, str) and not is_listed else None
        if parts is None or split_name(parts[0]) is not None:  # an audit cannot be audited
            return None
        base, suffix = parts
        listed = [
            candidate
            for candidate in (base, f"{base}_{FIRST_AUDIT}")
            if super(AuditIndex, self).__contains__(candidate)
        ]
        return (self[listed[0]], suffix) if listed else None

    def lists(self, name: str) -> bool:
        """Return whether a YAML gives something this name."""
        return super().__contains__(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.base_of(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict.get ignores __missing__)

    def audits_like(self, pattern: str) -> list[str]:
        """Return the audits that match a name or pattern; a pattern matches only single tasks, since groups repeat
        them."""
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


def find_audits(task_manager_class: type) -> None:
    """Makes every task manager find our tasks, and audits of all tasks that it knows."""

    def know_audits(manager: Any) -> None:
        from lm_eval_leakage.harness.seams.tasks import extend

        extend(manager, AuditIndex, _made)

    find_tasks(task_manager_class, know_audits)


def _made(factory: Factory, entry: Entry, overrides: Mapping[str, Any]) -> Any:
    """Return what a name denotes, as the harness builds it or as an audit of that."""
    given = factory.metadata
    if split_name(entry.name) is not None:
        from lm_eval_leakage.harness.seams.refusals import hide_tracebacks
        from lm_eval_leakage.harness.tasks.metadata import warn_of_misspelled_keys

        hide_tracebacks()  # first, since the rest may raise UnsupportedHarness
        warn_of_misspelled_keys(frozenset(given))
    audited = factory.registry.base_of(entry.name)
    if audited is None:
        built = factory.of_harness(entry, overrides)
        if "data_files" in given:
            from lm_eval_leakage.harness.tasks.audit import refuse_data_files_of_group

            refuse_data_files_of_group(entry.name, built, given)
        return built
    from lm_eval_leakage.harness.tasks.audit import audit_of_yaml, build_audits

    metadata = {**given, **(overrides.get("metadata") or {})}
    base, suffix = audited
    if split_name(base.name) is not None:
        return audit_of_yaml(base.yaml_path, entry.name, suffix, metadata)
    return build_audits(factory.audited(base.name), suffix, metadata)


def check_task_names(names: Iterable[str], index: Mapping[str, Entry]) -> None:
    """Raise ValueError for names that no task, group, tag or audit has, and suggest the nearest ones. Patterns, YAML
    files and folders are not checked.

    index: of all tasks, as a task manager has it
    """
    refusals = []
    for name in names:
        if not _is_examined_later(name) and name not in index and f"{name}_{FIRST_AUDIT}" not in index:
            nearest = did_you_mean(name, _candidates(name, {*index, *_data_sets(index)}))
            refusals.append(f"{name!r} is not a task, group, tag or audit{nearest}")
    if refusals:
        raise ValueError(f"{'; '.join(refusals)} (`lm-eval-leakage ls tasks` lists all tasks)")


def looks_like_an_audit(name: object) -> bool:
    """Return whether a name is an audit's, or may be a misspelled one."""
    return isinstance(name, str) and (names_an_audit(name) or "leak" in name or "confusion" in name)


def _is_examined_later(name: str) -> bool:
    """Return whether a name is a pattern, a path, or an audit of a given file."""
    return bool(set("*?[./") & set(name)) or Path(name).is_dir() or name in suffixes()


def _data_sets(index: Iterable[str]) -> Iterator[str]:
    """Yield the names of our own data sets, which are listed by the names of their first audits."""
    return (name.removesuffix(f"_{FIRST_AUDIT}") for name in index)


def _candidates(name: str, names: set[str]) -> Iterable[str]:
    """Return the names that may be meant: audits, if it ends like the name of one."""
    if split_name(name) is None and "leak" not in name and "confus" not in name:
        return names
    audits = []
    for place in (mark.start() for mark in re.finditer("_", name)):
        head = name[:place]
        for suffix in get_close_matches(name[place + 1 :], suffixes(), n=1, cutoff=CLOSE_SUFFIX):
            audits += [f"{base}_{suffix}" for base in ([head] if head in names else nearest_names(head, names))]
    return audits or names
