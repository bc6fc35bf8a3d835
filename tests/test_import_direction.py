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
    {"digests"},
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


def package(module: str) -> str:
    """Return the package of a module, such as `detectors` for `lm_eval_leakage.detectors.option_orders`; empty for the
    top."""
    return [*module.split("."), ""][1]


def imports(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def ours(file: Path) -> list[str]:
    return [name for name in imports(file) if name.split(".")[0] == "lm_eval_leakage"]


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def tier(name: str) -> int:
    return next(index for index, packages in enumerate(TIERS) if name in packages)


def test_no_import_points_up() -> None:
    for file in MODULES:
        for name in ours(file):
            here, there = package(module_name(file)), package(name)
            if not here:  # the public API; test_public_api.py: what it loads
                assert there != "cli"
            elif there not in {"", here, "task_configs_path", "question_from_doc", "__version__"}:
                assert tier(there) > tier(here), f"{module_name(file)} imports {name}"


def test_only_harness_and_cli_import_the_harness() -> None:
    others = [file for file in MODULES if package(module_name(file)) not in {"harness", "cli", ""}]
    assert not [(file, name) for file in others for name in imports(file) if name.split(".")[0] == "lm_eval"]


def test_only_the_reader_of_runs_imports_the_reader_of_other_tools() -> None:
    names = {module_name(file): ours(file) for file in MODULES}
    importers = [here for here, there in names.items() if any(".logs.other_tools" in name for name in there)]
    assert importers == ["lm_eval_leakage.logs.runs"]


def test_no_import_within_the_harness_points_up() -> None:
    def part(name: str) -> str:
        subpackage = [*name.split("."), "", ""][2]
        return subpackage if (PACKAGE / "harness" / subpackage).is_dir() or subpackage == "table" else ""

    tiers = {subpackage: place for place, tier in enumerate(HARNESS_TIERS) for subpackage in tier}
    for file in MODULES:
        for name in ours(file) if package(module_name(file)) == "harness" else ():
            here, there = part(module_name(file)), part(name)
            if name.startswith("lm_eval_leakage.harness.") and here != there:
                assert tiers[there] > tiers[here], f"{module_name(file)} imports {name}"


def test_modules_have_no_import_cycle() -> None:
    modules = {module_name(file) for file in MODULES}
    graph: dict[str, set[str]] = {}
    for file in MODULES:
        here = module_name(file)
        names = {part for name in ours(file) for part in (name, name.rpartition(".")[0])}
        # a package's __init__ is always loaded before its modules
        graph[here] = {name for name in names & modules if not here.startswith(f"{name}.") and name != here}
    graph["lm_eval_leakage"] = set()
    TopologicalSorter(graph).prepare()
