"""docs/cli.md and every printed command agree with the parser."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import lm_eval_leakage
from lm_eval_leakage.cli import commands
from lm_eval_leakage.cli.reference import reference
from lm_eval_leakage.harness.seams.command_line import arguments_of

PACKAGE = Path(lm_eval_leakage.__file__).parent
PAGE = PACKAGE.parent / "docs" / "cli.md"
PRINTED = re.compile(r"`((?:lm-eval-leakage|lm_eval)(?: [^`{}]+)?)`")


def test_the_page_is_what_the_parser_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "docs/cli.md is not up to date; run `python -m lm_eval_leakage.cli.reference > docs/cli.md`"
    )


def test_every_argument_of_our_commands_has_a_help_text() -> None:
    cli = commands()
    silent = [
        (name, action.dest)
        for name, command in cli.commands.items()
        for action in arguments_of(command)
        if not action.help
    ]
    assert silent == []


def test_only_options_for_programs_have_a_hyphen() -> None:
    """Others are spelled as lm_eval spells its own."""
    named = {text for action in arguments_of(commands().parser) for text in action.option_strings if text[:2] == "--"}
    assert {text for text in named if "-" in text[2:]} <= {
        "--allow-untold",
        "--fail-on",
        "--print-completion",
    }


@pytest.mark.parametrize(
    ("option", "of"),
    [
        ("--output_path", {"annotate", "clean", "report", "leaderboard", "calibrate", "identify", "simulate", "run"}),
        ("--include_path", {"run", "ls", "validate", "orders", "simulate", "clean"}),
        ("--calibrated_by", {"annotate", "clean", "report", "leaderboard", "identify", "prevalence"}),
    ],
)
def test_commands_that_do_the_same_spell_it_the_same(option: str, of: set[str]) -> None:
    having = {
        name for name, own in commands().commands.items() for a in arguments_of(own) if option in a.option_strings
    }
    assert of <= having


def printed() -> Iterator[tuple[str, str]]:
    """Each command in the texts of the package, docstrings included."""
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in PRINTED.findall(node.value):
                    yield file.name, " ".join(found.split())


@pytest.mark.parametrize(("file", "command"), sorted(set(printed())))
def test_a_command_that_a_message_prints_runs_as_printed(file: str, command: str, capsys) -> None:
    cli = commands()
    program, *words = shlex.split(command.partition(" > ")[0].replace(" COMMAND ", " report "))
    if program == "lm_eval":
        words = ["run", *words] if words and words[0].startswith("-") else words
    if not words or (len(words) == 1 and words[0][:1] != "-"):  # only the name of a command
        assert set(words) <= cli.commands.keys()
        return
    try:
        cli.parser.parse_args(words)
    except SystemExit as ended:
        if ended.code:
            pytest.fail(f"{file} prints `{command}`: {capsys.readouterr().err}")
