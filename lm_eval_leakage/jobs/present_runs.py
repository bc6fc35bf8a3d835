"""The runs of a model that exist already, and whether they asked what a unit is to ask.

A run counts as one of this model only if it says so: by the identity that was written into it (weights, arguments,
chat template), not by the model's name. Runs that the user names (`--runs`) may say nothing about it.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from lm_eval_leakage.detectors.option_orders import EVERY, LAYOUT_SETS
from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.harness.task_shelf import LoadedTask, PlacedRow
from lm_eval_leakage.harness.tasks.data import row_names
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, split_name
from lm_eval_leakage.jobs.units import RUN
from lm_eval_leakage.logs.audit_line import AuditLine, content_of
from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.model_settings import contradiction
from lm_eval_leakage.logs.run import (
    IDENTITY,
    Problem,
    Run,
    identity_differences,
    model_named,
    same_model,
    sanitized,
)
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.questions.families import QuestionsInPrompts
from lm_eval_leakage.questions.rendering import AUDITED
from lm_eval_leakage.records import Question
from lm_eval_leakage.registry import without_reference
from lm_eval_leakage.results.published_orders import is_exact
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.results.task_runs import TaskRun, choose_runs

Identity = Mapping[str, str]
NamesByKind = Mapping[str, frozenset[str]]  # of questions or detectors, by RUN or the suffix of an audit


def _names(kind: str, row: PlacedRow) -> list[str]:
    """Return the names by which a row is recognised in runs.

    An answer is recognised by its task and row, since a row of the same text may have another right answer. What an
    audit asked is recognised by row or text.
    """
    if kind == RUN:
        return [f"{row.task} {row.doc_hash}"]
    return [name for name in (row.doc_hash, row.content) if name]


@dataclass(frozen=True)
class PresentRun:
    """A run that is complete.

    names: of the questions that it answered
    data: digests of all rows of its tasks; empty for runs of others
    detectors: by which its audits judged, by suffix
    questions: those whose data rows it does not record, as its prompts word them
    """

    names: NamesByKind
    data: Mapping[str, str]
    files: tuple[Path, ...]
    detectors: NamesByKind
    questions: tuple[Question, ...] = ()

    def is_of(self, kind: str, rows: Sequence[PlacedRow], loaded: LoadedTask) -> bool:
        """Return whether it asked exactly these rows, of tasks with the same rows, with the same parameters."""
        if kind != RUN and not self.detectors.get(kind, frozenset()) <= _detectors(loaded):
            return False
        if not rows or any(self.data.get(name) != loaded.digest(name) for name in {row.task for row in rows}):
            return False
        names = [_names(kind, row) for row in rows]
        return {first for first, *_ in names} <= self.names.get(kind, frozenset()) <= {*chain.from_iterable(names)}


@dataclass(frozen=True)
class PresentRuns:
    """One model's runs, oldest first.

    others: how other models of the same name differ from it whose runs are there, too, in words
    n_unknown: number of runs of this name that do not say which model they are of
    """

    runs: tuple[PresentRun, ...] = ()
    others: tuple[str, ...] = ()
    n_unknown: int = 0

    @property
    def layouts(self) -> str:
        """The layouts of the newest audit of option orders: a reference is only compared in the same ones."""
        names = [name for run in self.runs for name in sorted(run.detectors.get(FIRST_AUDIT, ()))]
        if not names:
            return EVERY
        return next((layouts for layouts in LAYOUT_SETS if f"layouts={layouts}" in names[-1]), AUDITED)

    def known_in(self, loaded: LoadedTask) -> PresentRuns:
        """Return the runs with their questions of unrecorded rows searched in this task.

        A group is not searched, since such a run does not name its members.
        """
        if len(loaded.leaves) != 1 or not any(run.questions for run in self.runs):
            return self
        ((task, built),) = loaded.leaves.items()
        read = ((content_of(doc)[0], row_names(doc)[0]) for doc in built.eval_docs)
        index = QuestionsInPrompts(
            (question.stem, question.options, f"{task} {doc_hash}") for question, doc_hash in read if question
        )

        def with_names(run: PresentRun) -> PresentRun:
            names = [index.find(question.stem, question.options) for question in run.questions]
            return replace(run, names={**run.names, RUN: run.names[RUN].union(filter(None, names))})

        return replace(self, runs=tuple(map(with_names, self.runs)))

    def with_any(self, kind: str, rows: Sequence[PlacedRow]) -> tuple[Path, ...]:
        """Return files of the runs that answered any of these rows, or that have any such audit.

        A verdict is adjusted for those of other benchmarks, too.
        """
        names = {name for row in rows for name in _names(kind, row)}
        files: list[Path] = []
        for run in self.runs:
            if kind in run.names and (kind != RUN or names & run.names[RUN]):
                files += run.files
        return tuple(files)

    def exact(self, kind: str, rows: Sequence[PlacedRow], loaded: LoadedTask) -> tuple[Path, ...]:
        """Return the files of the newest run that asked exactly these rows as the task asks; empty for none."""
        return next((run.files for run in reversed(self.runs) if run.is_of(kind, rows, loaded)), ())

    def present(self, kind: str, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """Return those of the rows that a run or audit of this kind has."""
        names = frozenset[str]().union(*(run.names.get(kind, ()) for run in self.runs))
        return [row for row in rows if not names.isdisjoint(_names(kind, row))]

    def has_all(self, kind: str, rows: Sequence[PlacedRow]) -> bool:
        return bool(rows) and len(self.present(kind, rows)) == len(rows)

    def among(self, rows: Sequence[PlacedRow]) -> list[PlacedRow]:
        """Return the rows that were answered and audited; if there are none, those that were either; else none."""
        answered = self.present(RUN, rows)
        return self.present(FIRST_AUDIT, answered) or answered or self.present(FIRST_AUDIT, rows)


def name_among_runs(who: NamedModel) -> str:
    """Return a model's name with its revision, as `logs.runs` makes it."""
    return model_named(who.name, who.model_args)


