"""Makes lm_eval's task managers find audits by their names; the code that builds audits is imported only for one. And
finds misspelled names before lm_eval indexes its 14,000 tasks, and suggests the nearest ones.

Building the index takes seconds, reading the texts of the same YAML files a fraction of one. A name that occurs in
none of these texts is certainly unknown; a name that occurs somewhere is left to the index.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.registries import find_tasks
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, names_an_audit, split_name, suffixes
from lm_eval_leakage.texts import did_you_mean, nearest_names

if TYPE_CHECKING:
    from lm_eval_leakage.harness.seams.tasks import Factory

Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags
SINGLE = ("TASK", "PY_TASK")  # names of kinds; the others are GROUP and TAG


class AuditIndex(dict[str, Entry]):
    """The harness's index, which also finds the audits of everything that it lists, without listing them: 14,000 tasks
    with 13 audits each would be 180,000 entries, and `ls` would show them all."""

    def __missing__(self, name: str) -> Entry:
        found = self.base_of(name)
        if found is None:
            raise KeyError(name)
        base, _ = found
        return replace(base, name=name, kind=type(base.kind).PY_TASK, cfg=None, tags=frozenset())

    def base_of(self, name: object) -> tuple[Entry, str] | None:
        """The entry that is audited under a name that is not listed, and the audit's suffix: a task of the harness, or
        the data in one of our own YAMLs, which are in the index under the name of their first audit."""
        is_listed = super().__contains__(name)
        parts = split_name(name) if isinstance(name, str) and not is_listed else None
        if parts is None or split_name(parts[0]) is not None:  # an audit cannot be audited
            return None
        base, suffix = parts
        known = [one for one in (base, f"{base}_{FIRST_AUDIT}") if super(AuditIndex, self).__contains__(one)]
        return (self[known[0]], suffix) if known else None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.base_of(name) is not None

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


def find_audits(task_manager_class: type) -> None:
    """Makes every task manager find our tasks, and audits of all tasks that it knows."""

    def know_audits(manager: Any) -> None:
        from lm_eval_leakage.harness.seams.tasks import extend

        extend(manager, AuditIndex, _made)

    find_tasks(task_manager_class, know_audits)


def _made(factory: Factory, entry: Entry, overrides: Mapping[str, Any]) -> Any:
    """What a name denotes, as the harness builds it or as an audit of that."""
    given = factory.metadata
    if split_name(entry.name) is not None:
        from lm_eval_leakage.harness.seams.patching import hide_tracebacks
        from lm_eval_leakage.harness.tasks.metadata import warn_of_misspelled_keys

        hide_tracebacks()  # first, since the rest may raise UnsupportedHarness
        warn_of_misspelled_keys(frozenset(given))
    audited = factory.registry.base_of(entry.name)
    if audited is None:
        built = factory.of_harness(entry, overrides)
        if "data_files" in given:
            from lm_eval_leakage.harness.tasks.audit import refuse_one_file_for_audits

            refuse_one_file_for_audits(entry.name, built, given)
        return built
    from lm_eval_leakage.harness.tasks.audit import audit_of_yaml, build_audits

    metadata = {**given, **(overrides.get("metadata") or {})}
    base, suffix = audited
    if split_name(base.name) is not None:
        return audit_of_yaml(base.yaml_path, entry.name, suffix, metadata)
    return build_audits(factory.audited(base.name), suffix, metadata)


# ---------------------------------------------------------------------- misspelled names

INCLUDE = re.compile(r"""^include:[ \t]*["']?([^"'\s#]+)""", re.M)
GIVEN = re.compile(
    r"""^["']?(?:task|group|tag)["']?:[ \t]*(?:["']?([^"'\s#\[\{|>]+)|\[([^\]]*)\]|\n((?:[ \t]*- .+\n)+))""", re.M
)
LISTED = re.compile(r"""[^\s,"'\[\]:]+""")
COMMENT = re.compile(r"(^|\s)#.*")
CLOSE_SUFFIX = 0.75  # difflib ratio


def check_task_names(names: Iterable[str], include_path: str | Path | None = None) -> None:
    """Raises ValueError for names that no task, group, tag or audit has, and suggests the nearest ones. Takes less
    than a second; patterns, YAML files and folders are not checked here.

    include_path: a folder with additional tasks, or several, separated by colons
    """
    told = [sentence for name in names if (sentence := _refusal(name, include_path))]
    if told:
        raise ValueError(f"{'; '.join(told)} (`lm-eval-leakage ls tasks` lists all tasks)")


def task_texts(include_path: str | Path | None = None) -> Mapping[str, str]:
    """The texts of all YAML files that a task manager reads, and of the files that they include.

    Raises ValueError if a folder that the user names does not exist.
    """
    texts = _texts_of_harness()
    for folder in (Path(part).expanduser() for part in str(include_path or "").split(":") if part):
        if not folder.is_dir():
            raise ValueError(f"include_path is {str(folder)!r}, but there is no such folder; check the path")
        texts = texts | _texts(folder)
    return texts


@cache
def _texts_of_harness() -> dict[str, str]:
    found = find_spec("lm_eval")
    of_harness = {} if found is None or found.origin is None else _texts(Path(found.origin).parent / "tasks")
    return of_harness | _texts(task_configs_path())


def _texts(folder: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for place, _, files in os.walk(folder):
        texts |= {file: _text(file) for file in (f"{place}/{name}" for name in files if name.endswith("yaml"))}
    included = {str(Path(file).parent / name) for file, text in texts.items() for name in INCLUDE.findall(text)}
    return texts | {file: _text(file) for file in included - texts.keys()}


def names_in(texts: Mapping[str, str]) -> set[str]:
    """The names of tasks, groups and tags that are written in YAML texts, and of our data sets."""
    found = set(_names(texts.values()))
    return found | {name.removesuffix(f"_{FIRST_AUDIT}") for name in found}


def files_naming(name: str, texts: Mapping[str, str]) -> list[str]:
    """The files that name a task, group or tag like this."""
    return [file for file, text in texts.items() if name in text and name in set(_names([text]))]


def looks_like_an_audit(name: object) -> bool:
    """Whether a name is an audit's, or may be a misspelled one."""
    return isinstance(name, str) and (names_an_audit(name) or "leak" in name or "confusion" in name)


def _refusal(name: str, include_path: str | Path | None) -> str:
    """Why a name cannot be a task's; empty if it may be one."""
    parts = split_name(name)
    base = name if parts is None else parts[0]
    if set("*?[./") & set(name) or Path(name).is_dir() or name in suffixes():
        return ""
    texts = task_texts(include_path)
    written = re.compile(rf"(?<![\w-]){re.escape(base)}(?![\w-])")
    of_ours = f"{base}_{FIRST_AUDIT}"
    if any(base in text and (written.search(text) or of_ours in text) for text in texts.values()):
        return ""
    return f"{name!r} is not a task, group, tag or audit{did_you_mean(name, _candidates(name, names_in(texts)))}"


def _candidates(name: str, known: set[str]) -> Iterable[str]:
    """Names that may be meant: audits, if it ends like the name of one."""
    if split_name(name) is None and "leak" not in name and "confus" not in name:
        return known
    found = []
    for place in (mark.start() for mark in re.finditer("_", name)):
        for suffix in get_close_matches(name[place + 1 :], suffixes(), n=1, cutoff=CLOSE_SUFFIX):
            head = name[:place]
            found += [f"{base}_{suffix}" for base in ([head] if head in known else nearest_names(head, known))]
    return found or known


def _names(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for one, flow, block in GIVEN.findall(text):
            yield from [one] if one else LISTED.findall(COMMENT.sub("", flow or block.replace("- ", " ")))


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
