"""Imports point down only. Tiers are listed top to bottom; modules may import lower tiers and their own package."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import lm_eval_leakage

PACKAGE = Path(lm_eval_leakage.__file__).parent
TIERS = [
    {"cli"},
    {"jobs"},
    {"lab"},
    {"harness"},
    {"results"},
    {"logs", "detectors", "seal"},
    {"stats", "questions", "scoring"},
    {"registry", "records", "files", "texts"},
]
HARNESS_TIERS = [  # within harness/, whose own modules may import all of them
    {"plugin"},
    {""},
    {"tasks"},
    {"models", "table"},
    {"seams"},
]
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """`lm_eval_leakage.detectors.option_orders` -> `statistics`; `lm_eval_leakage` itself -> ``."""
    return [*module.split("."), ""][1]


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def ours(file: Path) -> list[str]:
    return [name for name in imports(file) if name.split(".")[0] == "lm_eval_leakage"]


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def tier(name: str) -> int:
    return next(index for index, rooms in enumerate(TIERS) if name in rooms)


def test_no_import_points_up() -> None:
    for file in MODULES:
        _check_direction(file)


def _check_direction(file: Path) -> None:
    here = room(module_name(file))
    if not here:
        assert "cli" not in {room(name) for name in ours(file)}  # the public API; test_public_api.py: what it loads
        return
    for name in ours(file):
        there = room(name)
        if there in {"", here} or there in {"task_configs_path", "question_from_doc", "__version__"}:
            continue
        assert tier(there) > tier(here), f"{module_name(file)} imports {name}"


def test_only_harness_and_cli_import_the_harness() -> None:
    others = [file for file in MODULES if room(module_name(file)) not in {"harness", "cli", ""}]
    assert not [(file, name) for file in others for name in imports(file) if name.split(".")[0] == "lm_eval"]


def test_no_import_within_the_harness_points_up() -> None:
    for file in MODULES:
        if room(module_name(file)) == "harness":
            _check_direction_within_the_harness(file)


def _check_direction_within_the_harness(file: Path) -> None:
    def tier_of(name: str) -> int:
        own = [*name.split("."), "", ""][2]
        own = own if (PACKAGE / "harness" / own).is_dir() or own == "table" else ""
        return next(index for index, rooms in enumerate(HARNESS_TIERS) if own in rooms)

    here = module_name(file)
    for name in ours(file):
        if name.startswith("lm_eval_leakage.harness."):
            same = name.split(".")[2] == [*here.split("."), "", ""][2] or tier_of(here) == tier_of("..") == tier_of(
                name
            )
            assert same or tier_of(name) > tier_of(here), f"{here} imports {name}"


def test_modules_have_no_import_cycle() -> None:
    known = {module_name(file) for file in MODULES}
    graph: dict[str, set[str]] = {}
    for file in MODULES:
        here = module_name(file)
        names = {part for name in ours(file) for part in (name, name.rpartition(".")[0])}
        # a package's __init__ is always loaded before its modules
        graph[here] = {name for name in names & known if not here.startswith(f"{name}.") and name != here}
    graph["lm_eval_leakage"] = set()
    TopologicalSorter(graph).prepare()