def present_runs(
    places: Iterable[Path],
    who: NamedModel,
    *,
    by_name: bool = False,
    needs_control: bool = True,
    is_same: Callable[[Identity, Identity], bool] = operator.eq,
) -> PresentRuns:
    """Return the complete runs of this model as it is now.

    by_name: whether runs count that do not say which model of this name they are of
    needs_control: whether an audit of written orders counts only with the control forms or a reference
    is_same: whether the identity that a run records is the present one
    """
    problems: list[Problem] = []
    runs = [run for run in _runs(places, problems) if run.results_file is not None]
    if not runs:
        return PresentRuns()
    identity, key = who.identity, sanitized(name_among_runs(who))
    model_run = run_of(who)
    without_identity = [run for run in runs if not run.identity]
    plain = {run.results_file: contradiction(run, model_run) for run in without_identity if run.key == key}
    unknown = [run for run in runs if plain.get(run.results_file) == ""]
    same, others = list[Run](), list[Run]()
    for run in runs:
        if is_same(run.identity, identity) or (by_name and run in unknown):
            same.append(run)
        elif run.identity and sanitized(run.named) == key:
            others.append(run)
    differences = [*(identity_differences(run.identity, identity) for run in others), *plain.values()]
    reasons = dict.fromkeys(filter(None, differences))
    return PresentRuns(_present(same, problems, needs_control), tuple(reasons), len(unknown))


def present_references(folder: Path, who: NamedModel) -> PresentRuns:
    """Return the audits of all models in a folder but this one."""
    problems, model_run = list[Problem](), run_of(who)
    return PresentRuns(
        _present([run for run in _runs([folder], problems) if not same_model(run, model_run)], problems, False)
    )


def models_in(places: Iterable[Path]) -> list[str]:
    """Return the names of the models whose runs are in folders."""
    return list(dict.fromkeys(run.model for run in _runs(places, [])))


def run_of(who: NamedModel) -> Run:
    """Return a run of the model that has asked nothing, to compare others with."""
    config = {"model": who.model, "model_args": dict(who.model_args)}
    return Run(name_among_runs(who), "", {IDENTITY: who.identity, "config": config})


def _runs(places: Iterable[Path], problems: list[Problem]) -> list[Run]:
    there = [place for place in places if place.exists()]
    try:
        return find_runs(there, problems) if there else []
    except ValueError:  # a folder without a run
        return []


def _present(runs: Sequence[Run], problems: list[Problem], needs_control: bool) -> tuple[PresentRun, ...]:
    present = []
    for run in runs:
        audited, detectors = _audited(run, needs_control)
        answered = _answered(run, problems)
        rows = frozenset(f"{task_run.task} {answer.doc_hash}" for task_run, answer in answered if answer.doc_hash)
        questions = tuple(answer.question for _, answer in answered if answer.question is not None)
        files = () if run.results_file is None else (run.results_file,)
        present.append(PresentRun({**audited, RUN: rows}, run.data, files, detectors, questions))
    return tuple(present)


def _detectors(loaded: LoadedTask) -> frozenset[str]:
    """Return the detectors of an audit, without references: a task's reference is known only where its log is read."""
    return frozenset(without_reference(name) for task in loaded.leaves.values() for name in task.detectors.values())


def _answered(run: Run, problems: list[Problem]) -> list[tuple[TaskRun, AnnotatedQuestion]]:
    answered: list[tuple[TaskRun, AnnotatedQuestion]] = []
    for task_run in choose_runs([run], problems):
        answers = task_run.read_answers(problems)
        if len({answer.doc_id for answer in answers}) >= task_run.n_questions:
            answered += [(task_run, answer) for answer in answers]
    return answered


def _audited(run: Run, needs_control: bool) -> tuple[NamesByKind, NamesByKind]:
    """Return names of the questions that were asked, and detectors.

    Nothing is returned if lines are missing: then the audit is run again.
    """
    lost: list[Problem] = []
    lines = list(lines_of_audits([run], lost))
    by_suffix: dict[str, list[AuditLine]] = defaultdict(list)
    for task, line in [] if any(problem.incomplete for problem in lost) else lines:
        by_suffix[(split_name(task) or ("", task))[1]].append(line)
    names, detectors = dict[str, frozenset[str]](), dict[str, frozenset[str]]()
    for suffix, audit in by_suffix.items():
        if suffix == FIRST_AUDIT and not _says_enough(audit, needs_control):
            continue
        every = [name for line in audit for name in (line.question, content_of(line.doc)[1])]
        names[suffix] = frozenset(filter(None, every))
        detectors[suffix] = frozenset(without_reference(line.detector) for line in audit)
    return names, detectors


def _says_enough(lines: Sequence[AuditLine], needs_control: bool) -> bool:
    """Return whether a verdict can be computed from an audit of option orders.

    Questions with a natural order, or with one order that could be compared, are never asked in the control forms.
    """
    audits = [line.orders for line in lines if line.orders is not None]
    open_ones = [line for line in lines if line.reason is None and not line.guards]
    tested = [line for line in open_ones if line.orders is None or len(line.orders.compared) != 1]
    documented = [line for line in lines if line.published_orders is not None]
    is_compared = any(is_exact(line.published_orders) for line in lines)
    is_compared |= any(audit.control or audit.reference for audit in audits)
    return bool(documented) and (is_compared or not tested or not needs_control)
