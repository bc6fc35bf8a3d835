"""Audits among runs: which tasks are audits, the lines of their logs, and whether the logs hold all that was asked.

Every command reads audits through `lines_of_audits`, so that none mistakes part of an audit for all of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import VERSION_KEY, AuditLine, audit_lines, benchmark_of, with_repeated_rows
from lm_eval_leakage.logs.run import Problem, Run, n_told, sanitized
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.stats.pooling import SKIPPED

NO_ANSWER = re.compile(r"failed on it|others failed|^the (?:backend|server) ")  # reasons that lie in no question
FIRST_LINES = 20  # one of them must be complete for a log to be recognised as that of an audit
REMEDY = "copy the complete log here, or run the audit again and remove this one"


def lines_of_audits(runs: Sequence[Run], problems: list[Problem]) -> Iterator[tuple[str, AuditLine]]:
    """Task and line of every audit in one model's runs, oldest first; missing lines become problems."""
    audits = [_Audit(run, task, file) for run in runs for task, file in audit_logs_of(run).items()]
    for audit in audits:
        for line in with_repeated_rows(audit.lines(problems)):
            audit.add(line)
            yield audit.task, line
    for audit in audits:
        problems += audit.unanswered()
        if lacking := audit.lacking():
            made_up = any(other.holds_all_of(audit) for other in audits)
            what = f"{lacking}; {'a complete log of the same audit is used' if made_up else REMEDY}"
            problems.append(Problem(what, audit.file or audit.run.results_file, incomplete=not made_up))


Places = Path | Sequence[Path]  # a folder, or files of runs


def audits_of_one_model(
    folder: Places, problems: list[Problem], model: str | None = None
) -> tuple[str, Iterator[tuple[str, AuditLine]]]:
    """The name, without a revision, of the one model whose audits a folder holds, or of `model`, and the lines of its
    audits as above.

    Raises ValueError if the folder holds no audit, only those of other models, or those of several models.
    """
    by_model: dict[str, list[Run]] = defaultdict(list)
    for run in find_runs([folder] if isinstance(folder, Path) else folder, problems):
        if audit_logs_of(run):
            by_model[run.key].append(run)
    if not by_model:
        raise ValueError(f"{folder} holds no audit; run one with --log_samples and --output_path")
    names = ", ".join(repr(runs[0].model) for runs in by_model.values())
    if model is not None:
        by_model = {name: runs for name, runs in by_model.items() if _is_of(model, runs)}
        if not by_model:
            raise ValueError(
                f"{folder} holds audits of {names}, but the benchmark was audited with {model!r}; both must be audits "
                "of one model, so audit these questions with it, too"
            )
    if len(by_model) > 1:
        raise ValueError(f"{folder} holds audits of {len(by_model)} models ({names}); name the folder of one")
    (runs,) = by_model.values()
    return runs[0].model.partition(" revision=")[0], lines_of_audits(runs, problems)


def _is_of(model: str, runs: Collection[Run]) -> bool:
    """Whether one of the runs may be of this model, whatever its revision: a run without a results file may be."""
    return any(
        run.results_file is None or sanitized(run.model.partition(" revision=")[0]) == sanitized(model) for run in runs
    )


