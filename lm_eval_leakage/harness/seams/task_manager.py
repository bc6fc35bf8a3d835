"""Patches TaskManager to find our tasks and to accept names of audits of any task; and EvaluatorConfig.process_tasks,
to also check a run's options before its model is loaded.

Imported while lm_eval is only half loaded, so it imports no other part of it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.patching import logger, patched_once

TASK_MANAGER = "lm_eval.tasks.manager:TaskManager"
DISCOVERY = "discover_plugin_task_paths"  # of a harness that reads entry points (its pull request 4015)
TRIED = "_asked_for_audits_by_lm_eval_leakage"


def find_tasks(task_manager_class: type, know_audits: Callable[[Any], None]) -> None:
    """Makes every task manager find our tasks, and the audits of everything that it knows, one that is being created
    included: lm_eval may discover us while it creates it. A user's `include_path` has precedence over our folder.

    know_audits: called with a task manager when it has been created or is first used, since the hook calls this while
        lm_eval is still being imported
    """

    def know_once(manager: Any) -> None:
        """Only warns on errors: plain `lm_eval` must not break because of another version of it or a fault of ours."""
        if getattr(manager, TRIED, False):
            return
        setattr(manager, TRIED, True)
        try:
            know_audits(manager)
        except Exception as error:
            logger.warning(
                "audits of any task by name are not available with this lm_eval, because of %r; if this is plain "
                "`lm_eval`, `lm-eval-leakage plugin disable` turns the hook off",
                error,
            )

    def search_our_folder(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)
        if "include_path" not in signature.parameters:  # a wrapper by another package, with *args and **kwargs
            signature = inspect.signature(_known_arguments)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            call = signature.bind(self, *args, **kwargs)
            call.apply_defaults()
            asked = call.arguments["include_path"]
            given = asked if isinstance(asked, (list, tuple)) else [asked] if asked else []
            discovers = hasattr(sys.modules.get(task_manager_class.__module__), DISCOVERY)
            ours = [task_configs_path()] if call.arguments["include_defaults"] and not discovers else []
            call.arguments["include_path"] = [*ours, *given] or None
            original(*call.args, **call.kwargs)
            self.include_path = asked
            know_once(self)

        return __init__

    def match_audits(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def match_tasks(self: Any, task_list: list[str]) -> list[str]:
            know_once(self)
            known = original(self, task_list)
            if not hasattr(self.task_index, "audits_like"):
                return known
            return sorted({*known, *(name for pattern in task_list for name in self.task_index.audits_like(pattern))})

        return match_tasks

    def load_audits(original: Callable[..., Any]) -> Callable[..., Any]:
        def _load_spec(self: Any, spec: Any) -> Any:
            know_once(self)
            return original(self, spec)

        return _load_spec

    patched_once(f"{TASK_MANAGER}.__init__", search_our_folder, task_manager_class)
    patched_once(f"{TASK_MANAGER}.match_tasks", match_audits, task_manager_class)
    if hasattr(task_manager_class, "_load_spec"):
        patched_once(f"{TASK_MANAGER}._load_spec", load_audits, task_manager_class)


def _known_arguments(
    self: Any,
    verbosity: str | None = None,
    include_path: Any = None,
    include_defaults: bool = True,
    metadata: Any = None,
) -> None:
    """The parameters of `TaskManager` in lm_eval 0.4.13."""


def check_options(check_before_index: Callable[[Any], None], check: Callable[[Any, Mapping[str, Any]], None]) -> None:
    """Registers checks of the run's options; they may raise Refusal. After this point, the keys of `--metadata` and
    the model's arguments are mixed.

    check_before_index: called with lm_eval's EvaluatorConfig, before the index of tasks is built, which takes seconds
    check: called with it and the index
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
            check_before_index(self)
            manager = original(self, *args, **kwargs)
            if hasattr(manager.task_index, "audits_like"):
                check(self, manager.task_index)
            return manager

        return process_tasks

    patched_once("lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks", wrap)
