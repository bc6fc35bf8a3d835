"""Adds our commands to the command line of lm_eval, by the parser that it keeps to itself.

lm_eval 0.4.13 builds its parser within `HarnessCLI` and offers no way to add a command; entry points for commands
would replace this. With a command line that is built otherwise there are our own commands only, and a warning.
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
    """An object of `parse_args()` and `execute(args)`. `run`, `ls` and `validate` are lm_eval's; so is the old form
    without a subcommand.

    commands: our own by name; each prints what it finds, its docstring is its help
    arguments: what adds a command's own arguments, for those that take any
    list_audits: what `ls` does when it is given the name of a task
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
    """None where lm_eval builds its command line otherwise."""
    return found("lm_eval._cli:HarnessCLI")() if is_as_known("lm_eval._cli:HarnessCLI.__init__") else None


class _OwnCommandsOnly:
    """As much of HarnessCLI as is needed here."""

    def __init__(self) -> None:
        self._parser = argparse.ArgumentParser(prog=PROGRAM, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._parser.set_defaults(func=lambda args: self._parser.print_help())
        self._subparsers = self._parser.add_subparsers(dest="command", metavar="COMMAND")

    def parse_args(self) -> argparse.Namespace:
        return self._parser.parse_args()

    def execute(self, args: argparse.Namespace) -> None:
        args.func(args)


def _extend_ls(subparsers: Any, list_audits: Command) -> None:
    """`ls` also takes the name of a task; argparse tells the arguments of a parser by `_actions` only."""
    parser = subparsers.choices.get("ls")
    what = next((action for action in getattr(parser, "_actions", ()) if action.dest == "what"), None)
    if parser is None or what is None or what.choices is None:
        return
    of_harness, original = tuple(what.choices), parser.get_default("func")
    what.choices, what.metavar = None, f"{{{','.join(of_harness)},TASK}}"
    what.help = "what to list; or a task, group or tag, to see which audits it has and why not others"
    parser.usage = None
    parser.set_defaults(func=lambda args: (original if args.what in (None, *of_harness) else list_audits)(args))
