"""The audits that any task can have, each described by a file `_<suffix>_yaml`: of ours, or of a detector package."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lm_eval.tasks._yaml_loader import load_yaml

from lm_eval_leakage import task_configs_path
from lm_eval_leakage.registry import detector_packages

logger = logging.getLogger(__name__)
# By which logs are known as those of audits where the detector is not installed.
SUFFIX = re.compile(r"leakage_[a-z_]+")


@cache
def templates() -> dict[str, Path]:
    """By suffix. Nothing is imported for this, since every run of the harness looks names up."""
    found = dict(_in(task_configs_path()))
    for package in detector_packages():
        for suffix, file in _in(package.folder):
            if (why := _refusal(suffix, file, found)) is None:
                found[suffix] = file
            else:
                logger.warning("%s is left out: %s", file, why)
    return found


def _in(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.glob("_*_yaml")):
        yield file.name[1:].removesuffix("_yaml"), file


def _refusal(suffix: str, file: Path, taken: dict[str, Path]) -> str | None:
    """Why a template of another distribution cannot be used; None where it can."""
    if suffix in taken:
        return f"{taken[suffix]} describes the audit {suffix!r} already; give this file another name"
    if not SUFFIX.fullmatch(suffix):
        return f"the audit would be called {suffix!r}; call the file _leakage_<name>_yaml, in small letters"
    try:
        shape = load_yaml(file, resolve_func=False)
    except Exception as error:  # of the YAML's parser, or of what it includes
        return f"it cannot be read ({error!r})"
    if not isinstance(shape.get("metadata"), dict) or "probe" not in shape["metadata"] or not shape.get("filter_list"):
        return "it must name the statistics in `filter_list`, and in `metadata` the probe"
    return None
