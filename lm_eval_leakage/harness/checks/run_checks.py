"""Checks the options of a command-line run with audits: most before lm_eval indexes its tasks, all before its
model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.checks.foreseen import check_model, warn_if_one_at_a_time, why_not
from lm_eval_leakage.harness.checks.task_names import check_task_names, may_make_its_data
from lm_eval_leakage.harness.tasks.audit_suffixes import (
    SEAL_KEY,
    names_an_audit,
    needs_seal,
    no_seal,
    split_name,
    suffixes,
)
from lm_eval_leakage.harness.tasks.known_keys import names_audit_or_group, refusal_of_keys
from lm_eval_leakage.harness.tasks.parameters import SWITCHES, switch_of
from lm_eval_leakage.logs.run_shard import shard_in

USUAL_MODEL = "hf"  # of lm_eval, without --model
SET_BY_HARNESS = ("trust_remote_code",)  # added to the model's arguments by an option of its own


def check_before_index(options: Any) -> None:
    """Raises ValueError, ImportError or OSError, with the remedy, for what can be told without the index of tasks: a
    misspelled task, a model that does not exist, lacks a package or an argument or cannot run the audits, a file that
    does not exist, an output path that cannot be written, an invalid key of `--metadata`, a malformed shard.

    options: lm_eval's EvaluatorConfig, or the parsed command line
    """
    shard_in(options.metadata)
    tasks = _tasks(options)
    check_task_names(tasks, options.include_path)
    model, model_args = options.model or USUAL_MODEL, options.model_args or {}
    audits = [task for task in tasks if names_an_audit(task)]
    if audits:
        _check_able(model, tasks)
    check_model(model, [], {name: value for name, value in model_args.items() if name not in SET_BY_HARNESS})
    if audits:
        _check_metadata(options, tasks, audits)
        if options.output_path:
            from lm_eval_leakage.harness.patches.saved_files import refuse_unwritable  # imports lm_eval.utils

            refuse_unwritable(Path(options.output_path))


def check_run(config: Any, index: Mapping[str, Any]) -> None:
    """Exits with a message for an unknown key of `--metadata`, or a data file that cannot be read. Says what makes a
    run slow.

    config: the harness's EvaluatorConfig, in which the model's arguments and the user's keys are still separate
    """
    from lm_eval_leakage.harness.tasks.data_files import read_file  # imports `datasets`

    audits = [task for task in config.tasks if names_audit_or_group(task, index)]
    if not audits:
        return
    if refusal := refusal_of_keys(_keys(config), of_audits_only=len(audits) == len(config.tasks)):
        raise SystemExit(refusal)
    warn_if_one_at_a_time(config.model or USUAL_MODEL, config.model_args or {})
    try:
        if (config.metadata or {}).get("data_files") is not None:
            read_file(config.metadata["data_files"])
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from error


def _tasks(options: Any) -> list[str]:
    given = options.tasks or []
    given = given.split(",") if isinstance(given, str) else given
    return [name for task in given if isinstance(task, str) for name in task.split(",")]


def _check_able(model: str, tasks: Sequence[str]) -> None:
    """A run of other tasks too continues without the audits that the model cannot run."""
    suffix = {task: parts[1] if (parts := split_name(task)) else task for task in tasks if names_an_audit(task)}
    reasons = [(task, why) for task in suffix if (why := why_not(model, suffix[task]))]
    if len(reasons) == len(tasks):
        task, why = reasons[0]
        raise ValueError(
            f"{task} cannot run: {why}; choose another model, or an audit that it can run, such as {_able(model)}"
        )


def _able(model: str) -> str:
    """The audits that the model can run, in words."""
    return ", ".join(f"TASK_{suffix}" for suffix in sorted(suffixes()) if not why_not(model, suffix)) or "none"


def _check_metadata(options: Any, tasks: Sequence[str], audits: Sequence[str]) -> None:
    metadata = options.metadata or {}
    for switch in SWITCHES:
        switch_of(metadata, switch)
    if "published_orders" in metadata:
        from lm_eval_leakage.harness.tasks.order_status import documented  # imports scipy

        documented(metadata)
    file = metadata.get("data_files")
    if isinstance(file, str) and file and "\0" not in file and not Path(file).exists():
        raise ValueError(f"data_files is {file!r}, but there is no such file; check the path")
    refusal = refusal_of_keys(_keys(options), of_audits_only=len(audits) == len(tasks))
    if refusal and not any(may_make_its_data(task, options.include_path) for task in audits):
        raise ValueError(refusal)
    _check_seal(metadata, audits)


def _check_seal(metadata: Mapping[str, Any], audits: Sequence[str]) -> None:
    if metadata.get(SEAL_KEY) is not None:
        from lm_eval_leakage.harness.tasks.sealed import seal_in  # imports scipy

        seal_in(metadata[SEAL_KEY])
        return
    for audit in audits:
        _, suffix = split_name(audit) or ("", audit)
        if needs_seal(suffix):
            raise ValueError(no_seal(audit))


def _keys(options: Any) -> list[str]:
    """The user's keys of `--metadata`, without the model's arguments, which lm_eval adds to them."""
    return sorted((options.metadata or {}).keys() - (options.model_args or {}))
