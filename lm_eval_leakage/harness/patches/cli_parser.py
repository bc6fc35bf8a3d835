"""Adds our commands to lm_eval's command line, through its private argument parser.

lm_eval 0.4.13 builds its parser within `HarnessCLI` and offers no way to add a command; entry points for commands
would replace this. If lm_eval builds its parser differently, only our own commands are available, with a warning.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval_leakage.harness.patches.patching import found, is_as_known

Command = Callable[[argparse.Namespace], None]
AddArguments = Callable[[argparse.ArgumentParser], None]
PROGRAM = "lm-eval-leakage"
DESCRIPTION = "Leakage audits with the Language Model Evaluation Harness"
EXAMPLE = "example:\n  lm-eval-leakage --model hf --model_args pretrained=gpt2 --tasks mmlu_leakage_perm"


def command_line(commands: Mapping[str, Command], arguments: Mapping[str, AddArguments], list_audits: Command) -> Any:
    """An object with `parse_args()` and `execute(args)`. `run`, `ls`, `validate` and the old form without a subcommand
    are lm_eval's.

    commands: our own commands by name; a command's docstring is its help text
    arguments: functions that add a command's own arguments, for the commands that have any
    list_audits: called by `ls` with the name of a task
    """
    cli = _of_harness() or _OwnCommandsOnly()
    parser, subparsers = cli._parser, cli._subparsers
    parser.prog, parser.description, parser.epilog = PROGRAM, DESCRIPTION, EXAMPLE
    for name, command in commands.items():
        own = subparsers.add_parser(name, help=command.__doc__, description=command.__doc__)
        own.set_defaults(func=command)
        own.prog = f"{PROGRAM} {name}"
        if name in arguments:
            arguments[name](own)
    _extend_ls(subparsers, list_audits)
    return cli


def _of_harness() -> Any:
    """lm_eval's command line; None if it is built differently from what we know."""
    return found("lm_eval._cli:HarnessCLI")() if is_as_known("lm_eval._cli:HarnessCLI.__init__") else None


class _OwnCommandsOnly:
    """The part of HarnessCLI's interface that is needed here."""

    def __init__(self) -> None:
        self._parser = argparse.ArgumentParser(prog=PROGRAM, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._parser.set_defaults(func=lambda args: self._parser.print_help())
        self._subparsers = self._parser.add_subparsers(dest="command", metavar="COMMAND")

    def parse_args(self) -> argparse.Namespace:
        return self._parser.parse_args()

    def execute(self, args: argparse.Namespace) -> None:
        args.func(args)


def _extend_ls(subparsers: Any, list_audits: Command) -> None:
    """Makes `ls` also accept the name of a task; argparse exposes a parser's arguments only as `_actions`."""
    parser = subparsers.choices.get("ls")
    what = next((action for action in getattr(parser, "_actions", ()) if action.dest == "what"), None)
    if parser is None or what is None or what.choices is None:
        return
    of_harness, original = tuple(what.choices), parser.get_default("func")
    what.choices, what.metavar = None, f"{{{','.join(of_harness)},TASK}}"
    what.help = "what to list; or a task, group or tag, to see which audits it has and why not others"
    parser.usage = None
    parser.set_defaults(func=lambda args: (original if args.what in (None, *of_harness) else list_audits)(args))
