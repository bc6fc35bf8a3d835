"""Audits among runs: the lines of their logs, and whether the logs hold all that was asked.

Every command reads audits through `lines_of_audits`, so that none takes a part of an audit for the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audit_tasks import audits_of, statistics_of
from lm_eval_leakage.logs.line_reader import audit_lines
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.runs import Run, find_runs, json_lines, n_told, sanitized

REMEDY = "copy the whole log here, or run the audit again and take this one away"


def lines_of_audits(runs: Sequence[Run], problems: list[Problem]) -> Iterator[tuple[str, AuditLine]]:
    """Task and line of every audit in one model's runs, oldest first; then what is missing becomes problems."""
    audits = [_Audit(run, task, file) for run in runs for task, file in audits_of(run).items()]
    for audit in audits:
        if audit.file is not None:
            for line in audit_lines(json_lines(audit.file, problems), audit.task, problems, audit.file):
                audit.add(line)
                yield audit.task, line
    for audit in audits:
        if lacking := audit.lacking():
            made_up = any(other.holds_all_of(audit) for other in audits)
            what = f"{lacking}; a whole log of the audit is used" if made_up else f"{lacking}; {REMEDY}"
            problems.append(Problem(what, audit.file or audit.run.results_file, incomplete=not made_up))


def lines_of_one_model(
    folder: Path, problems: list[Problem], model: str | None = None
) -> Iterator[tuple[str, AuditLine]]:
    """The same of the one model whose audits a folder holds, or of `model` where its name is given.

    Raises ValueError where no audit is there, or only others' are, or those of several.
    """
    by_model: dict[str, list[Run]] = defaultdict(list)
    for run in find_runs([folder], problems):
        if audits_of(run):
            by_model[run.key].append(run)
    if not by_model:
        raise ValueError(f"{folder} holds no audit; run one with --log_samples and --output_path")
    names = ", ".join(repr(runs[0].model) for runs in by_model.values())
    if model is not None:
        by_model = {name: runs for name, runs in by_model.items() if _is_of(model, runs)}
        if not by_model:
            raise ValueError(
                f"{folder} holds audits of {names}, but the calibration is of {model!r}, whose scores are others; "
                "make one of that model with `lm-eval-leakage simulate`"
            )
    if len(by_model) > 1:
        raise ValueError(f"{folder} holds audits of {len(by_model)} models ({names}); name the folder of one")
    (runs,) = by_model.values()
    return lines_of_audits(runs, problems)


def _is_of(model: str, runs: Collection[Run]) -> bool:
    """Also where no results file is there to say otherwise; a calibration does not tell revisions apart."""
    return any(
        run.results_file is None or sanitized(run.model.partition(" revision=")[0]) == sanitized(model) for run in runs
    )


@dataclass
class _Audit:
    """One audit of one run. `found`: its questions by statistic and detector, each as the id and hash of its row."""

    run: Run
    task: str
    file: Path | None
    found: dict[tuple[str, str], set[tuple[int | None, str]]] = field(default_factory=lambda: defaultdict(set))

    def add(self, line: AuditLine) -> None:
        self.found[line.filter, line.detector].add((line.doc_id, line.question))

    def lacking(self) -> str:
        """What of it is missing, or may be, in words; empty where it is whole."""
        told = n_told(self.run, self.task)
        if self.file is None:
            return f"has rows of {self.task}, an audit, whose samples log is missing (kept with --log_samples)"
        if told is None:
            held = max(map(len, self.found.values()), default=0)
            return f"holds {held} questions of {self.task}, and no results file says how many it asked"
        held_by = dict.fromkeys(statistics_of(self.run, self.task), 0)
        for (statistic, _), questions in self.found.items():
            held_by[statistic] = held_by.get(statistic, 0) + len(questions)
        short = [f"{n} of {told} by {statistic}" for statistic, n in sorted(held_by.items()) if n < told]
        if not short and (held_by or not told):
            return ""
        return f"lacks questions of {self.task}: it holds {', '.join(short) or f'0 of {told}'}"

    def holds_all_of(self, other: _Audit) -> bool:
        """Whether it is whole and asked all that `other` did, as far as that can be known: the same questions and
        more, or the whole benchmark."""
        if other is self or other.task != self.task or self.lacking():
            return False
        told, told_other = n_told(self.run, self.task) or 0, n_told(other.run, other.task) or 0
        if told < told_other:
            return False
        if not other.found:
            return told >= (n_told(self.run, self.task, "original") or told + 1)
        mine = {key: {name for _, name in questions} for key, questions in self.found.items()}
        return all({name for _, name in own} <= mine.get(key, set()) for key, own in other.found.items())
