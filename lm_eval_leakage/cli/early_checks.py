"""Checks of what a command names, before lm_eval's tasks are indexed or a model is loaded."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm_eval_leakage.harness.checks.task_names import check_task_names

FILES = (".json", ".jsonl", ".parquet")  # of questions, which `orders` and `simulate` take instead of a task
LISTINGS = (None, "tasks", "groups", "subtasks", "tags")  # what `ls` lists


def check_early(args: argparse.Namespace) -> None:
    """Raises ValueError, ImportError or OSError, with the remedy, for a command that cannot succeed."""
    if args.command == "run":
        _check_run(args)
    else:
        check_task_names([name for name in _names(args) if not name.endswith(FILES)], args.include_path)
    if args.command in ("simulate", "check") and args.model and isinstance(args.model_args, str):
        from lm_eval.utils import simple_parse_args_string

        from lm_eval_leakage.harness.checks.foreseen import check_model

        check_model(args.model, getattr(args, "audits", ()), simple_parse_args_string(args.model_args))


def _check_run(args: argparse.Namespace) -> None:
    """With --config, what the file says is checked when lm_eval has read it."""
    from lm_eval_leakage.harness.checks.run_checks import check_before_index

    if args.config is None:
        check_before_index(args)
    elif not Path(args.config).is_file():
        raise ValueError(f"--config is {args.config!r}, but there is no such file; check the path")


def _names(args: argparse.Namespace) -> list[str]:
    """The tasks that a command names."""
    if args.command == "ls":
        return [] if args.what in LISTINGS else [args.what]
    if args.command == "orders":
        return [args.task]
    given = [args.tasks] if isinstance(args.tasks, str) else args.tasks or []
    named = [name for task in given for name in task.split(",")]
    return named if getattr(args, "control", None) is None else [*named, args.control]
