"""Patches TaskManager to find our tasks, and to accept names of audits of any task.

Imported while lm_eval is only half loaded, so it imports no other part of it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.seams.patching import logger, patched_once

Know = Callable[[Any], None]
TASK_MANAGER = "lm_eval.tasks.manager:TaskManager"
DISCOVERY = "discover_plugin_task_paths"  # of a harness that reads entry points (its pull request 4015)
TRIED = "_asked_for_audits_by_lm_eval_leakage"


def find_tasks(task_manager_class: type, know_audits: Know) -> None:
    """Makes every task manager find our tasks, and the audits of everything that it knows, one that is being created
    included: lm_eval may discover us while it creates it.

    know_audits: called with a task manager when it has been created or is first used, since the hook calls this while
        lm_eval is still being imported
    """
    _search_our_folder(task_manager_class, know_audits)
    _match_audits(task_manager_class, know_audits)
    _load_audits(task_manager_class, know_audits)


def _search_our_folder(task_manager_class: type, know_audits: Know) -> None:
    """Makes every `TaskManager` with lm_eval's own tasks also index ours; a user's `include_path` has precedence."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
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
            _know_once(self, know_audits)

        return __init__

    patched_once(f"{TASK_MANAGER}.__init__", wrap, task_manager_class)


def _known_arguments(
    self: Any,
    verbosity: str | None = None,
    include_path: Any = None,
    include_defaults: bool = True,
    metadata: Any = None,
) -> None:
    """The parameters of `TaskManager` in lm_eval 0.4.13."""


def _match_audits(task_manager_class: type, know_audits: Know) -> None:
    """Makes `match_tasks`, with which the command line checks names, also find the audits of all tasks."""

    def wrap(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def match_tasks(self: Any, task_list: list[str]) -> list[str]:
            _know_once(self, know_audits)
            known = original(self, task_list)
            if not _knows_audits(self):
                return known
            return sorted({*known, *(name for pattern in task_list for name in self.task_index.audits_like(pattern))})

        return match_tasks

    patched_once(f"{TASK_MANAGER}.match_tasks", wrap, task_manager_class)


def _load_audits(task_manager_class: type, know_audits: Know) -> None:
    """Makes a task manager know the audits by the time that it loads one."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def _load_spec(self: Any, spec: Any) -> Any:
            _know_once(self, know_audits)
            return original(self, spec)

        return _load_spec

    if hasattr(task_manager_class, "_load_spec"):
        patched_once(f"{TASK_MANAGER}._load_spec", wrap, task_manager_class)


def _knows_audits(manager: Any) -> bool:
    return hasattr(manager.task_index, "audits_like")


def _know_once(manager: Any, know_audits: Know) -> None:
    """Adds the audits; only warns on errors, since plain `lm_eval` must not break because of a different harness
    version or a fault of this package."""
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
