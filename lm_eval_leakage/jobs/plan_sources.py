"""Sources that the plans of all tasks and models share: loaded tasks, tokenizers and given runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

from lm_eval_leakage.harness.costs import RunSize, size_of_chosen
from lm_eval_leakage.harness.models.tokenizer_only import tokenizer_on_disk
from lm_eval_leakage.harness.named_model import NamedModel
from lm_eval_leakage.harness.task_shelf import LoadedTask
from lm_eval_leakage.jobs.checked_plan import CheckedPlan
from lm_eval_leakage.jobs.design import AuditDesign, level_of_first_look
from lm_eval_leakage.jobs.drawing import ChosenIndices
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks, depends_on_model
from lm_eval_leakage.jobs.present_runs import PresentRuns, models_in, name_among_runs, present_runs


class PlanSources:
    """Loads tasks, their data and tokenizers, and no model.

    models, who, checked: as of the plan with its tasks resolved
    level: by which it is computed how many questions are enough
    tasks: that are loaded already
    early: keys of models with tasks of theirs of which only the questions of the first stage are asked
    """

    def __init__(self, prepared: CheckedPlan, tasks: LoadedTasks, early: Collection[tuple[str, str]]) -> None:
        self.plan, self.unscored, self.early = prepared.plan, prepared.unscored, early
        self.models, self.who, self.checked = prepared.models, prepared.who, prepared.checked
        self.has_reference_model = len(self.models) > len(self.checked)
        self.level = level_of_first_look(compares_models=self.plan.compares_models)
        self.imports, self.include_paths = self.plan.imports, self.plan.include_paths
        self._tasks = tasks
        self._designs: dict[int, tuple[LoadedTask, AuditDesign]] = {}
        # by the keys of models; a tokenizer is None if it is not on this machine
        self.tokenizer = cache(lambda key: tokenizer_on_disk(self.who[key].model_args))
        self.given = cache(self._given_runs)

    def load(self, name: str, model: str, metadata: Mapping[str, object], num_fewshot: int | None) -> LoadedTask | str:
        """Return a task as it is for a model, or why it cannot be used: the same for all models of the plan, unless it
        depends on the model."""
        shared = self.checked[0] if model in self.checked else model
        loaded = self._tasks.load(name, self.metadata(shared, metadata), num_fewshot)
        if shared == model or isinstance(loaded, str) or not depends_on_model(loaded):
            return loaded
        return self._tasks.load(name, self.metadata(model, metadata), num_fewshot)

    def metadata(self, model: str, metadata: Mapping[str, object]) -> dict[str, object]:
        """Return the metadata by which tasks are loaded for a model, whose arguments lm_eval adds to it."""
        return {**self.who[model].model_args, **self.plan.metadata, **metadata}

    def design(self, orders: LoadedTask) -> AuditDesign:
        """Return how much the audit of option orders of a task asks."""
        if id(orders) not in self._designs:
            self._designs[id(orders)] = (
                orders,
                AuditDesign(
                    orders,
                    self.level,
                    detect=self.plan.detect,
                    budget=self.plan.budget,
                    seed=self.plan.seed,
                    has_reference=self.plan.reference is not None,
                    has_unseen=self.plan.unseen is not None,
                ),
            )
        return self._designs[id(orders)][1]

    def size(self, loaded: LoadedTask, samples: ChosenIndices, model: str) -> RunSize:
        """Return how much a model is asked about rows of a task."""
        return size_of_chosen(loaded.leaves, samples, self.tokenizer(model), self.who[model].apply_chat_template)

    def _given_runs(self, model: str) -> PresentRuns:
        """Return the runs of a model among those that the plan names.

        Raises ValueError if they hold no run of the only model: a name that is spelled otherwise would go unnoticed.
        """
        plan, who = self.plan, self.who[model]
        given = present_runs(plan.runs, who, by_name=True, needs_control=plan.reference is None)
        if plan.runs and not given.runs and len(plan.models) == 1:
            _refuse_runs(plan.runs, who, given)
        return given


def _refuse_runs(runs: Sequence[Path], who: NamedModel, given: PresentRuns) -> NoReturn:
    """Raise ValueError for runs that hold none of a model, with what they hold instead."""
    if given.others:
        raise ValueError(
            f"runs has only runs of another model that is called {who.name!r}, too: {given.others[0]}; leave it out "
            "to run this model"
        )
    names = ", ".join(map(repr, models_in(runs)))
    if not names:
        raise ValueError("runs has no complete run of any model; name the --output_path of a run")
    raise ValueError(
        f"runs has no complete run of {name_among_runs(who)!r}, only of {names}; give model_args as in those runs"
    )
