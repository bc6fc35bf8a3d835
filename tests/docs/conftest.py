from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lm_eval_leakage import cli


@pytest.fixture(scope="session")
def command_line() -> Any:
    """The whole command line, lm_eval's commands included, as `lm-eval-leakage` builds it."""
    from lm_eval_leakage.cli import of_results
    from lm_eval_leakage.cli.arguments import ARGUMENTS
    from lm_eval_leakage.harness.patches.cli_parser import command_line
    from lm_eval_leakage.lab.command import add_arguments

    known = {c.__name__: c for c in (*cli.COMMANDS, *of_results.COMMANDS_ON_RESULTS)}
    arguments = {
        "census": cli._census_arguments,
        "orders": cli._orders_arguments,
        "simulate": add_arguments,
        **ARGUMENTS,
    }
    return command_line(known, arguments, cli.list_audits)


@pytest.fixture(scope="session")
def accepted(command_line: Any) -> Callable[[list[str]], bool]:
    """Whether the real parsers accept a command; nothing is run."""

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
def option_names(command_line: Any) -> set[str]:
    return set(_options(command_line._parser))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)
