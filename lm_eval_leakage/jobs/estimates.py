"""What a plan comes to, before a model is loaded: what cannot be done, and requests and tokens of the rest."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.harness.backends import why_cannot_answer
from lm_eval_leakage.harness.costs import ROWS_MEASURED, RunSize
from lm_eval_leakage.harness.models.request_tokens import SCORED
from lm_eval_leakage.harness.own_benchmark import OwnTask, is_file_of_questions, names_from_files, write_task
from lm_eval_leakage.harness.preflight import preflight, why_not
from lm_eval_leakage.harness.seams.rows import import_anew
from lm_eval_leakage.harness.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.engines import entry_of
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.manifest import AUDITS, CONTROLLED, files_of_tasks
from lm_eval_leakage.jobs.plan import NO_CONTROL, RUN, RUNS, TRAIN, Plan, Unit, units_of
from lm_eval_leakage.jobs.planning import NOT_POSSIBLE, Planned, Planner
from lm_eval_leakage.logs.run import same_weights
from lm_eval_leakage.results.formatting import DASH, about, count, counted, markdown_of

if TYPE_CHECKING:
    from lm_eval_leakage.harness.auditable import Finding


OWN_TASKS = "tasks"  # folder of the output, with a folder for the task of each file


@dataclass(frozen=True)
class CheckedPlan:
    """plan: with tasks and groups instead of tags and patterns
    impossible: why units cannot be done, by whole ones
    shelf: from which its tasks are loaded
    audits: by tasks, suffixes of those that their verdicts rest on, as `Finding` has them
    controlled: tasks that have a positive control
    files: digests of the user's own files that each task is made of
    unread: which rows of the files of questions are left out, and why, by the names of their tasks
    """

    plan: Plan
    impossible: Mapping[Unit, str]
    shelf: TaskShelf
    audits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    controlled: frozenset[str] = frozenset()
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: CampaignFolder) -> CheckedPlan:
        """The one that a folder has been begun for."""
        manifest = folder.manifest()
        told = manifest.get("impossible") or ()
        known = {Unit(one["model"], one["task"], one["kind"]): one["reason"] for one in told}
        audits, controlled = manifest.get(AUDITS) or {}, frozenset(manifest.get(CONTROLLED) or ())
        return cls(folder.plan, known, TaskShelf(folder.plan.include_paths), audits, controlled)

    @property
    def unread_in_words(self) -> list[str]:
        """A sentence for each task of a file that has rows which are left out."""
        return [f"{task}: {rows}" for task, rows in self.unread.items()]

    def units(self) -> list[Unit]:
        """Those that can be done."""
        units = units_of(self.plan, self.audits, self.controlled)
        return [unit for unit in units if unit not in self.impossible]


def checked(plan: Plan) -> CheckedPlan:
    """With a task for each file of questions, written into the folder `tasks` of the output.

    Raises ValueError or OSError for unknown names, and a plan of which no unit can be done."""
    from lm_eval_leakage.harness.auditable import findings_of

    own = _own_tasks(plan)
    if own:  # after the others, since lm_eval takes the last task of a name
        folders = dict.fromkeys(str(plan.output_path.absolute() / OWN_TASKS / one.name) for one in own.values())
        plan = plan.changed(include_path=":".join([*plan.include_paths, *folders]))
    shelf = TaskShelf(plan.include_paths)
    names = [name for task in plan.tasks for name in ([own[task].name] if task in own else shelf.names([task]))]
    named = plan.changed(tasks=tuple(dict.fromkeys(names)))
    files = files_of_tasks(named, shelf.index)
    import_anew(Path(file) for digests in files.values() for file in digests)
    unscored = {one.name: one.unscored for one in own.values() if one.unscored}
    audits = {task: _audits_of(task, named, shelf) for task in named.tasks}
    _refuse_for_options(named, audits)
    controlled = frozenset(task for task in named.tasks if _has_positive_control(named, task, shelf))
    runs = (unit for unit in units_of(named, audits) if unit.kind == RUN)
    impossible = {unit: unscored[unit.task] for unit in runs if unit.task in unscored}
    if not plan.is_here:  # there, each unit is planned before the first one is run
        leaves = {task: findings_of(task, shelf.index) for task in named.tasks if task not in unscored}
        impossible |= dict(_left_out(units_of(named, audits, controlled), named, leaves, shelf))
    unread = {one.name: one.unread for one in own.values() if one.unread}
    found = CheckedPlan(named, impossible, shelf, audits, controlled, files, unread)
    if not found.units():
        raise ValueError(f"no unit of the plan can be done: {next(iter(impossible.values()))}; change models or tasks")
    return found


def _audits_of(task: str, plan: Plan, shelf: TaskShelf) -> Sequence[str]:
    """Return suffixes of the audits that a task's verdict rests on, by the data of its first task that has any."""
    from lm_eval_leakage.harness.auditable import COVERED, findings_of

    if task not in shelf.index or plan.budget is not None or "data_files" in plan.metadata:
        return (FIRST_AUDIT,)
    covered = (one.audits for one in findings_of(task, shelf.index) if one.status == COVERED)
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
    by default where nothing limits what is asked."""
    from lm_eval_leakage.harness.auditable import tasks_of

    if plan.positive_control not in (None, TRAIN):
        return plan.positive_control != NO_CONTROL
    is_wanted = plan.positive_control == TRAIN or (plan.is_here and not plan.runs and plan.budget is None)
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


def check_early(plan: Plan) -> None:
    """Raises ValueError, ImportError or OSError for what can be known before the index of tasks is built, and before
    what runs models is imported, which takes seconds, too: unknown names, missing packages and folders, tasks or
    backends that no audit of the plan fits."""
    check_writable(plan.output_path, folder=True)
    if plan.engine is not None:
        entry_of(plan.engine, plan.address)
    for module in plan.imports:
        _import(module)
    # nothing is made from the arguments of a loaded model, which only name it
    models = [(one.model, one.model_args if one.loaded is None else None) for one in plan.asked_models]
    files = [task for task in plan.tasks if is_file_of_questions(task)]
    preflight(
        [task for task in plan.tasks if task not in files],
        models,
        audits=() if plan.runs else plan.audits,
        include_path=plan.include_path,
        data_files=plan.metadata.get("data_files"),
        files=files,
        fields=plan.fields,
        leaves_out=not plan.is_here,
    )
    for file in plan.given_files:
        preflight(
            plan.tasks,
            audits=plan.audits,
            include_path=plan.include_path,
            data_files=file,
            fields=plan.fields,
        )
    _refuse_own_reference(plan)
    if plan.audits and (refusal := refusal_of_keys(plan.metadata, of_audits_only=plan.accuracy is False)):
        raise ValueError(f"metadata: {refusal}")


def _refuse_own_reference(plan: Plan) -> None:
    """Raise ValueError if the reference is one of the models: compared with itself, no model has seen anything."""
    for reference in plan.reference_models:
        for model in plan.models:
            if same_weights(model.who.identity, reference.who.identity):
                arguments = ",".join(f"{name}={value}" for name, value in reference.model_args.items())
                raise ValueError(
                    f"reference is {arguments!r}, which is the model{f' {model.name!r}' if model.name else ''} "
                    "itself, however it is asked; name another model, or a folder with its audits"
                )


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error


def _left_out(
    units: Sequence[Unit], plan: Plan, leaves: Mapping[str, Sequence[Finding]], shelf: TaskShelf
) -> Iterable[tuple[Unit, str]]:
    """Units of tasks of which nothing can be audited, as `ls` finds them, and what a model's backend cannot answer.

    leaves: the tasks in each task or group
    """
    from lm_eval_leakage.harness.auditable import NOT_AUDITED

    reason_of = cache(why_not)
    for unit in units:
        found, backend = leaves.get(unit.task, ()), plan.model(unit.model).model
        if unit.kind == RUN:
            needs = {_need(shelf, one.task) for one in found}
            reasons = [why_cannot_answer(backend, need) if need else "" for need in needs]
            if reasons and all(reasons):
                yield unit, f"{unit.task} cannot run: {reasons[0]}"
        elif found and all(one.status == NOT_AUDITED for one in found):
            yield unit, f"{unit.task} cannot be audited: {found[0].reason}"
        elif unit.room == RUNS and (reason := reason_of(backend, unit.kind)):
            yield unit, f"{unit.kind} cannot run: {reason}"


def _need(shelf: TaskShelf, task: str) -> str:
    """The method of the model that answers a task's requests; empty if only the task itself knows."""
    output_type = (shelf.index[task].cfg or {}).get("output_type") or ""
    return SCORED if output_type not in ("", "generate_until", "loglikelihood_rolling") else output_type


