"""What connects the detectors to lm_eval: its tasks, rows, models and command line.

`patches` is the only room that touches lm_eval's insides; docs/harness_seams.md lists what it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def extend_harness(task_manager_class: type) -> None:
    """Have lm_eval know our tasks and models, and audits of any task by name.

    Hooks that users have enabled call this function by its name and must still find it after an upgrade: do not move
    or rename it. They do so while lm_eval is being imported, so that the rest is imported only when it is needed.
    """
    from lm_eval_leakage.harness.patches.registries import add_models
    from lm_eval_leakage.harness.patches.run_options import check_options
    from lm_eval_leakage.harness.patches.task_manager import find_tasks

    find_tasks(task_manager_class, _audits)
    check_options(_check_run)
    add_models()


def _audits() -> Any:
    from lm_eval_leakage.harness.tasks.audit_names import AuditsOfTasks

    return AuditsOfTasks()


def _check_run(config: Any, index: Mapping[str, Any]) -> None:
    from lm_eval_leakage.harness.tasks.audit_suffixes import names_an_audit

    if not any(map(names_an_audit, config.tasks)):
        return
    from lm_eval_leakage.harness.checks.run_checks import check_run

    check_run(config, index)