@dataclass
class _Audit:
    """One audit of one run.

    found: its questions by statistic and detector, each as the id and hash of its row, with a digest of what was found
    without_answer: why the model did not answer a question, by the hash of its row
    n_disputed: lines that say something else of a question than an earlier line
    """

    run: Run
    task: str
    file: Path | None
    found: dict[tuple[str, str], dict[tuple[int | None, str], int]] = field(default_factory=lambda: defaultdict(dict))
    without_answer: dict[str, str] = field(default_factory=dict)
    n_disputed: int = 0

    def lines(self, problems: list[Problem]) -> Iterator[AuditLine]:
        if self.file is None:
            return iter(())
        return audit_lines(self.run.read_log(self.file, problems), self.task, problems, self.file)

    def add(self, line: AuditLine) -> None:
        told = hash((repr((line.flagged, line.pvalue, line.reason, line.values)), line.loglikelihoods.tobytes()))
        earlier = self.found[line.filter, line.detector].setdefault((line.doc_id, line.question), told)
        self.n_disputed += earlier != told
        if line.reason and NO_ANSWER.search(line.reason):
            self.without_answer.setdefault(line.question, line.reason)

    def unanswered(self) -> Iterator[Problem]:
        """That the model failed on some of its questions, which a user may want to repeat."""
        if self.without_answer:
            n, reason = len(self.without_answer), next(iter(self.without_answer.values()))
            what = f"{n} questions of {self.task} were skipped, since they have no answer: {reason}"
            yield Problem(what, self.file or self.run.results_file)

    def lacking(self) -> str:
        """What is, or may be, missing from it, in words; empty if it is complete."""
        told = n_told(self.run, self.task)
        if self.file is None:
            return f"has rows of {self.task}, an audit, whose samples log is missing (kept with --log_samples)"
        if told is None:
            held = max(map(len, self.found.values()), default=0)
            return f"holds {held} questions of {self.task}, and no results file says how many it asked"
        if self.n_disputed:
            return f"says different things of one question in {self.n_disputed} line(s) of {self.task}"
        held_by = dict.fromkeys(statistics_of(self.run, self.task), 0)
        for (statistic, _), questions in self.found.items():
            held_by[statistic] = held_by.get(statistic, 0) + len(questions)
        short = [f"{n} of {told} by {statistic}" for statistic, n in sorted(held_by.items()) if n < told]
        if not short and (held_by or not told):
            return ""
        return f"lacks questions of {self.task}: it holds {', '.join(short) or f'0 of {told}'}"

    def holds_all_of(self, other: _Audit) -> bool:
        """Whether it is complete and asked everything that `other` did, as far as can be known: all of its questions,
        or the whole benchmark."""
        if other is self or other.task != self.task or self.lacking():
            return False
        told = n_told(self.run, self.task) or 0
        told_other = n_told(other.run, other.task) or 0
        if told < told_other:
            return False
        if not other.found:
            return told >= (n_told(self.run, self.task, "original") or told + 1)
        mine = {key: {name for _, name in questions} for key, questions in self.found.items()}
        return all({name for _, name in own} <= mine.get(key, set()) for key, own in other.found.items())


# ---------------------------------------------------------------------- which tasks of a run are audits


def audit_logs_of(run: Run) -> dict[str, Path | None]:
    """The tasks of a run that are audits, each with its log, or None if the run kept none."""
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    told = {task: run.logs.get(task) for task in run.results.get("results", {}) if statistics_of(run, task)}
    kept = {task: file for task, file in run.logs.items() if task in told or is_audit_log(task, file)}
    return {task: file for task, file in {**told, **kept}.items() if file is not None or task not in groups}


def statistics_of(run: Run, task: str) -> set[str]:
    """The names of an audit's filters, one per statistic, from its configuration and the rows of its results. Empty
    for any other task."""
    keys = [key.partition(",") for key in run.results.get("results", {}).get(task, {})]
    return {statistic for row, _, statistic in keys if row == SKIPPED.name} | set(_pipelines(_config(run, task)))


def _config(run: Run, task: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (run.results.get("configs") or {}).get(task) or {}
    return found


def _pipelines(config: Mapping[str, Any]) -> Iterator[str]:
    """Names of the filters in a task's configuration that are ours. `metadata` alone would not do, since --metadata
    is copied into every task of a run."""
    for entry in _list(config.get("filter_list")):
        filters = _list(entry.get("filter")) if isinstance(entry, Mapping) else ()
        if any(isinstance(one, Mapping) and one.get("function") == "leakage" for one in filters):
            yield str(entry.get("name"))


def _list(found: object) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def benchmarks_of_groups(run: Run) -> dict[str, list[str]]:
    """Groups of audits, renamed to the groups of benchmarks that they audit, with their members."""
    groups = run.results.get("group_subtasks") or {}
    return {
        audited_task(run, group): [audited_task(run, member) for member in members]
        for group, members in groups.items()
        if members
    }


def audited_task(run: Run, audit: str) -> str:
    """The audited task according to the audit's configuration, else by the audit's name."""
    metadata = _config(run, audit).get("metadata")
    told = metadata.get("audit_of") if isinstance(metadata, Mapping) else None
    return str(told or benchmark_of(audit))


def is_audit_log(task: str, file: Path) -> bool:
    """Whether a log is that of an audit, judged by its first lines, which may be truncated, or by its name if it is
    empty. Quotation marks within the texts of a line are escaped."""
    try:
        with file.open("rb") as lines:
            first = list(islice(lines, FIRST_LINES))
    except OSError:  # its reader will say so
        return False
    key = f'"{VERSION_KEY}"'.encode()
    return any(key in line for line in first) if first else benchmark_of(task) != task


def with_audits(runs: Sequence[Run]) -> list[Run]:
    """The runs that have audits, with only the logs of those."""
    kept = [replace(run, logs={task: file for task, file in audit_logs_of(run).items() if file}) for run in runs]
    return [run for run in kept if run.logs]