# ---------------------------------------------------------------------- requests and tokens


def refuse_above_limit(plan: Plan, n_tokens: int) -> None:
    """Raises ValueError if so many tokens are more than may be asked."""
    limit = plan.max_tokens_asked
    if limit is not None and n_tokens > limit:
        raise ValueError(
            f"max_tokens_asked is {count(limit)}, but what is left to be asked has about {about(n_tokens)} "
            f"tokens; raise it, lower questions (now {plan.questions}), or leave out tasks or audits"
        )


def tokens_planned(planned: Planned) -> int:
    """That a model is asked for what has to be run."""
    return sum(step.job.n_tokens for step in planned.values() if step.job is not None)


def tokens_of_units(prepared: CheckedPlan, left: Sequence[Unit]) -> int:
    """That models are asked for units. Loads tasks and their data."""
    planner = Planner(prepared.plan, prepared.shelf)
    return sum(tokens_planned({unit: planner.step(unit)}) for unit in left)


ESTIMATED = ("model", "units", "requests", "tokens in rows", "tokens as a tree", "tokens read")


def foreseen(prepared: CheckedPlan, say: Callable[[str], None]) -> str:
    """A row per model, with tokens where each text has a row of its own, where every shared prefix is read once, and
    as read; and in sentences what the numbers rest on. Loads tasks, their data and tokenizers, and no model.

    say: called with the tasks whose requests are being counted
    """
    plan, units = prepared.plan, prepared.units()
    kinds, n_units = Counter(unit.kind for unit in units), Counter(unit.model for unit in units)
    sizes, problems = _sizes(prepared, units, say)
    lines = [list(ESTIMATED)]
    for model in plan.asked_models:
        own = sizes.get(model.key)
        cells = [DASH] * 4 if own is None else [about(n) for n in _numbers(own, model.model)]
        lines.append([model.key, count(n_units[model.key]), *cells])
    remarks = [
        f"{ROWS_MEASURED} questions of each run or audit are tokenised, the rest is taken to be like them",
        *(
            f"{model.key}: tokens are not known, since its tokenizer is not on this machine"
            for model in plan.asked_models
            if model.key not in sizes
        ),
        *(f"left out: {reason}" for reason in dict.fromkeys(prepared.impossible.values())),
        *prepared.unread_in_words,
        *(f"not counted: {problem}" for problem in problems),
    ]
    n_models, n_tasks = counted(len(plan.asked_models), "model"), counted(len(plan.tasks), "task")
    head = (
        f"{counted(len(units), 'unit')} ({', '.join(f'{kind} {count(n)}' for kind, n in kinds.items())}): "
        f"{n_models}, {n_tasks}"
    )
    return "\n".join([head, "", markdown_of(lines), "", *(f"- {remark}" for remark in remarks)])


