from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import pytest

from lm_eval_leakage.cli import commands
from lm_eval_leakage.harness.seams.command_line import CommandLine


@pytest.fixture(scope="session")
def command_line() -> CommandLine:
    return commands()


@pytest.fixture(scope="session")
def accepted(command_line: CommandLine) -> Callable[[list[str]], bool]:
    """Return whether the real parsers accept a command; nothing is run."""

    def parses(words: list[str]) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", list(words))  # which lm_eval changes
            try:
                command_line.parse_args()
            except SystemExit as end:
                return end.code == 0
        return True

    return parses


@pytest.fixture(scope="session")
def option_names(command_line: CommandLine) -> set[str]:
    return set(_options(command_line.parser))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
