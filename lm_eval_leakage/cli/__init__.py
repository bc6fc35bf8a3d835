"""`lm-eval-leakage`: parse, call one function, print."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from functools import partial

from lm_eval_leakage import __version__
from lm_eval_leakage.cli import of_results
from lm_eval_leakage.cli.arguments import ARGUMENTS as OF_RESULTS
from lm_eval_leakage.cli.check import check, check_arguments
from lm_eval_leakage.cli.ending import (
    CONDITION_MET,
    LISTINGS,
    add_completion,
    be_quiet,
    check_early,
    check_place,
    end_in_words,
)
from lm_eval_leakage.cli.plugin_command import plugin, plugin_arguments
from lm_eval_leakage.cli.seal_command import seal, seal_arguments
from lm_eval_leakage.cli.tasks import describe, ls_arguments
from lm_eval_leakage.harness.seams.command_line import Command, CommandLine, command_line
from lm_eval_leakage.harness.seams.patching import REFUSED


def simulate(args: argparse.Namespace) -> None:
    """contaminate a copy of a model on purpose and measure how well each detector notices"""
    from lm_eval_leakage.lab import command
    from lm_eval_leakage.lab import outcome_report as report
    from lm_eval_leakage.lab.simulation import simulate as run

    outcome = run(command.settings(args), args.output_path)
    print(report.write(outcome, args.output_path))


OF_OURS = (ValueError, ImportError, RecursionError)  # only our own commands turn these into one sentence
COMMANDS = (check, plugin, simulate, seal)
# commands that need lm_eval's tasks
NAMING_TASKS = ("run", "ls", "validate", "simulate")


def main() -> None:
    end_in_words(_main)


def commands() -> CommandLine:
    """The whole command line: lm_eval's commands and ours."""
    from lm_eval_leakage.lab.command import add_arguments

    known: tuple[Command, ...] = (*COMMANDS, *of_results.COMMANDS_ON_RESULTS)
    arguments = {"check": check_arguments, "plugin": plugin_arguments, "seal": seal_arguments}
    arguments |= {"simulate": add_arguments, **OF_RESULTS}
    found = command_line({one.__name__: one for one in known}, arguments, describe, ls_arguments)
    found.parser.add_argument("--version", action="version", version=versions(), help="print the versions and exit")
    add_completion(found.parser)
    return found


def versions() -> str:
    """Of this package, lm_eval and Python."""
    from importlib.metadata import version

    return f"lm_eval_leakage {__version__}, lm_eval {version('lm_eval')}, Python {platform.python_version()}"


def _main() -> None:
    cli = commands()
    args = cli.parse_args()
    be_quiet(getattr(args, "quiet", False))
    end_in_words(partial(check_place, args), refusals=OF_OURS)
    if args.command in NAMING_TASKS:
        end_in_words(partial(check_early, args), refusals=OF_OURS)
        _extend_harness(args)
    ours = {one.__name__ for one in (*COMMANDS, *of_results.COMMANDS_ON_RESULTS)}
    if args.command in ours or (args.command == "ls" and args.what not in LISTINGS):
        end_in_words(partial(cli.execute, args), refusals=OF_OURS)
    else:
        end_in_words(partial(_execute_of_lm_eval, cli, args))


def _execute_of_lm_eval(cli: CommandLine, args: argparse.Namespace) -> None:
    try:
        cli.execute(args)
    except SystemExit as end:  # with 1 for any failure, which here is that of a condition that was met
        sys.exit(REFUSED if end.code == CONDITION_MET else end.code)


def _extend_harness(args: argparse.Namespace) -> None:
    from lm_eval.tasks.manager import TaskManager
    from lm_eval.utils import setup_logging

    from lm_eval_leakage.harness import extend_harness

    setup_logging(logging.WARNING if getattr(args, "quiet", False) else logging.INFO)
    extend_harness(TaskManager)
