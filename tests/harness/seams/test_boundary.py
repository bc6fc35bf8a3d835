"""Nothing outside harness/seams/ uses private parts of lm_eval; exceptions are listed here with their reasons."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import lm_eval_leakage

PACKAGE = Path(lm_eval_leakage.__file__).parent
PATCHES = PACKAGE / "harness" / "seams"
HARNESS = Path(next(iter(find_spec("lm_eval").submodule_search_locations)))
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if PATCHES not in file.parents)
ALLOWED = {
    ("harness/clean_task.py", "_yaml_loader"): "is copied into a folder that needs lm_eval and not this package",
    ("harness/tasks/task.py", "_filters"): "a task's pipelines, which have no public name",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@cache
def private_names_of_the_harness() -> frozenset[str]:
    """Names of attributes and functions in lm_eval's own modules, except those of tasks and rarely used models."""
    core = [*HARNESS.glob("*.py"), *HARNESS.glob("tasks/*.py"), HARNESS / "models" / "huggingface.py"]
    core += [
        file for part in ("api", "config", "loggers", "filters", "_cli") for file in (HARNESS / part).glob("*.py")
    ]
    names = set()
    for file in core:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
    return frozenset(filter(is_private, names))


def touches(source: str) -> Iterator[str]:
    """A module's uses of private parts of lm_eval: private names that it imports or uses, and attributes that it sets
    on what it imported."""
    tree = ast.parse(source)
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lm_eval":
            yield from (name for name in (node.module or "").split(".") if is_private(name))
            yield from (alias.name for alias in node.names if is_private(alias.name))
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            theirs = [alias for alias in node.names if alias.name.split(".")[0] == "lm_eval"]
            yield from (name for alias in theirs for name in alias.name.split(".") if is_private(name))
            imported |= {alias.asname or "lm_eval" for alias in theirs}
    definitions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if is_private(node.attr) and node.attr in private_names_of_the_harness() and node.attr not in definitions:
                yield node.attr
            if isinstance(node.ctx, (ast.Store, ast.Del)) and root(node.value) in imported:
                yield f"{root(node.value)}.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            yield node.func.id


def root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_other_module_touches_the_insides_of_the_harness(file: Path) -> None:
    here = file.relative_to(PACKAGE).as_posix()
    names = {what for what in touches(file.read_text(encoding="utf-8")) if (here, what) not in ALLOWED}
    assert not names, f"{here} touches {sorted(names)}; move that to harness/seams/ and to its table"


def test_every_exception_is_still_needed() -> None:
    for (file, what), reason in ALLOWED.items():
        assert what in set(touches((PACKAGE / file).read_text(encoding="utf-8"))), (file, what)
        assert reason
