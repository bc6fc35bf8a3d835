"""Completes commands, options and file names in a shell, by a script of shtab that runs no Python."""

from __future__ import annotations

import argparse

import shtab

from lm_eval_leakage.harness.seams.command_line import iter_arguments

SHELLS = ("bash", "zsh", "tcsh")
FOLDERS = ("FOLDER", "DIR", "RUNS")  # metavars


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add an option that prints a completion script.

    The script completes the commands of `parser`, their options, choices, files and folders.
    """
    for action in iter_arguments(parser):
        if action.metavar in FOLDERS or action.dest == "output_path":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE" or action.dest == "config":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    parser.add_argument(
        "--print-completion",
        action=shtab.completion_action(),
        choices=SHELLS,
        help="print a completion script for this shell (docs/cli.md)",
    )
