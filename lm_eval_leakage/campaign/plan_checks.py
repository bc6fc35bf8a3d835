"""What is wrong with a plan, or cannot be done, before any model is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product

from lm_eval_leakage.campaign.plan_settings import CampaignPlan
from lm_eval_leakage.campaign.units import RUN, Unit, units_of
from lm_eval_leakage.harness.census.census_report import findings_of
from lm_eval_leakage.harness.census.findings import NOT_AUDITED, Finding
from lm_eval_leakage.harness.checks.foreseen import check_model, warn_if_one_at_a_time, why_cannot_answer, why_not
from lm_eval_leakage.harness.checks.task_names import check_task_names
from lm_eval_leakage.harness.models.request_tokens import SCORED
from lm_eval_leakage.harness.running.task_shelf import TaskShelf
from lm_eval_leakage.harness.tasks.known_keys import refusal_of_keys

ANY = "*"


@dataclass(frozen=True)
class Impossible:
    """Units that cannot be done, and why. `*` stands for any model, task or audit."""

    model: str
    task: str
    kind: str
    reason: str


@dataclass(frozen=True)
class CheckedPlan:
    """plan: with tasks and groups instead of tags and patterns"""

    plan: CampaignPlan
    impossible: tuple[Impossible, ...]

    def units(self) -> list[Unit]:
        """Those that can be done."""
        return possible(units_of(self.plan), self.impossible)


def possible(units: Iterable[Unit], impossible: Iterable[Impossible]) -> list[Unit]:
    known = {(one.model, one.task, one.kind) for one in impossible}
    return [unit for unit in units if known.isdisjoint(_covering(unit))]


def _covering(unit: Unit) -> Iterator[tuple[str, str, str]]:
    """Everything that would make the unit impossible."""
    kinds = (unit.kind,) if unit.kind == RUN else (unit.kind, ANY)
    return product((unit.model, ANY), (unit.task, ANY), kinds)


def checked(plan: CampaignPlan) -> CheckedPlan:
    """Raises ValueError, ImportError or OSError for what has to be changed: unknown names, missing packages and
    folders, and a plan of which no unit can be done."""
    check_task_names(plan.tasks, plan.include_path)
    for module in plan.imports:
        _import(module)
    for model in plan.models:
        check_model(model.model, (), model.model_args)
        warn_if_one_at_a_time(model.model, model.model_args)
    if plan.audits and (refusal := refusal_of_keys(plan.metadata, of_audits_only=not plan.runs)):
        raise ValueError(f"metadata: {refusal}")
    shelf = TaskShelf(plan.include_paths)
    named = replace(plan, tasks=tuple(shelf.names(plan.tasks)))
    leaves = {task: findings_of(task, shelf.index) for task in named.tasks}
    found = CheckedPlan(named, (*_not_audited(named, leaves), *_not_answered(named, leaves, shelf)))
    if not found.units():
        raise ValueError(f"no unit of the plan can be done: {found.impossible[0].reason}; change models or tasks")
    return found


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error


Leaves = Mapping[str, Sequence[Finding]]  # what the census finds on the tasks in a task or group


def _not_audited(plan: CampaignPlan, leaves: Leaves) -> Iterable[Impossible]:
    """Tasks of which nothing can be audited, as the census judges them from their YAML files."""
    for task, found in leaves.items() if plan.audits else ():
        if found and all(one.status == NOT_AUDITED for one in found):
            yield Impossible(ANY, task, ANY, f"{task} cannot be audited: {found[0].reason}")


def _not_answered(plan: CampaignPlan, leaves: Leaves, shelf: TaskShelf) -> Iterable[Impossible]:
    """Audits and runs that a model's backend cannot answer."""
    needs = {task: {_need(shelf, one.task) for one in found} for task, found in leaves.items() if plan.runs}
    for model in plan.models:
        for audit in plan.audits:
            if reason := why_not(model.model, audit):
                yield Impossible(model.name, ANY, audit, f"{audit} cannot run: {reason}")
        for task, own in needs.items():
            reasons = [why_cannot_answer(model.model, need) if need else "" for need in own]
            if reasons and all(reasons):
                yield Impossible(model.name, task, RUN, f"{task} cannot run: {reasons[0]}")


def _need(shelf: TaskShelf, task: str) -> str:
    """The method of the model that answers a task's requests; empty if only the task itself knows."""
    output_type = (shelf.index[task].cfg or {}).get("output_type")
    if output_type is None:
        return ""
    return output_type if output_type in ("generate_until", "loglikelihood_rolling") else SCORED
