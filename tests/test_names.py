"""One meaning per name: a module, a public class and a constant are each found under one name in one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import lm_eval_leakage

PACKAGE = Path(lm_eval_leakage.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
COPIED = PACKAGE / "harness" / "clean" / "clean_task.py"  # runs beside a clean set, where nothing of ours is


def defined(file: Path) -> Iterator[str]:
    """Public classes, constants and aliases of types; type variables are of one module by their nature."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not _is_type_variable(node.value):
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
            if not name.startswith("_"):
                places[name].append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_module_has_a_name_of_its_own_which_is_no_rooms() -> None:
    places = defaultdict(list)
    for file in FILES:
        name = file.parent.name if file.name == "__init__.py" else file.stem
        places[name].append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
