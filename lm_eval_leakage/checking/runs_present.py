"""Which questions of which tasks a model has answered already, in runs and audits on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lm_eval_leakage.harness.running.saved_run import NamedModel
from lm_eval_leakage.harness.running.task_shelf import PlacedRow
from lm_eval_leakage.harness.tasks.audit_suffixes import FIRST_AUDIT, split_name
from lm_eval_leakage.logs.audit_line import AuditLine, content_of
from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.run import Run, sanitized
from lm_eval_leakage.logs.runs import OF_IDENTITY, find_runs
from lm_eval_leakage.results.answered import chosen_runs
from lm_eval_leakage.results.data_verdict import EXACT

MODEL_DEFAULTS = (None, "", "main")


@dataclass(frozen=True)
class PresentRuns:
    """One model's runs.

    answered: hashes of the answered questions, by task; audited: those of audited ones, by the audit's suffix
    files: the results files
    folders: where the newest run of a task or suffix is
    """

    answered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    audited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)

    def has_answers(self, rows: Iterable[PlacedRow]) -> bool:
        """Whether each of these rows has an answer; False for no rows."""
        found = [_is_among(row, self.answered.get(row.task, frozenset())) for row in rows]
        return bool(found) and all(found)

    def has_audits(self, suffix: str, rows: Iterable[PlacedRow]) -> bool:
        found = [_is_among(row, self.audited.get(suffix, frozenset())) for row in rows]
        return bool(found) and all(found)

    def among(self, rows: Sequence[PlacedRow], audits: Sequence[str] = (FIRST_AUDIT,)) -> list[PlacedRow]:
        """The rows that were answered and audited; if there are none, those that were either; else none."""
        answered = [row for row in rows if _is_among(row, self.answered.get(row.task, frozenset()))]
        asked = frozenset(name for suffix in audits for name in self.audited.get(suffix, ()))
        both = [row for row in answered if _is_among(row, asked)]
        return both or answered or [row for row in rows if _is_among(row, asked)]


def _is_among(row: PlacedRow, hashes: frozenset[str]) -> bool:
    return row.doc_hash in hashes or bool(row.content and row.content in hashes)


def name_among_runs(who: NamedModel) -> str:
    """A model's name with its revision, as `logs.runs` makes it."""
    told = [f"{key}={who.model_args[key]}" for key in OF_IDENTITY if who.model_args.get(key) not in MODEL_DEFAULTS]
    return " ".join([who.name, *told])


def model_key(who: NamedModel) -> str:
    """A model's key among runs."""
    return sanitized(name_among_runs(who))


def present_runs(places: Iterable[Path], key: str, *, needs_control: bool = True) -> PresentRuns:
    """The complete runs of the model with this key; nothing if there are none.

    needs_control: whether an audit of written orders counts only with the control form or a reference
    """
    problems: list[Problem] = []
    runs = [run for run in _runs(places, problems) if run.key == key and run.results_file is not None]
    return _present(runs, problems, needs_control)


def models_among(places: Iterable[Path]) -> list[str]:
    """The models whose runs are in these folders."""
    return list(dict.fromkeys(run.model for run in _runs(places, [])))


def present_references(folder: Path, key: str) -> PresentRuns:
    """The audits of all models in a folder but that with this key."""
    problems: list[Problem] = []
    return _present([run for run in _runs([folder], problems) if run.key != key], problems, False)


def _runs(places: Iterable[Path], problems: list[Problem]) -> list[Run]:
    there = [place for place in places if place.exists()]
    try:
        return find_runs(there, problems) if there else []
    except ValueError:  # a folder without a run
        return []


def _present(runs: Sequence[Run], problems: list[Problem], needs_control: bool) -> PresentRuns:
    answered: dict[str, set[str]] = defaultdict(set)
    audited: dict[str, set[str]] = defaultdict(set)
    folders: dict[str, Path] = {}
    for one in chosen_runs(runs, problems):
        for answer in one.answers(problems):
            answered[one.task] |= {answer.doc_hash, answer.content} - {""}
            folders[one.task] = _folder(one.run)
    for run in runs:
        lost: list[Problem] = []
        lines = list(lines_of_audits([run], lost))
        problems += lost
        for task, line in [] if any(problem.incomplete for problem in lost) else lines:  # else it is run again
            suffix = (split_name(task) or ("", task))[1]
            if suffix != FIRST_AUDIT or _says_enough(line, needs_control):
                audited[suffix] |= {line.question, content_of(line.doc)[1]} - {""}
                folders[suffix] = _folder(run)
    return PresentRuns(
        {task: frozenset(own) for task, own in answered.items()},
        {suffix: frozenset(own) for suffix, own in audited.items()},
        tuple(file for run in runs for file in run.results_files),
        folders,
    )


def _says_enough(line: AuditLine, needs_control: bool) -> bool:
    """Whether a verdict can be computed from an audit of option orders."""
    if line.published_orders is None:
        return line.reason is not None
    is_compared = bool(line.control or line.reference) or line.published_orders in EXACT
    return is_compared or line.reason is not None or not needs_control


def _folder(run: Run) -> Path:
    return Path() if run.results_file is None else run.results_file.parent
