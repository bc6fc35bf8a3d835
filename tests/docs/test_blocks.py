"""Whatever README and the site print for copying is accepted by the program that it is meant for."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, Block, all_blocks, all_commands, inline_code

Accepted = Callable[[list[str]], bool]
OF_THE_READER = ("my_detectors",)  # packages that a page asks its reader to write


def short(value: object) -> str:
    return " ".join(value)[:70] if isinstance(value, list) else str(value)


@pytest.mark.parametrize(("block", "words"), all_commands(), ids=short)
def test_the_argument_parsers_accept_a_command(block: Block, words: list[str], accepted: Accepted) -> None:
    assert accepted(words), f"{block}: {' '.join(words)}"


def test_many_commands_are_checked() -> None:
    """Among them those behind launchers, prompts, continued lines and list items."""
    pages = {str(block).partition(":")[0] for block, _ in all_commands()}
    assert len(all_commands()) > 50
    assert {"README.md", "docs/howto/clusters.md", "docs/lab.md", "docs/howto/own_benchmark.md"} <= pages


@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_a_python_block_compiles_and_finds_what_it_imports(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text, str(block))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            assert module.startswith(OF_THE_READER) or find_spec(module), f"{block}: {module}"
        if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(OF_THE_READER):
            module = importlib.import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{block}: {node.module} has no {missing}"


@pytest.mark.parametrize("block", all_blocks("yaml"), ids=str)
def test_a_yaml_block_parses(block: Block) -> None:
    assert isinstance(yaml.safe_load(block.text), dict | list)


@pytest.mark.parametrize("block", all_blocks("json"), ids=str)
def test_a_json_block_parses_line_by_line_or_as_a_whole(block: Block) -> None:
    try:
        json.loads(block.text)
    except ValueError:
        assert [json.loads(line) for line in block.text.splitlines()]


OTHER_PROGRAMS = ("python ", "pip ", "accelerate ", "lighteval ", "torchrun ", "vllm ", "sbatch ", "scancel ")


def test_every_option_that_a_sentence_names_exists(option_names: set[str]) -> None:
    named = {
        (str(page.relative_to(ROOT)), option)
        for page in PAGES
        for code in inline_code(page)
        if not code.startswith(OTHER_PROGRAMS)
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
    }
    assert len(named) > 60
    assert not sorted(pair for pair in named if pair[1] not in option_names)
