"""Reads YAML files of tasks as lm_eval does, by functions that it keeps to itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.patches.patching import found

LOADER = "lm_eval.tasks._yaml_loader"


def task_settings(file: Path | str) -> dict[str, Any]:
    """A task's settings, those that it includes among them, with its functions imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=True))


def function_named(name: str, folder: Path) -> Callable[..., Any]:
    """The function `utils.process_docs` of a task whose YAML lies in `folder`."""
    imported: Callable[..., Any] = found(f"{LOADER}:_import_func_in_yml")(name, folder)
    return imported