def _sizes(
    prepared: CheckedPlan, units: Sequence[Unit], say: Callable[[str], None]
) -> tuple[dict[str, list[RunSize]], Iterable[str]]:
    """Of runs and audits, by the models whose tokenizers are on this machine; and why one could not be counted."""
    plan, planner = prepared.plan, Planner(prepared.plan, prepared.shelf)
    known = [model for model in plan.asked_models if planner.tokenizer(model.key) is not None]
    sizes: dict[str, list[RunSize]] = {model.key: [] for model in known}
    problems: dict[str, None] = {}
    for place, unit in enumerate(sorted(units, key=lambda one: (one.task, one.kind)), 1):
        say(f"[{place}/{len(units)}] {unit.asked}, {unit.model}")
        if unit.model in sizes:
            try:
                step = planner.step(unit)
            except (ValueError, OSError) as error:
                problems[f"{unit.asked}: {error}"] = None
                continue
            if step.job is not None:
                sizes[unit.model].append(step.job.size)
            elif step.status == NOT_POSSIBLE:
                problems[f"{unit.asked}: {step.note}"] = None
    return sizes, problems


def _numbers(sizes: Sequence[RunSize], backend: str) -> list[int]:
    counts = [(size.tokens.counts, size.method == SCORED) for size in sizes]
    return [
        sum(one.n_texts for one, _ in counts),
        sum(one.n_row_tokens for one, _ in counts),
        sum(one.n_tree_tokens if shares else one.n_row_tokens for one, shares in counts),
        sum(size.n_read(backend) for size in sizes),
    ]
