"""Integration with lm_eval: leakage audits as its tasks, their rows in its results table, our models and commands.

Only `seams` touches lm_eval's private parts; docs/harness_seams.md lists which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def extend_harness(task_manager_class: type) -> None:
    """Makes our tasks and models, and audits of any task by name, available in lm_eval.

    Do not move or rename this function: the hooks that users have enabled import it by name and must still find it
    after an upgrade. They call it while lm_eval is being imported, so other imports are delayed until they are needed.
    """
    from lm_eval_leakage.harness.seams.registries import add_models
    from lm_eval_leakage.harness.seams.task_manager import check_options, find_tasks

    find_tasks(task_manager_class, _know_audits)
    check_options(_check_before_index, _check_run)
    add_models()


def _know_audits(manager: Any) -> None:
    from lm_eval_leakage.harness.tasks.audit_names import know_audits

    know_audits(manager)


def _check_before_index(config: Any) -> None:
    from lm_eval_leakage.harness.seams.patching import Refusal, hide_tracebacks
    from lm_eval_leakage.harness.task_names import looks_like_an_audit

    _check_shard(config)
    if not any(map(looks_like_an_audit, config.tasks if isinstance(config.tasks, list) else [config.tasks])):
        return
    hide_tracebacks()
    from lm_eval_leakage.harness.preflight import check_before_index

    try:
        check_before_index(config)
    except (ValueError, ImportError, OSError) as error:
        raise Refusal(str(error)) from error


def _check_shard(config: Any) -> None:
    if not isinstance(config.metadata, dict) or "shard" not in config.metadata:
        return
    from lm_eval_leakage.harness.seams.patching import Refusal, hide_tracebacks
    from lm_eval_leakage.logs.run import shard_in

    hide_tracebacks()

    try:
        shard_in(config.metadata)
    except ValueError as error:
        raise Refusal(str(error)) from error


def _check_run(config: Any, index: Mapping[str, Any]) -> None:
    from lm_eval_leakage.harness.models.server_responses import accept_valid_answers_only
    from lm_eval_leakage.harness.seams.registries import class_of
    from lm_eval_leakage.harness.tasks.templates import names_an_audit

    accept_valid_answers_only(class_of(config.model))
    if not any(map(names_an_audit, config.tasks)):
        return
    from lm_eval_leakage.harness.preflight import check_run

    check_run(config, index)
