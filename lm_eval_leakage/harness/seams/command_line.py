"""Keeps git quiet where there is no repository: lm_eval asks git for a commit at the end of every run, and git then
prints `fatal: not a git repository`, which reads like the failure of a check.

Adds our commands to lm_eval's command line, through its private argument parser.

lm_eval 0.4.13 builds its parser within `HarnessCLI` and offers no way to add a command; entry points for commands
would replace this.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from lm_eval_leakage.harness.seams.patching import patched_once, seam_object
from lm_eval_leakage.texts import did_you_mean

GET_HASH = "lm_eval.evaluator:get_git_commit_hash"
Command = Callable[[argparse.Namespace], None]
AddArguments = Callable[[argparse.ArgumentParser], object]
PROGRAM = "lm-eval-leakage"
DESCRIPTION = "Leakage audits with the Language Model Evaluation Harness"
DESCRIPTION_OF_LS = "list tasks; or say of one which audits it has, or whether its published orders are random"
EXAMPLE = "example:\n  lm-eval-leakage --model hf --model_args pretrained=gpt2 --tasks mmlu_leakage_perm"
NAME_OF_HARNESS = re.compile(r"\blm-eval (?=run\b|ls\b|list\b|validate\b|--)")  # its own name, in usages and examples
INSTEAD = {("check", "--limit"): "--questions"}  # of a command, for an option that lm_eval's `run` has
UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (-[^\s=]+)")


def ask_git_only_in_repositories() -> None:
    """Call git only inside a repository. The results file is the same: without a repository, its `git_hash` is
    null."""
    patched_once(GET_HASH, _quiet)


def _quiet(original: Callable[[], str | None]) -> Callable[[], str | None]:
    def get_git_commit_hash() -> str | None:
        here = Path.cwd()
        return original() if any((folder / ".git").exists() for folder in (here, *here.parents)) else None

    return get_git_commit_hash


class CommandLine:
    """Parses lm_eval's command line with our commands."""

    def __init__(self) -> None:
        seam_object("lm_eval._cli:HarnessCLI.__init__")
        cli = import_module("lm_eval._cli").HarnessCLI()
        self.parser: argparse.ArgumentParser = cli._parser
        self.subparsers, self._parse = cli._subparsers, cli.parse_args
        self.commands: Mapping[str, argparse.ArgumentParser] = self.subparsers.choices

    def parse_args(self) -> argparse.Namespace:
        """Return the command as typed; exits with a sentence for a misspelled command or option."""
        first = (sys.argv[1:] or [""])[0]
        if first.startswith("-") and first.partition("=")[0] in self.parser._option_string_actions:
            return self.parser.parse_args()  # lm_eval would take it for an option of `run`
        if first and not first.startswith("-") and first not in self.commands:
            self.parser.error(f"{first!r} is not a command{did_you_mean(first, self.commands)}")
        parsed: argparse.Namespace = self._parse()
        return parsed

    def execute(self, args: argparse.Namespace) -> None:
        args.func(args)


def command_line(commands: Mapping[Command, AddArguments], describe: Command, add_to_ls: AddArguments) -> CommandLine:
    """Return the command line; `run`, `ls`, `validate` and the old form without a subcommand are lm_eval's.

    commands: our own, each with what adds its arguments
    describe: called by `ls` with the name of a task; add_to_ls: adds its arguments
    """
    cli = CommandLine()
    parser, subparsers = cli.parser, cli.subparsers
    parser.prog, parser.description, parser.epilog = PROGRAM, DESCRIPTION, EXAMPLE
    for name, of_harness in subparsers.choices.items():
        _name_after_us(of_harness, name)
    for command, add_arguments in commands.items():
        name = command_name(command)
        subparser = subparsers.add_parser(
            name,
            help=help_text(command),
            description=help_text(command),
            allow_abbrev=False,
            conflict_handler="resolve",  # a command may have a `--help` of its own
        )
        subparser.set_defaults(func=command)
        subparser.prog = f"{PROGRAM} {name}"
        add_arguments(subparser)
        if "--quiet" not in subparser._option_string_actions:
            subparser.add_argument(
                "--quiet", action="store_true", help="print only the result, without notes of progress"
            )
    _extend_ls(subparsers, describe, add_to_ls)
    _suggest_options(parser, cli.commands)
    return cli


def command_name(command: Callable[..., None]) -> str:
    """Return what the user types: the function's name without `run_`."""
    return command.__name__.removeprefix("run_")


def help_text(command: Callable[..., None]) -> str:
    """Return the docstring of a command as argparse's help texts read, without capital letter and full stop."""
    text = command.__doc__ or ""
    return f"{text[:1].lower()}{text[1:].removesuffix('.')}"


def iter_arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Return the arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from iter_arguments(command)


def _name_after_us(parser: argparse.ArgumentParser, name: str) -> None:
    """Makes lm_eval's own command show our program's name, so that what its help prints runs as printed."""
    parser.prog = f"{PROGRAM} {name}"
    parser.usage = parser.usage and NAME_OF_HARNESS.sub(f"{PROGRAM} ", parser.usage)
    parser.epilog = parser.epilog and NAME_OF_HARNESS.sub(f"{PROGRAM} ", parser.epilog)
    for action in parser._actions:
        action.help = action.help and NAME_OF_HARNESS.sub(f"{PROGRAM} ", action.help)


def _suggest_options(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Makes the error for an unknown option name the nearest ones of the command."""
    error = parser.error

    def with_nearest(message: str) -> NoReturn:
        unknown = UNKNOWN_OPTION.search(message)
        name = (sys.argv[1:] or [""])[0]
        command = commands.get(name)
        if unknown and (name, unknown[1]) in INSTEAD:
            message = f"{name} has no {unknown[1]}; give {INSTEAD[name, unknown[1]]}, which are drawn at random"
        elif unknown and command is not None:
            message += did_you_mean(unknown[1], [name for name in command._option_string_actions if name[:2] == "--"])
        error(message)

    parser.error = with_nearest  # type: ignore[method-assign]


def _extend_ls(subparsers: Any, describe: Command, add_to_ls: AddArguments) -> None:
    """Makes `ls` also accept the name of a task; argparse exposes a parser's arguments only as `_actions`."""
    parser = subparsers.choices["ls"]
    what = next(action for action in parser._actions if action.dest == "what")
    of_harness, original = tuple(what.choices), parser.get_default("func")
    what.choices, what.metavar = None, f"{{{','.join(of_harness)},TASK}}"
    what.help = "what to list; or a task, group or tag, to see which audits it has and why not others"
    parser.usage, parser.description = None, DESCRIPTION_OF_LS
    parser.set_defaults(func=lambda args: (original if args.what in (None, *of_harness) else describe)(args))
    add_to_ls(parser)
