"""The command `lm-eval-leakage`, which parses its arguments, calls one function and prints."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from functools import partial
from importlib.metadata import version

from lm_eval_leakage import __version__, task_configs_path
from lm_eval_leakage.cli.check import add_check_arguments, run_check
from lm_eval_leakage.cli.command_checks import LISTINGS, NAMING_TASKS, check_command_early
from lm_eval_leakage.cli.completion import add_completion
from lm_eval_leakage.cli.ending import CONDITION_MET, run_or_exit
from lm_eval_leakage.cli.output import be_quiet
from lm_eval_leakage.cli.result_commands import COMMANDS_ON_RESULTS
from lm_eval_leakage.cli.seal_command import seal, seal_arguments
from lm_eval_leakage.cli.tasks import ls_arguments, run_describe
from lm_eval_leakage.harness.seams import pth_hook as hook
from lm_eval_leakage.harness.seams.command_line import CommandLine, command_line, command_name, help_text
from lm_eval_leakage.harness.seams.refusals import REFUSED
from lm_eval_leakage.lab.settings import add_arguments as simulate_arguments

OF_OURS = (ValueError, ImportError)  # only our own commands turn these into one sentence


def run_simulate(args: argparse.Namespace) -> None:
    """Contaminate a copy of a model on purpose and measure how well each detector notices."""
    from lm_eval_leakage.lab import outcome_report as report
    from lm_eval_leakage.lab.settings import simulation_settings
    from lm_eval_leakage.lab.simulation import simulate as run

    outcome = run(simulation_settings(args), args.output_path)
    print(report.write_report(outcome, args.output_path))


def path() -> None:
    """Print the folder of the leakage tasks, for the harness's --include_path."""
    print(task_configs_path())


def enable() -> None:
    """Make plain `lm_eval` in this environment know the leakage tasks and models."""
    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        print("nothing to do: this harness discovers the leakage tasks itself")
        return
    try:
        hook.write_hook(file)
    except OSError as error:
        raise ValueError(
            f"cannot write {file} ({error.strerror}); enable the hook as a user who may write to this environment, "
            "or run `lm-eval-leakage` instead of `lm_eval`"
        ) from error
    print(f"enabled: plain `lm_eval` knows the leakage tasks (hook: {file})")


def disable() -> None:
    """Undo `enable`."""
    file = hook.hook_file()
    if not file.exists():
        print("nothing to do: the hook is not enabled")
        return
    file.unlink()
    print(f"disabled: {file} is removed")


def status() -> None:
    """Say whether plain `lm_eval` knows the leakage tasks, and how."""
    file = hook.hook_file()
    if hook.harness_discovers_plugins():
        how = "by the harness's own plugin discovery"
    else:
        how = f"by the hook {file}" if file.exists() else "no; run `lm-eval-leakage plugin enable`"
        if file.exists() and not hook.is_current(file):
            how += ", written by another version; run `lm-eval-leakage plugin enable` again"
    print(f"lm_eval_leakage {__version__}, lm_eval {version('lm_eval')}")
    print(f"tasks: {task_configs_path()}")
    print(f"known to plain `lm_eval`: {how}")


ACTIONS = {action.__name__: action for action in (enable, disable, status, path)}


def plugin(args: argparse.Namespace) -> None:
    """Make plain `lm_eval` know the leakage tasks and models, or undo that."""
    ACTIONS[args.action]()


def plugin_arguments(parser: argparse.ArgumentParser) -> None:
    meanings = "; ".join(f"{name}: {help_text(action)}" for name, action in ACTIONS.items())
    parser.add_argument("action", choices=tuple(ACTIONS), help=meanings)


COMMANDS = {
    run_check: add_check_arguments,
    plugin: plugin_arguments,
    run_simulate: simulate_arguments,
    seal: seal_arguments,
    **COMMANDS_ON_RESULTS,
}


def main() -> None:
    run_or_exit(_main)


def commands() -> CommandLine:
    """Return the whole command line: lm_eval's commands and ours."""
    cli = command_line(COMMANDS, run_describe, ls_arguments)
    versions = f"lm_eval_leakage {__version__}, lm_eval {version('lm_eval')}, Python {platform.python_version()}"
    cli.parser.add_argument("--version", action="version", version=versions, help="print the versions and exit")
    add_completion(cli.parser)
    return cli


def _main() -> None:
    cli = commands()
    args = cli.parse_args()
    be_quiet(getattr(args, "quiet", False))
    run_or_exit(partial(check_command_early, args), user_errors=OF_OURS)
    if args.command in NAMING_TASKS:
        _extend_harness(args)
    if args.command in map(command_name, COMMANDS) or (args.command == "ls" and args.what not in LISTINGS):
        run_or_exit(partial(cli.execute, args), user_errors=OF_OURS)
    else:
        run_or_exit(partial(_execute_of_lm_eval, cli, args))


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
