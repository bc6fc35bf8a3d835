"""What the harness has to be told: where our tasks and models are, and that any task has audits."""

from __future__ import annotations

import functools
import logging
from typing import Any

from lm_eval_leakage import task_configs_path

logger = logging.getLogger(__name__)

MARK = "_knows_lm_eval_leakage"
MODELS = {"hf-prefix-tree": "lm_eval_leakage.harness.models.prefix_tree_lm:PrefixTreeLM"}


def extend_harness(task_manager_class: type) -> None:
    """What the harness will do by itself once it discovers plugins, and audits of any task by name."""
    add_tasks_to(task_manager_class)
    add_audits_to(task_manager_class)
    check_runs()
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
        _know_audits(self)

    setattr(__init__, MARK, True)
    task_manager_class.__init__ = __init__  # type: ignore[misc]


def add_audits_to(task_manager_class: type) -> None:
    """`match_tasks`, by which the command line checks names, also knows the audits of all tasks."""
    original = getattr(task_manager_class, "match_tasks", None)
    if original is None or hasattr(original, MARK):
        return

    @functools.wraps(original)
    def match_tasks(self: Any, task_list: list[str]) -> list[str]:
        known: list[str] = original(self, task_list)
        if not hasattr(self.task_index, "audits_like"):
            return known
        return sorted({*known, *(name for pattern in task_list for name in self.task_index.audits_like(pattern))})

    setattr(match_tasks, MARK, True)
    task_manager_class.match_tasks = match_tasks  # type: ignore[attr-defined]


def check_runs() -> None:
    """The command line, which chooses its tasks before it loads a model, then also looks at what would end the run or
    make it wrong; afterwards nobody can tell keys of `--metadata` from the model's arguments."""
    try:
        from lm_eval.config.evaluate_config import EvaluatorConfig
    except ImportError as error:
        logger.warning("mistakes in a run's options are noticed late with this harness: %s", error)
        return
    original = getattr(EvaluatorConfig, "process_tasks", None)
    if original is None or hasattr(original, MARK):
        return

    @functools.wraps(original)
    def process_tasks(self: Any, metadata: Any = None) -> Any:
        manager = original(self, metadata)
        if hasattr(manager.task_index, "audits_like"):
            from lm_eval_leakage.harness.checks.run_checks import check_run

            check_run(self, manager.task_index)
        return manager

    setattr(process_tasks, MARK, True)
    EvaluatorConfig.process_tasks = process_tasks


def _know_audits(manager: Any) -> None:
    """Plain `lm_eval` must not break with a harness whose insides are others than those we know, nor with what may be
    wrong with us."""
    try:
        # here, since the hook calls us while the harness is still being imported
        from lm_eval_leakage.harness.patches.dynamic_names import know_audits

        know_audits(manager)
    except Exception as error:
        logger.warning(
            "audits of any task by name are not available with this harness, because of %r; `lm-eval-leakage disable` "
            "turns the hook off, where this is plain `lm_eval`",
            error,
        )


def add_models() -> None:
    """`--model` also knows ours. They are imported when asked for; the harness's own names come first, for it
    takes an empty registry as the sign that they are still to be added."""
    import lm_eval.models  # noqa: F401
    from lm_eval.api.registry import model_registry

    for name, target in MODELS.items():
        if name not in model_registry:
            model_registry.register(name, target=target)
