"""Tasks that are loaded once for a whole command: while it plans, for all models, and to be run in this process."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from lm_eval_leakage.harness.task_shelf import LoadedTask, TaskShelf

MOST_KEPT = 64  # loaded tasks; a plan of more loads some of them again
BUILT_FROM_YAML = ("lm_eval.api.", "lm_eval_leakage.")  # modules of classes that use no argument of the model


class LoadedTasks:
    """Loads tasks by name, metadata and number of examples, and keeps them."""

    def __init__(self, shelf: TaskShelf) -> None:
        self._shelf = shelf
        self._kept: OrderedDict[str, LoadedTask | str] = OrderedDict()

    def load(self, name: str, metadata: Mapping[str, object], num_fewshot: int | None = None) -> LoadedTask | str:
        """Return a task to be read, or why it cannot be used."""
        key = _key(name, metadata, num_fewshot)
        if key not in self._kept:
            self._kept[key] = self._loaded(name, metadata, num_fewshot)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def take(self, name: str, metadata: Mapping[str, object], num_fewshot: int | None = None) -> LoadedTask:
        """Return a task to be run, which changes it, so that it is not kept.

        Raises ValueError if it cannot be loaded.
        """
        task = self._kept.pop(_key(name, metadata, num_fewshot), None) or self._loaded(name, metadata, num_fewshot)
        if isinstance(task, str):
            raise ValueError(task)
        return task

    def _loaded(self, name: str, metadata: Mapping[str, object], num_fewshot: int | None) -> LoadedTask | str:
        try:
            loaded = self._shelf.load(name, metadata)
        except (ValueError, KeyError) as error:
            return str(error)
        if num_fewshot is not None:
            # before digests of its rows are taken, which say how many examples stand before each
            for task in loaded.leaves.values():
                if task.get_config("num_fewshot") != 0:  # which lm_eval does not change either
                    task.set_config(key="num_fewshot", value=num_fewshot)
        return loaded


def depends_on_model(loaded: LoadedTask) -> bool:
    """Return whether the rows of a task may depend on the arguments of the model, which lm_eval passes to tasks: of
    those with a class or a function of their own."""
    bases = [getattr(task, "base", task) for task in loaded.leaves.values()]
    return any(
        callable(getattr(task.config, "custom_dataset", None)) or not type(task).__module__.startswith(BUILT_FROM_YAML)
        for task in bases
    )


def _key(name: str, metadata: Mapping[str, Any], num_fewshot: int | None) -> str:
    return json.dumps([name, num_fewshot, metadata], sort_keys=True, default=str)
