"""Checks a command before it reads or computes anything: that it can write its output, and what it names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from lm_eval_leakage.files import QUESTION_FILES, check_writable
from lm_eval_leakage.harness.arguments import parsed_args
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.questions.named_fields import fields_named

WRITES_FOLDER = ("annotate", "clean", "simulate")
WRITES_FILE = ("report", "leaderboard")
NAMING_TASKS = ("run", "ls", "validate", "simulate")  # commands that need lm_eval's tasks
LISTINGS = (None, "tasks", "groups", "subtasks", "tags")  # what `ls` lists


def check_command_early(args: argparse.Namespace) -> None:
    """Raise ValueError, ImportError or OSError, with the remedy, for a command that cannot succeed, such as one whose
    output cannot be written."""
    place = getattr(args, "output_path", None)
    if place is not None and args.command in WRITES_FOLDER + WRITES_FILE:
        check_writable(place, folder=args.command in WRITES_FOLDER)
    if args.command in NAMING_TASKS:
        _check_named(args)


def _check_named(args: argparse.Namespace) -> None:
    """Check what a command names, its tasks above all."""
    from lm_eval_leakage.harness.model_checks import check_model
    from lm_eval_leakage.harness.preflight import preflight

    if args.command == "run":
        _check_run(args)
        return
    of_ls = args.command == "ls" and args.what not in LISTINGS
    if args.command == "ls" and not of_ls and args.orders:
        raise ValueError("--orders is for a task; name it, as in `lm-eval-leakage ls mmlu --orders`")
    audits = getattr(args, "audits", [FIRST_AUDIT] if of_ls and args.orders else ())
    named, models, metadata = _names(args), [], getattr(args, "metadata", None) or {}
    if args.command == "simulate":
        models = [(args.model, parsed_args(text)) for text in (args.model_args, args.reference) if text]
        check_model(args.model, audits)
    preflight(
        [name for name in named if not name.endswith(QUESTION_FILES)],
        models,
        audits=audits,
        include_path=args.include_path,
        data_files=metadata.get("data_files"),
        files=[name for name in named if name.endswith(QUESTION_FILES)],
        fields=fields_of_files(getattr(args, "fields", None), named),
    )


def fields_of_files(given: str | None, named: Sequence[str]) -> Mapping[str, str]:
    """Return which fields --fields names. Raises ValueError if it is wrong, or if no file is named."""
    if given is None:
        return {}
    if not any(name.endswith(QUESTION_FILES) for name in named):
        raise ValueError(f"--fields is {given!r}, but no file of questions is named; name one, or leave out --fields")
    return fields_named(given)


def _check_run(args: argparse.Namespace) -> None:
    """Check the options of `run`. With --config, what the file says is checked when lm_eval has read it."""
    from lm_eval_leakage.harness.preflight import check_run_options

    if args.config is None:
        check_run_options(args)
    else:
        from lm_eval_leakage.jobs.plan_reading import names_in_file

        names_in_file(Path(args.config))


def _names(args: argparse.Namespace) -> list[str]:
    """Return the tasks that a command names."""
    if args.command == "ls":
        return [] if args.what in LISTINGS else args.what.split(",")
    given = [args.tasks] if isinstance(args.tasks, str) else args.tasks or []
    return [name for task in given for name in task.split(",")]
