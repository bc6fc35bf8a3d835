"""Patches TaskManager to find our tasks, and to accept names of audits of any task."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.harness.patches.audits_by_name import AuditsByName
from lm_eval_leakage.harness.patches.patching import logger, patched_once

TASK_MANAGER = "lm_eval.tasks.manager:TaskManager"


def find_tasks(task_manager_class: type, audits: Callable[[], AuditsByName]) -> None:
    """Makes every task manager find our tasks, and the audits of everything that it knows.

    audits: called when a task manager is created, since the hook calls this while lm_eval is still being imported
    """
    _search_our_folder(task_manager_class, audits)
    _match_audits(task_manager_class)


def _search_our_folder(task_manager_class: type, audits: Callable[[], AuditsByName]) -> None:
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
            ours = [task_configs_path()] if call.arguments["include_defaults"] else []
            call.arguments["include_path"] = [*ours, *given] or None
            original(*call.args, **call.kwargs)
            self.include_path = asked
            _know_audits(self, audits)

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


def _match_audits(task_manager_class: type) -> None:
    """Makes `match_tasks`, with which the command line checks names, also find the audits of all tasks."""

    def wrap(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
        def match_tasks(self: Any, task_list: list[str]) -> list[str]:
            known = original(self, task_list)
            if not hasattr(self.task_index, "audits_like"):
                return known
            return sorted({*known, *(name for pattern in task_list for name in self.task_index.audits_like(pattern))})

        return match_tasks

    patched_once(f"{TASK_MANAGER}.match_tasks", wrap, task_manager_class)


def _know_audits(manager: Any, audits: Callable[[], AuditsByName]) -> None:
    """Adds the audits; only warns on errors, since plain `lm_eval` must not break because of a different harness
    version or a fault of this package."""
    try:
        from lm_eval_leakage.harness.patches.task_index import know_audits

        know_audits(manager, audits())
    except Exception as error:
        logger.warning(
            "audits of any task by name are not available with this lm_eval, because of %r; if this is plain "
            "`lm_eval`, `lm-eval-leakage disable` turns the hook off",
            error,
        )
