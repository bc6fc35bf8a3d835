"""One meaning per name: no two modules, public classes or constants of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import lm_eval_leakage

PACKAGE = Path(lm_eval_leakage.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
COPIED = PACKAGE / "harness" / "clean" / "clean_task.py"  # copied next to clean tasks, which run without this package


def defined(file: Path) -> Iterator[str]:
    """Public classes, constants and type aliases; type variables are local to their module."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, (ast.FunctionDef, ast.If)):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr) and isinstance(part.target, ast.Name):
                yield part.target.id
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and not _is_type_variable(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and name.id[0].isupper():
                        yield name.id


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "TypeVar"


def test_a_class_or_constant_is_defined_once() -> None:
    places = defaultdict(list)
    for file in FILES:
        for name in dict.fromkeys(defined(file)) if file != COPIED else ():
            if name[0].isupper():
                places[name].append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_modules_or_packages_share_a_name() -> None:
    places = defaultdict(list)
    for file in FILES:
        name = file.parent.name if file.name == "__init__.py" else file.stem
        places[name].append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
