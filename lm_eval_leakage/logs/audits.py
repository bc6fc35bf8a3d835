"""Recognises audits among the tasks of runs, reads the lines of their logs, and reports logs that are incomplete.

Every command reads audits through `lines_of_audits`, so that none mistakes a part of an audit for all of it.
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
from lm_eval_leakage.logs.run import Problem, Run, n_reported, sanitized
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.stats.pooling import SKIPPED

NO_ANSWER = re.compile(
    r"failed on it|others failed|^the (?:backend|server) "
)  # reasons that are not due to the question
FIRST_LINES = 20  # one of them must be complete for a log to be recognised as that of an audit
REMEDY = "copy the complete log here, or run the audit again and remove this one"
Places = Path | Sequence[Path]  # a folder, or files of runs


def lines_of_audits(runs: Sequence[Run], problems: list[Problem]) -> Iterator[tuple[str, AuditLine]]:
    """Yield the task and each line of every audit in one model's runs, oldest first.

    After the last line, what the logs lack is added to the problems.
    """
    audits = [_Audit(run, task, file) for run in runs for task, file in audit_logs_of(run).items()]
    for audit in audits:
        for line in with_repeated_rows(audit.lines(problems)):
            audit.add(line)
            yield audit.task, line
    for audit in audits:
        problems += audit.unanswered()
        if lacking := audit.lacking_in_words():
            is_replaced = any(other.holds_all_of(audit) for other in audits)
            what = f"{lacking}; {'a complete log of the same audit is used' if is_replaced else REMEDY}"
            problems.append(Problem(what, audit.file or audit.run.results_file, incomplete=not is_replaced))


def audits_of_one_model(
    folder: Places, problems: list[Problem], model: str | None = None
) -> tuple[str, Iterator[tuple[str, AuditLine]]]:
    """Return the name, without a revision, of the only model whose audits a folder holds, and the lines of its audits.

    model: the model whose audits to read; None for the only one

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
    """Return whether the runs may be of this model, whatever its revision.

    They may if one of them has no results file, since it does not record its model.
    """
    return any(
        run.results_file is None or sanitized(run.model.partition(" revision=")[0]) == sanitized(model) for run in runs
    )


