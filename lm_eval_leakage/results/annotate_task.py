"""Joins one model's runs and audits of one task or group, whatever else their files hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from lm_eval_leakage.logs.audits import audit_logs_of, audited_task
from lm_eval_leakage.logs.contents import separated_by_rows
from lm_eval_leakage.logs.run import Problem, Run, leaves
from lm_eval_leakage.logs.runs import find_runs, without_tasks
from lm_eval_leakage.results.annotate import annotation_of, annotation_of_model, named_as_benchmarks
from lm_eval_leakage.results.references import Reference
from lm_eval_leakage.results.result_types import Annotation
from lm_eval_leakage.results.rows import task_of
from lm_eval_leakage.results.unseen_questions import UnseenQuestions


def annotate_task(
    model: str,
    task: str,
    members: Collection[str],
    files: Sequence[Path],
    *,
    references: Sequence[Reference] = (),
    unseen: UnseenQuestions | None = None,
) -> Annotation:
    """Join one model's runs and audits of one task or group.

    model: the name that all of these runs get, whatever they call it
    members: the tasks in a group; of a task, itself
    files: results files of the runs. Other tasks in them are left out, and so are groups that `task` is in: it is
        counted alone. A group whose members were run one by one is counted as one.
    references: what other models' runs say
    unseen: what this model's audits of unseen questions say

    Raises ValueError if the files hold no run.
    """
    problems: list[Problem] = []
    runs = _about([replace(run, model=model) for run in find_runs(files, problems)], task, members)
    if not runs:
        return Annotation(model, "", (), (), (), problems=tuple(problems))
    annotation = named_as_benchmarks(annotation_of(runs, references, unseen=unseen))
    names = {task, *members, *annotation.groups}
    questions = tuple(question for question in annotation.questions if question.task in names)
    joined = {question.audited.doc_hash for question in questions if question.audited is not None}
    audited_questions = []
    for question in annotation.audited_questions:
        if question.benchmark in names or question.doc_hash in joined:
            audited_questions.append(question)
    return replace(
        annotation,
        rows=tuple(row for row in annotation.rows if task in (row.group, task_of(row))),
        questions=questions,
        audited_questions=tuple(audited_questions),
        problems=(*problems, *annotation.problems),
    )


def annotate_others(model: str, excluded: Collection[str], files: Sequence[Path]) -> Annotation:
    """Join one model's audits of other benchmarks in the files, with their runs.

    excluded: tasks that are left out. A group that contains one of them is left out, too; its other members stand
        alone.
    """
    runs = []
    for run in find_runs(files, []):
        subtasks = run.results.get("group_subtasks") or {}
        names = dict.fromkeys([*run.results.get("results", {}), *run.logs, *subtasks])
        about = {name: {audited_task(run, leaf) for leaf in leaves(name, subtasks)} for name in names}
        runs.append(
            without_tasks(replace(run, model=model), [name for name in names if not about[name].isdisjoint(excluded)])
        )
    problems: list[Problem] = []
    parts = separated_by_rows([run for run in runs if run.logs], problems)
    if not parts:
        return Annotation(model, "", (), (), ())
    annotation = annotation_of_model(parts)
    judged = {row.group or task_of(row) for row in annotation.rows if row.verdict.word}
    return replace(
        annotation,
        rows=tuple(row for row in annotation.rows if (row.group or task_of(row)) in judged),
        problems=(*problems, *annotation.problems) if judged else (),
    )


def _about(runs: Sequence[Run], task: str, members: Collection[str]) -> list[Run]:
    """Return the runs as if nothing but this task or group had been asked.

    Runs without a task of these names are kept if no other run has one, as run or as audit, since their questions may
    be known by their texts.
    """
    restricted = [(run, _with_task_alone(run, task, members)) for run in runs]
    kinds = {bool(audit_logs_of(run)) for _, run in restricted if run is not None}
    kept = []
    for run, alone in restricted:
        if alone is not None:
            kept.append(alone)
        elif bool(audit_logs_of(run)) not in kinds:
            kept.append(replace(run, results={**run.results, "group_subtasks": {}}))
    return kept


def _with_task_alone(run: Run, task: str, members: Collection[str]) -> Run | None:
    """Return the run with this task or group alone; None if it has no task of these names."""
    subtasks = run.results.get("group_subtasks") or {}
    groups = {name: tasks for name, tasks in subtasks.items() if tasks}
    below = [name for name in groups if audited_task(run, name) == task]
    for name in below:  # which grows by groups within groups
        below += [member for member in groups[name] if member in groups and member not in below]
    wanted = {*members, *(audited_task(run, member) for name in below for member in groups[name])}
    names = [*dict.fromkeys([*run.results.get("results", {}), *run.logs, *subtasks])]
    kept = [name for name in names if name not in subtasks and audited_task(run, name) in wanted]
    if not kept:
        return None
    alone = without_tasks(run, {*names} - {*kept, *below})
    if below or {*members} == {task}:
        return alone
    return replace(alone, results={**alone.results, "group_subtasks": {task: sorted(members)}})
