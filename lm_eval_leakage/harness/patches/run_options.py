"""Patches the command line's choice of tasks to also check a run's options, before its model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_leakage.harness.patches.patching import patched_once


def check_options(check: Callable[[Any, Mapping[str, Any]], None]) -> None:
    """Afterwards nobody can tell keys of `--metadata` from the model's arguments.

    check: called with lm_eval's EvaluatorConfig and the index of its tasks; it may end the program
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
            manager = original(self, *args, **kwargs)
            if hasattr(manager.task_index, "audits_like"):
                check(self, manager.task_index)
            return manager

        return process_tasks

    patched_once("lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks", wrap)
