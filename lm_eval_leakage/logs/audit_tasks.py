"""Which tasks of a run are audits, of what, and by which statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import looks_like_audit_line
from lm_eval_leakage.logs.runs import Run

FIRST_LINES = 20  # of which one must be whole for an audit to be known by its log
SUFFIX = re.compile(r"_(leakage|choice_confusion)(_[a-z_]+)?$")


def benchmark_of(audit: str) -> str:
    """`mmlu` of `mmlu_leakage_perm`, by the suffixes of our own audits; any other name stays. For what has no
    `audit_of` in its metadata: audits with a YAML of their own, lines of version 1, runs without a log."""
    return SUFFIX.sub("", audit)


def audits_of(run: Run) -> dict[str, Path | None]:
    """The tasks of a run that are audits, each with its log; None where the run has none."""
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    told = {task: run.logs.get(task) for task in run.results.get("results", {}) if statistics_of(run, task)}
    kept = {task: file for task, file in run.logs.items() if task in told or is_audit(task, file)}
    return {task: file for task, file in {**told, **kept}.items() if file is not None or task not in groups}


def statistics_of(run: Run, task: str) -> set[str]:
    """The statistics of an audit, by its configuration and the rows of its results; they are the names of its filters.
    Empty for any other task."""
    keys = [key.partition(",") for key in run.results.get("results", {}).get(task, {})]
    return {statistic for row, _, statistic in keys if row == "skipped"} | set(_pipelines(_config(run, task)))


def _config(run: Run, task: str) -> Mapping[str, Any]:
    found = (run.results.get("configs") or {}).get(task)
    return found if isinstance(found, Mapping) else {}


def _pipelines(config: Mapping[str, Any]) -> Iterator[str]:
    """Of a task's configuration, the filters that are this package's; `metadata` alone would not tell, since what is
    given by --metadata stands in that of every task."""
    for entry in _list(config.get("filter_list")):
        filters = _list(entry.get("filter")) if isinstance(entry, Mapping) else ()
        if any(isinstance(one, Mapping) and one.get("function") == "leakage" for one in filters):
            yield str(entry.get("name"))


def _list(found: object) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def benchmarks_of_groups(run: Run) -> dict[str, list[str]]:
    """Groups of audits as the groups of what was audited, with its members."""
    groups = run.results.get("group_subtasks") or {}
    names = {name: audited_task(run, name) for name in (*groups, *chain.from_iterable(groups.values()))}
    endings = {name.removeprefix(told) for name, told in names.items() if told and name.startswith(told)}

    def named(audit: str) -> str:
        ending = max((ending for ending in endings if ending and audit.endswith(ending)), key=len, default=None)
        return names[audit] or (benchmark_of(audit) if ending is None else audit.removesuffix(ending))

    return {named(group): [named(member) for member in members] for group, members in groups.items() if members}


def audited_task(run: Run, audit: str) -> str | None:
    """The task that an audit asks about, as its configuration has it; None where it does not say."""
    metadata = _config(run, audit).get("metadata")
    found = metadata.get("audit_of") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, str) and found else None


def is_audit(task: str, file: Path) -> bool:
    """Whether a log is that of an audit, by its first lines; an empty one by its name, which is all that is known."""
    try:
        with file.open("rb") as lines:
            first = list(islice(lines, FIRST_LINES))
    except OSError:  # its reader will say so
        return False
    return any(map(looks_like_audit_line, first)) if first else benchmark_of(task) != task


def with_audits(runs: Sequence[Run]) -> list[Run]:
    """The runs with their logs of audits alone."""
    kept = [replace(run, logs={task: file for task, file in audits_of(run).items() if file}) for run in runs]
    return [run for run in kept if run.logs]
