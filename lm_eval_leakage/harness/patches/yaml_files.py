"""Reads YAML files of tasks with lm_eval's private loader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.patches.patching import found

LOADER = "lm_eval.tasks._yaml_loader"


def task_settings(file: Path | str) -> dict[str, Any]:
    """A task's settings, with its includes resolved and its functions imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=True))


def unresolved_settings(file: Path | str) -> dict[str, Any]:
    """The same with functions as paths, so that nothing is imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=False))


def own_settings(file: Path | str) -> dict[str, Any]:
    """What a YAML itself says, without its includes, whose names are under `include`."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=False, recursive=False))


def function_named(name: str, folder: Path) -> Callable[..., Any]:
    """The function such as `utils.process_docs` of a task whose YAML is in `folder`."""
    imported: Callable[..., Any] = found(f"{LOADER}:_import_func_in_yml")(name, folder)
    return imported
