"""Reads from a model's source, without importing it, which arguments it takes and which requests it cannot answer.

Importing `hf` takes seconds, and importing a model whose packages are missing is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOTS = ("lm_eval", "lm_eval_leakage")
READING = {"create_from_arg_string", "create_from_arg_obj"}  # of classes that read their arguments in their own way
AT_THE_TOP = ("LM", "TemplateLM")  # of lm_eval.api.model: every model's base classes


@dataclass(frozen=True)
class ModelSource:
    """What a model's class and its base classes say.

    parameters, required: arguments by name, and those without a default
    takes_others: whether unknown arguments are passed on, to transformers for example
    refused: methods that only raise NotImplementedError
    classes: names of the class and its base classes
    """

    parameters: frozenset[str]
    required: tuple[str, ...]
    takes_others: bool
    refused: frozenset[str]
    classes: tuple[str, ...]


@cache
def model_source(target: str) -> ModelSource | None:
    """Of a class, given as `module:Class`; None if its source cannot be found."""
    classes = list(_lineage(*target.split(":"))) if target else []
    if not classes or not all(isinstance(one, ast.ClassDef) for one in classes):
        return None
    methods: dict[str, ast.FunctionDef] = {}
    arguments: list[ast.arguments] = []
    for one in classes:
        own = {node.name: node for node in one.body if isinstance(node, ast.FunctionDef)}
        methods = own | methods
        if "__init__" in own and (not arguments or arguments[-1].kwarg):
            arguments.append(own["__init__"].args)
    if READING & methods.keys():
        arguments = []
    return ModelSource(
        parameters=frozenset(name for found in arguments for name in _named(found)),
        required=tuple(dict.fromkeys(name for found in arguments for name in _required(found))),
        takes_others=not arguments or arguments[-1].kwarg is not None,
        refused=frozenset(name for name, method in methods.items() if _only_refuses(method)),
        classes=tuple(one.name for one in classes),
    )


def _lineage(module: str, name: str) -> Iterator[ast.ClassDef]:
    """The class and its first base classes, from the most derived."""
    tree = _tree(module)
    if tree is None:
        return
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        where = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        if name in where:
            yield from _lineage(*where[name])
        return
    yield found
    for base in found.bases[:1]:
        if isinstance(base, ast.Name) and base.id not in AT_THE_TOP:
            yield from _lineage(module, base.id)


@cache
def _tree(module: str) -> ast.Module | None:
    if module.split(".")[0] not in ROOTS:
        return None
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _named(found: ast.arguments) -> Iterator[str]:
    yield from (one.arg for one in (*found.posonlyargs, *found.args, *found.kwonlyargs) if one.arg != "self")


def _required(found: ast.arguments) -> Iterator[str]:
    n_required = len(found.args) - len(found.defaults)
    yield from (one.arg for one in found.args[:n_required] if one.arg != "self")


def _only_refuses(method: ast.FunctionDef) -> bool:
    first, *others = [node for node in method.body if not _is_docstring(node)] or [ast.Pass()]
    if others or not isinstance(first, ast.Raise) or first.exc is None:
        return False
    raised = first.exc.func if isinstance(first.exc, ast.Call) else first.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
