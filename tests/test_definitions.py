"""Definitions of the package: unique public names, docstrings that are sentences, constants above functions."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lm_eval_leakage

PACKAGE = Path(lm_eval_leakage.__file__).parent
MODULES = {str(file.relative_to(PACKAGE)): ast.parse(file.read_text("utf-8")) for file in PACKAGE.rglob("*.py")}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
WITHOUT_VERB = {  # words with which a fragment begins
    *("As", "At", "By", "For", "From", "How", "In", "Of", "On", "That", "To", "What", "When", "Where"),
    *("Whether", "Which", "Who", "Whose", "Why", "With", "Without"),
}
FIRST_SENTENCE = re.compile(r"[A-Z`].*?[.:?](?=\s|$)", re.DOTALL)


def public_docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of a module and of its public definitions, methods included."""
    yield "module", ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
            yield node.name, ast.get_docstring(node) or ""


def is_sentence(docstring: str) -> bool:
    match = FIRST_SENTENCE.match(docstring)
    return match is not None and match[0].split()[0] not in WITHOUT_VERB


def constants_after_definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the constants below a function or class, without those that are made of one that stands above them."""
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            used = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            if used & defined:
                defined |= set(names)
            elif defined:
                yield from names


def test_no_two_public_functions_or_classes_share_a_name() -> None:
    places = defaultdict(list)
    for module, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_public_docstrings_begin_with_a_sentence(module: str) -> None:
    docstrings = public_docstrings(MODULES[module])
    assert [(name, text[:80]) for name, text in docstrings if text and not is_sentence(text)] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_constants_stand_above_functions_unless_they_are_made_of_them(module: str) -> None:
    assert list(constants_after_definitions(MODULES[module])) == []


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Return the files of a check.", True),
        ("The plan of a check: which runs it needs, and why.", True),
        ("`verify` compares both.\n\nMore.", True),
        ("Of the files of an outcome, by their names.", False),
        ("seed: by which questions were drawn; counted: whether tokens are counted", False),
        ("Return the files of a check", False),
    ],
)
def test_what_counts_as_a_sentence(docstring: str, expected: bool) -> None:
    assert is_sentence(docstring) == expected


def test_a_constant_below_a_function_is_reported_unless_it_uses_a_definition_above() -> None:
    tree = ast.parse("A = 1\ndef f(): ...\nB = 2\nTABLE = {'f': f}\nKEYS = tuple(TABLE)\nx: int = 3\n")
    assert list(constants_after_definitions(tree)) == ["B", "x"]
