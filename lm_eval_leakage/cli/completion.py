"""Completion of commands, options and file names in a shell, written by shtab: a script that runs no Python."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from lm_eval_leakage.harness.patches.cli_parser import arguments_of

SHELLS = ("bash", "zsh", "tcsh")
FOLDERS = ("FOLDER", "DIR", "RUNS")  # metavars


class _PrintCompletion(argparse.Action):
    """Prints the script for a shell and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        print(completion(parser, str(values)))
        parser.exit()


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        help="print a completion script for this shell (docs/cli.md)",
    )


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes the commands of `parser`, their options, choices, files and folders."""
    import shtab  # only here, so that it does not delay other commands

    for action in arguments_of(parser):
        if action.choices is None and (kind := _completes(action)):
            action.complete = shtab.DIRECTORY if kind == "folder" else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))


def _completes(action: argparse.Action) -> str:
    shown = action.metavar if isinstance(action.metavar, tuple) else (action.metavar,)
    if set(FOLDERS) & set(shown) or action.dest == "output_path":
        return "folder"
    return "file" if "FILE" in shown or action.dest == "config" else ""
