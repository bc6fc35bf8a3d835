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
from lm_eval_leakage.cli.cost import cost, cost_arguments
from lm_eval_leakage.cli.ending import (
    CONDITION_MET,
    add_completion,
    be_quiet,
    check_early,
    checked,
    end_in_words,
    refuse,
    say,
)
from lm_eval_leakage.cli.plugin_command import plugin, plugin_arguments
from lm_eval_leakage.cli.seal_command import seal, seal_arguments
from lm_eval_leakage.harness.seams.command_line import Command, CommandLine, command_line
from lm_eval_leakage.harness.seams.patching import REFUSED


def simulate(args: argparse.Namespace) -> None:
    """contaminate a copy of a model on purpose and measure how well each detector notices"""
    from lm_eval_leakage.lab import command
    from lm_eval_leakage.lab import outcome_report as report
    from lm_eval_leakage.lab.simulation import simulate as run

    outcome = run(command.settings(args), args.output_path)
    print(report.write(outcome, args.output_path))


def orders(args: argparse.Namespace) -> None:
    """test from a task's questions alone, without a model, whether their published orders of options are random"""
    from lm_eval_leakage.harness.tasks.given_questions import questions_of
    from lm_eval_leakage.results.published_orders import Documented, as_markdown, as_record, null_status, order_tests
    from lm_eval_leakage.texts import as_json

    documented = None if args.documented is None else Documented(*args.documented)
    metadata = {} if args.data_files is None else {"data_files": args.data_files}
    found = order_tests(questions_of(args.task, args.include_path, metadata))
    status = null_status(found, documented)
    say(as_json(as_record(found, status), indent=1) if args.format == "json" else as_markdown(found, status))


def list_audits(args: argparse.Namespace) -> None:
    """list the audits of one task, or of the tasks of a group or tag"""
    from lm_eval_leakage.harness.auditable import as_list, findings_of, task_index

    try:
        print(as_list(findings_of(args.what, task_index(args.include_path), each=True)))
    except KeyError:
        refuse(f"{args.what!r} is not a task, group or tag; `lm-eval-leakage ls tasks` lists them all")


def _orders_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="a task, group or tag of lm_eval, or a file of plain questions")
    _format_argument(parser)
    parser.add_argument("--data_files", metavar="FILE", help="a file of questions instead of the task's own data")
    parser.add_argument(
        "--documented",
        nargs=2,
        metavar=("STATUS", "SOURCE"),
        help="what the builder says about the orders (random, sealed or written), and where; shown beside the tests",
    )
    _include_path_argument(parser)


def _format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("markdown", "json"), default="markdown", help="output format (default: %(default)s)"
    )


def _include_path_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--include_path", metavar="DIR", help="a folder with additional tasks")


OF_OURS = (ValueError, ImportError, RecursionError)  # only our own commands turn these into one sentence
COMMANDS = (check, cost, plugin, simulate, orders, seal)
# commands that need lm_eval's tasks
NAMING_TASKS = ("run", "ls", "validate", "cost", "simulate", "orders")


def main() -> None:
    end_in_words(_main)


def commands() -> CommandLine:
    """The whole command line: lm_eval's commands and ours."""
    from lm_eval_leakage.lab.command import add_arguments

    known: tuple[Command, ...] = (*COMMANDS, *of_results.COMMANDS_ON_RESULTS)
    arguments = {
        "check": check_arguments,
        "cost": cost_arguments,
        "plugin": plugin_arguments,
        "seal": seal_arguments,
    }
    arguments |= {"orders": _orders_arguments, "simulate": add_arguments, **OF_RESULTS}
    found = command_line({one.__name__: checked(one) for one in known}, arguments, list_audits)
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
    if args.command in NAMING_TASKS:
        end_in_words(partial(check_early, args), refusals=OF_OURS)
        _extend_harness(args)
    ours = {one.__name__ for one in (*COMMANDS, *of_results.COMMANDS_ON_RESULTS)}
    if args.command in ours:
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
