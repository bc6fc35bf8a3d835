"""Patches EvaluatorConfig.process_tasks to also check a run's options, before its model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_leakage.harness.patches.patching import patched_once


def check_options(check: Callable[[Any, Mapping[str, Any]], None]) -> None:
    """Registers a check of the run's options. After this point, the keys of `--metadata` and the model's arguments are
    mixed.

    check: called with lm_eval's EvaluatorConfig and its task index; may exit the program
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_tasks(self: Any, *args: Any, **kwargs: Any) -> Any:
            manager = original(self, *args, **kwargs)
            if hasattr(manager.task_index, "audits_like"):
                check(self, manager.task_index)
            return manager

        return process_tasks

    patched_once("lm_eval.config.evaluate_config:EvaluatorConfig.process_tasks", wrap)
