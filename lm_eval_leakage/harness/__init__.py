"""Integration with lm_eval: leakage audits as its tasks, their rows in its results table, our models and commands.

Only `seams` touches lm_eval's private parts; docs/harness_seams.md lists which.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def extend_harness(task_manager_class: type) -> None:
    """Makes our tasks and models, and audits of any task by name, available in lm_eval.

    Do not move or rename this function: the hooks that users have enabled import it by name and must still find it
    after an upgrade. They call it while lm_eval is being imported, so other imports are delayed until they are needed.
    """
    from lm_eval_leakage.harness.seams.printed_table import shorten_table
    from lm_eval_leakage.harness.seams.registries import add_models, check_options
    from lm_eval_leakage.harness.tasks.audit_names import find_audits

    find_audits(task_manager_class)
    check_options(_check_run)
    add_models()
    shorten_table(_shorten, _explain)  # before the command line imports the function


def _check_run(config: Any) -> None:
    from lm_eval_leakage.harness.models.model_identity import note_before_loading
    from lm_eval_leakage.harness.models.server_proof import accept_valid_answers_only
    from lm_eval_leakage.harness.seams.command_line import ask_git_only_in_repositories
    from lm_eval_leakage.harness.seams.refusals import Refusal, hide_tracebacks
    from lm_eval_leakage.harness.seams.registries import class_of
    from lm_eval_leakage.harness.tasks.audit_names import looks_like_an_audit

    try:
        if any(map(looks_like_an_audit, config.tasks if isinstance(config.tasks, list) else [config.tasks])):
            hide_tracebacks()
            ask_git_only_in_repositories()
            from lm_eval_leakage.harness.preflight import check_run_options, look_at_server

            check_run_options(config)
            look_at_server(config)
            if config.output_path:  # else nobody will ask which model answered
                note_before_loading(config.model, config.model_args)
    except (ValueError, ImportError, OSError) as error:
        raise Refusal(str(error)) from error
    accept_valid_answers_only(class_of(config.model))


def _shorten(results: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    if not _has_audits():
        return results
    from lm_eval_leakage.harness.tasks.printed_results import shortened_results

    return shortened_results(results, section)


def _explain(results: Mapping[str, Any], section: str) -> Sequence[str]:
    if not _has_audits():
        return ()
    from lm_eval_leakage.harness.tasks.printed_results import explanations

    return explanations(results, section)


def _has_audits() -> bool:
    """Return whether this process has loaded an audit; without one, a run need not import what audits need."""
    return "lm_eval_leakage.harness.tasks.task" in sys.modules
