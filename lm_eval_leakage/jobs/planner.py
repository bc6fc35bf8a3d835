"""Plans every unit once, before any model is loaded: what is there already, what is to be asked, what cannot be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from pathlib import Path

from lm_eval_leakage.jobs.checked_plan import CheckedPlan
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks
from lm_eval_leakage.jobs.plan_sources import PlanSources
from lm_eval_leakage.jobs.steps import ReadyUnit, Step
from lm_eval_leakage.jobs.task_plan import TaskPlan
from lm_eval_leakage.jobs.units import Role, Unit

TASK_PLANS_KEPT = 8


class Planner:
    """Says what there is to do for each unit of a plan.

    tasks, early: as for `PlanSources`
    """

    def __init__(
        self, prepared: CheckedPlan, tasks: LoadedTasks, early: Collection[tuple[str, str]] = frozenset()
    ) -> None:
        self._sources = PlanSources(prepared, tasks, early)
        self._task_plan = lru_cache(TASK_PLANS_KEPT)(partial(TaskPlan, self._sources))

    @property
    def counted(self) -> list[str]:
        """The keys of the models whose tokenizers are on this machine."""
        return [key for key in self._sources.models if self._sources.tokenizer(key) is not None]

    def step(self, unit: Unit, places: Sequence[Path] = ()) -> Step:
        """Return what is to be done for a unit.

        places: where the unit's files may be; they count if they are of this model and these questions

        Raises ValueError or OSError if the task cannot be loaded, and if the given runs are of other models.
        """
        return self._task_plan(self._planned_with(unit), unit.task).planned(unit, places)

    def ready(self, unit: Unit, step: Step, place: int) -> ReadyUnit:
        """Return what a worker needs for a unit that is to be run.

        place: among the units of the plan
        """
        if step.work is None:
            raise ValueError(f"{unit.id} is {step.status}; only a unit to run has work for a model")
        return ReadyUnit(
            unit,
            place,
            self._sources.who[unit.model],
            self._sources.include_paths,
            self._sources.imports,
            step,
            step.work,
        )

    def _planned_with(self, unit: Unit) -> str:
        """Return the model with whose questions a unit is planned. The reference of several models is asked all that
        any of them is asked."""
        models = self._sources.checked
        if unit.role is not Role.REFERENCE and unit.model in models:
            return unit.model
        return next((key for key in models if (key, unit.task) not in self._sources.early), models[0])
