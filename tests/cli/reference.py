"""The commands in docs/cli.md: `python -m tests.cli.reference` writes them below the introduction.

They come from the parser, so that the page says what `--help` says; a test compares the two. Options of lm_eval's own
commands are left to lm_eval, since they change with its version; `ls` has further ones of ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import lm_eval_leakage
from lm_eval_leakage.cli import COMMANDS, commands
from lm_eval_leakage.harness.seams.command_line import PROGRAM, CommandLine, command_name, iter_arguments

PAGE = Path(lm_eval_leakage.__file__).parent.parent / "docs" / "cli.md"
COMMANDS_FROM_HERE = "## Commands\n"


def reference() -> str:
    """The page, in Markdown: its introduction as it is there, and all commands."""
    cli = commands()
    ours = [*map(command_name, COMMANDS), "ls"]
    introduction = PAGE.read_text(encoding="utf-8").partition(COMMANDS_FROM_HERE)[0]
    return "\n".join([introduction + COMMANDS_FROM_HERE, *_contents(cli, ours), *_sections(cli, ours)])


def _contents(cli: CommandLine, names: list[str]) -> Iterator[str]:
    yield from ("| command | what it does |", "|---|---|")
    yield from (f"| [`{name}`](#{name}) | {_cell(cli.commands[name].description)} |" for name in names)


def _sections(cli: CommandLine, names: list[str]) -> Iterator[str]:
    for name in names:
        command = cli.commands[name]
        arguments = [action for action in iter_arguments(command) if action.help != argparse.SUPPRESS]
        words = [_usage(action) for action in arguments if action.dest != "help"]
        positional_first = sorted(words, key=lambda word: word.startswith(("[-", "-")))
        yield from ("", f"### {name}", "", f"{_sentence(command.description)}.", "")
        yield from ("```text", " ".join([PROGRAM, name, *positional_first]), "```", "")
        yield from ("| argument | meaning |", "|---|---|")
        yield from (
            f"| {_names(action)} | {_cell(_meaning(action))} |" for action in arguments if action.dest != "help"
        )
    yield ""


def _usage(action: argparse.Action) -> str:
    shown = (action.option_strings[-1:] or [""])[0]
    word = f"{shown} {_value(action)}".strip()
    return word if action.required and action.nargs != "?" else f"[{word}]"


def _names(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{_value(action)}`"
    return ", ".join(f"`{f'{name} {_value(action)}'.strip()}`" for name in action.option_strings)


def _value(action: argparse.Action) -> str:
    """Return how the value of an argument is written."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    shown = action.metavar or (",".join(map(str, action.choices)) if action.choices else "")
    name = shown if action.metavar or not shown else f"{{{shown}}}"
    name = name or (action.dest.upper() if action.option_strings else action.dest)
    return {"+": f"{name} [{name} ...]", "*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), name)


def _meaning(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": PROGRAM}


def _sentence(text: str | None) -> str:
    return f"{(text or '')[:1].upper()}{(text or '')[1:]}"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
