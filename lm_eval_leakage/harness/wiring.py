"""What the harness has to be told: where our tasks and models are, and which model a task of ours is about to ask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lm_eval_leakage import task_configs_path

MARK = "_knows_lm_eval_leakage"
MODELS = {"hf-prefix-tree": "lm_eval_leakage.harness.prefix_tree_lm:PrefixTreeLM"}


def extend_harness(task_manager_class: type) -> None:
    """What the harness will do by itself once it discovers plugins."""
    add_tasks_to(task_manager_class)
    add_models()


def add_tasks_to(task_manager_class: type) -> None:
    """Every `TaskManager` with the harness's own tasks also indexes ours; a user's `include_path` still wins."""
    original = task_manager_class.__init__  # type: ignore[misc]
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def __init__(  # noqa: N807
        self: Any,
        verbosity: str | None = None,
        include_path: Any = None,
        include_defaults: bool = True,
        metadata: Any = None,
    ) -> None:
        given = include_path if isinstance(include_path, (list, tuple)) else [include_path] if include_path else []
        ours = [task_configs_path()] if include_defaults else []
        original(self, verbosity, [*ours, *given] or None, include_defaults, metadata)
        self.include_path = include_path

    setattr(__init__, MARK, True)
    task_manager_class.__init__ = __init__  # type: ignore[misc]


def add_models() -> None:
    """`--model` also knows ours. They are imported when asked for; the harness's own names come first, for it
    takes an empty registry as the sign that they are still to be added."""
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    for name, target in MODELS.items():
        if name not in model_registry:
            model_registry.register(name, target=target)


def tell_model_to(task_class: type) -> None:
    """Have `evaluate` set `lm` on tasks of `task_class` before they build requests: the harness does not pass
    it to them, and only the model knows which questions are longer than its window."""
    from lm_eval import evaluator

    original: Callable[..., Any] = evaluator.evaluate
    if hasattr(original, MARK):
        return

    @functools.wraps(original)
    def evaluate(lm: Any, task_dict: Any, *args: Any, **kwargs: Any) -> Any:
        for task in _tasks(task_dict):
            if isinstance(task, task_class):
                task.lm = lm  # type: ignore[attr-defined]
        return original(lm, task_dict, *args, **kwargs)

    setattr(evaluate, MARK, True)
    evaluator.evaluate = evaluate


def _tasks(task_dict: Any) -> list[object]:
    """The tasks of either form of dictionary that `evaluate` takes: flat, or nested below groups."""
    if not isinstance(task_dict, dict):
        return [task_dict]
    return [task for value in task_dict.values() for task in _tasks(value)]
