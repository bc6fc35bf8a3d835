"""A plan with the names of its tasks resolved: which tasks and units it has, and what their verdicts rest on."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.harness.own_benchmark import OwnTask, is_file_of_questions, names_from_files, write_task
from lm_eval_leakage.harness.seams.rows import import_anew
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.templates import FILLER_AUDIT, FIRST_AUDIT
from lm_eval_leakage.jobs.manifest import files_of_tasks
from lm_eval_leakage.jobs.plan import CHECKED_AUDITS, TOKENS, Plan, PlanModel
from lm_eval_leakage.jobs.plan_values import NO_CONTROL, TRAIN
from lm_eval_leakage.jobs.units import RUN, Role, Unit

OWN_TASKS = "tasks"  # folder of the output, with a folder for the task of each file


@dataclass(frozen=True)
class CheckedPlan:
    """A plan with tasks and groups instead of tags, patterns and files.

    shelf: from which its tasks are loaded
    audits: by tasks, suffixes of those that their verdicts rest on, as `Finding` has them
    controlled: tasks that have a positive control
    files: digests of the user's own files that each task is made of
    unread: which rows of the files of questions are left out, and why, by the names of their tasks
    unscored: why the tasks of files cannot be run themselves, likewise
    """

    plan: Plan
    shelf: TaskShelf
    audits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    controlled: frozenset[str] = frozenset()
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)
    unscored: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def units(self) -> list[Unit]:
        """The units of the plan, done or not, in its order."""
        return units_of(self.plan, self.audits, self.controlled)

    @cached_property
    def models(self) -> Mapping[str, PlanModel]:
        """The models by their keys, those of the plan first, then the one that is audited as their reference."""
        return {model.key: model for model in self.plan.all_models}

    @cached_property
    def who(self) -> Mapping[str, NamedModel]:
        """The same models as lm_eval's command line names them."""
        return {key: model.who for key, model in self.models.items()}

    @cached_property
    def checked(self) -> list[str]:
        """The keys of the models that are checked, without the one that is audited as their reference."""
        return [*self.models][: len(self.plan.models)]


def resolve_plan(plan: Plan) -> CheckedPlan:
    """Return the plan with a task for each file of questions, written into the folder `tasks` of the output.

    Raises ValueError or OSError for unknown names."""
    file_tasks = _own_tasks(plan)
    if file_tasks:  # after the others, since lm_eval takes the last task of a name
        folders = dict.fromkeys(
            str(plan.output_path.absolute() / OWN_TASKS / file_task.name) for file_task in file_tasks.values()
        )
        plan = plan.changed(include_path=":".join([*plan.include_paths, *folders]))
    shelf = TaskShelf(plan.include_paths)
    names = [
        name
        for task in plan.tasks
        for name in ([file_tasks[task].name] if task in file_tasks else shelf.names([task]))
    ]
    named = plan.changed(tasks=tuple(dict.fromkeys(names)))
    files = files_of_tasks(named.tasks, shelf.index, plan.include_paths, named.metadata, named.given_files)
    import_anew(Path(file) for digests in files.values() for file in digests)
    audits = {task: _audits_of(task, named, shelf) for task in named.tasks}
    _refuse_for_options(named, audits)
    return CheckedPlan(
        named,
        shelf,
        audits,
        controlled=frozenset(task for task in named.tasks if _has_positive_control(named, task, shelf)),
        files=files,
        unread={file_task.name: file_task.unread for file_task in file_tasks.values() if file_task.unread},
        unscored={file_task.name: file_task.unscored for file_task in file_tasks.values() if file_task.unscored},
    )


def _audits_of(task: str, plan: Plan, shelf: TaskShelf) -> Sequence[str]:
    """Return suffixes of the audits that a task's verdict rests on, by the data of its first task that has any."""
    from lm_eval_leakage.harness.auditable import Coverage, findings_of

    if task not in shelf.index or plan.budget is not None or "data_files" in plan.metadata:
        return (FIRST_AUDIT,)
    covered = (finding.audits for finding in findings_of(task, shelf.index) if finding.status == Coverage.COVERED)
    return next(covered, (FIRST_AUDIT,))