@dataclass
class _Audit:
    """An audit of a run, with the questions that its log holds.

    questions: for each filter and detector, a digest of the verdict on each question, by the row's id and hash
    without_answer: the reasons why the model did not answer questions, by the hashes of their rows
    n_disputed: number of lines that contradict an earlier line about the same question
    """

    run: Run
    task: str
    file: Path | None
    questions: dict[tuple[str, str], dict[tuple[int | None, str], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    without_answer: dict[str, str] = field(default_factory=dict)
    n_disputed: int = 0

    def lines(self, problems: list[Problem]) -> Iterator[AuditLine]:
        """Return the lines of the log; none without a log."""
        if self.file is None:
            return iter(())
        return audit_lines(self.run.read_log(self.file, problems), self.task, problems, self.file)

    def add(self, line: AuditLine) -> None:
        """Take a line into the fields of the audit."""
        digest = hash((repr((line.flagged, line.pvalue, line.reason, line.values)), line.loglikelihoods.tobytes()))
        earlier = self.questions[line.filter, line.detector].setdefault((line.doc_id, line.question), digest)
        self.n_disputed += earlier != digest
        if line.reason and NO_ANSWER.search(line.reason):
            self.without_answer.setdefault(line.question, line.reason)

    def unanswered(self) -> Iterator[Problem]:
        """Yield a problem if the model failed on some questions, which a user may want to repeat."""
        if self.without_answer:
            n, reason = len(self.without_answer), next(iter(self.without_answer.values()))
            what = f"{n} questions of {self.task} were skipped, since they have no answer: {reason}"
            yield Problem(what, self.file or self.run.results_file)

    def lacking_in_words(self) -> str:
        """Return in words what is, or may be, missing from the log; empty if it is complete."""
        n = n_reported(self.run, self.task)
        if self.file is None:
            return f"has rows of {self.task}, an audit, whose samples log is missing (kept with --log_samples)"
        if n is None:
            held = max(map(len, self.questions.values()), default=0)
            return f"holds {held} questions of {self.task}, and no results file records how many it was to score"
        if self.n_disputed:
            return f"says different things of one question in {self.n_disputed} line(s) of {self.task}"
        held_by = dict.fromkeys(statistics_of(self.run, self.task), 0)
        for (statistic, _), questions in self.questions.items():
            held_by[statistic] = held_by.get(statistic, 0) + len(questions)
        short = [f"{held} of {n} by {statistic}" for statistic, held in sorted(held_by.items()) if held < n]
        if not short and (held_by or not n):
            return ""
        return f"lacks questions of {self.task}: it holds {', '.join(short) or f'0 of {n}'}"

    def holds_all_of(self, other: _Audit) -> bool:
        """Return whether this audit is complete and covers another one.

        It covers it if it has all questions in the other one's log or, if that has no lines, all of the benchmark.
        """
        if other is self or other.task != self.task or self.lacking_in_words():
            return False
        n = n_reported(self.run, self.task) or 0
        n_other = n_reported(other.run, other.task) or 0
        if n < n_other:
            return False
        if not other.questions:
            return n >= (n_reported(self.run, self.task, "original") or n + 1)
        held = {key: {name for _, name in questions} for key, questions in self.questions.items()}
        for key, questions in other.questions.items():
            if not {name for _, name in questions} <= held.get(key, set()):
                return False
        return True


# ---------------------------------------------------------------------- which tasks of a run are audits


def audit_logs_of(run: Run) -> dict[str, Path | None]:
    """Return the tasks of a run that are audits, each with its log, or None if the run kept none."""
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    in_results = {task: run.logs.get(task) for task in run.results.get("results", {}) if statistics_of(run, task)}
    logs = {task: file for task, file in in_results.items() if file is not None or task not in groups}
    for task, file in run.logs.items():
        if task in in_results or is_audit_log(task, file):
            logs[task] = file
    return logs


def statistics_of(run: Run, task: str) -> set[str]:
    """Return the names of an audit's filters, one per statistic, from its configuration and the rows of its results;
    empty for any other task."""
    keys = [key.partition(",") for key in run.results.get("results", {}).get(task, {})]
    return {statistic for row, _, statistic in keys if row == SKIPPED.name} | set(_filter_names(_config(run, task)))


def _config(run: Run, task: str) -> Mapping[str, Any]:
    """Return the configuration of a task in the results file; empty if it has none."""
    config: Mapping[str, Any] = (run.results.get("configs") or {}).get(task) or {}
    return config


def _filter_names(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of our filters in a task's configuration.

    Its `metadata` would not show an audit, since --metadata is copied into every task of a run.
    """
    for entry in _list(config.get("filter_list")):
        filters = _list(entry.get("filter")) if isinstance(entry, Mapping) else ()
        functions = [step.get("function") for step in filters if isinstance(step, Mapping)]
        if "leakage" in functions:
            yield str(entry.get("name"))


def _list(value: object) -> Sequence[Any]:
    """Return a value of a configuration if it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


def benchmarks_of_groups(run: Run) -> dict[str, list[str]]:
    """Return the groups of audits with their members, under the names of the audited groups and tasks."""
    groups = run.results.get("group_subtasks") or {}
    return {
        audited_task(run, group): [audited_task(run, member) for member in members]
        for group, members in groups.items()
        if members
    }


def audited_task(run: Run, audit: str) -> str:
    """Return the audited task according to the audit's configuration, else by the audit's name."""
    metadata = _config(run, audit).get("metadata")
    task = metadata.get("audit_of") if isinstance(metadata, Mapping) else None
    return str(task or benchmark_of(audit))


def is_audit_log(task: str, file: Path) -> bool:
    """Return whether a log is that of an audit: one of its first lines has our key, or it is empty and its name is
    that of an audit.

    The lines may be truncated. The key cannot occur within a text of a line, where quotation marks are escaped.
    """
    try:
        with file.open("rb") as lines:
            first = list(islice(lines, FIRST_LINES))
    except OSError:  # its reader will report it
        return False
    key = f'"{VERSION_KEY}"'.encode()
    return any(key in line for line in first) if first else benchmark_of(task) != task


def with_audits(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that have logs of audits, without their other logs."""
    with_audit_logs = []
    for run in runs:
        logs = {task: file for task, file in audit_logs_of(run).items() if file}
        if logs:
            with_audit_logs.append(replace(run, logs=logs))
    return with_audit_logs