def _refuse_for_options(plan: Plan, audits: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError for settings that only tasks with options use, where one of the tasks has none."""
    without = sorted(task for task, suffixes in audits.items() if FIRST_AUDIT not in suffixes)
    if plan.orders is not None and without:
        raise ValueError(
            f"orders is {plan.orders!r}, but {without[0]} has no options: its rows exchange names; leave it out"
        )


def _has_positive_control(plan: Plan, task: str, shelf: TaskShelf) -> bool:
    """Return whether a task is audited on a positive control, too: a file that the plan names, or its training split,
    by default where nothing limits what is asked and no models are compared, for which it would double the cost."""
    from lm_eval_leakage.harness.auditable import tasks_of

    if plan.positive_control not in (None, TRAIN):
        return plan.positive_control != NO_CONTROL
    is_free = not (plan.runs or plan.budget is not None or plan.compares_models)
    is_wanted = plan.positive_control == TRAIN or is_free
    if not is_wanted or task not in shelf.index or "data_files" in plan.metadata:
        return False
    first = next(tasks_of(task, shelf.index), "")
    return bool((shelf.index[first].cfg or {}).get("training_split")) if first in shelf.index else False


def _own_tasks(plan: Plan) -> dict[str, OwnTask]:
    """Write the task of each file of questions into a folder of its own, where no task of an earlier plan is."""
    files = {
        task: Path(os.path.abspath(Path(task).expanduser()))  # noqa: PTH100 (a symbolic link keeps its name)
        for task in plan.tasks
        if is_file_of_questions(task)
    }
    if not files:
        return {}
    names = names_from_files({*files.values()}, TaskShelf(plan.include_paths).index)
    place = plan.output_path.absolute() / OWN_TASKS
    return {task: write_task(file, place / names[file], names[file], plan.fields) for task, file in files.items()}


# ---------------------------------------------------------------------- its units


def units_of(
    plan: Plan, audits: Mapping[str, Sequence[str]] | None = None, controlled: Collection[str] = ()
) -> list[Unit]:
    """Return all units, of each model together, and of each task together; the reference model comes last.

    audits: by tasks, suffixes of those that their verdicts rest on (`Finding.audits`); of option orders for others
    controlled: tasks that have a positive control
    """
    judging = {task: [*(audits or {}).get(task, (FIRST_AUDIT,))] for task in plan.tasks}
    kinds = {task: _kinds_of(plan, judging[task], has_control=task in controlled) for task in plan.tasks}
    models, references = [model.key for model in plan.models], [model.key for model in plan.reference_models]
    units = [Unit.of(model, task, kind) for model in models for task in plan.tasks for kind in kinds[task]]
    for model in references or (models if plan.reference is not None else ()):
        for task in plan.tasks:
            units += [Unit.of(model, task, f"{Role.REFERENCE}-{suffix}") for suffix in judging[task]]
    if plan.unseen is not None and TOKENS in plan.audits:
        for model in references:
            for task in plan.tasks:
                if FIRST_AUDIT in judging[task]:
                    units += [Unit.of(model, task, f"{role}-{TOKENS}") for role in (Role.REFERENCE, Role.UNSEEN)]
    return units


def _kinds_of(plan: Plan, judging: Sequence[str], *, has_control: bool) -> list[str]:
    """Return the kinds of the units of a task by each of the plan's models.

    judging: suffixes of the audits that its verdict rests on
    """
    suffixes = _suffixes_of(plan.audits, judging)
    kinds = suffixes if plan.accuracy is False else [RUN, *suffixes]
    if plan.unseen is not None:  # what is asked of the benchmark, for comparison
        compared = (*CHECKED_AUDITS, FILLER_AUDIT)
        kinds = [*kinds, *(f"{Role.UNSEEN}-{suffix}" for suffix in compared if suffix in suffixes)]
    if has_control:
        tested = (FIRST_AUDIT, FILLER_AUDIT)
        kinds = [*kinds, *(f"{Role.POSITIVE}-{suffix}" for suffix in suffixes if suffix in tested)]
    return kinds


def _suffixes_of(audits: Sequence[str], judging: Sequence[str]) -> list[str]:
    """Return the suffixes of the audits of a task: those of the plan, and those that its verdict rests on."""
    if FIRST_AUDIT not in judging:
        return [*judging] if {FIRST_AUDIT, *judging} & {*audits} else []
    return list(dict.fromkeys([*audits, *(judging if FIRST_AUDIT in audits else ())]))
