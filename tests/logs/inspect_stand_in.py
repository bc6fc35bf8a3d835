"""The reader of inspect_ai that is used, for where it is not installed: logs in JSON become objects with the
same attributes, and a `.eval` is what a test says it holds. Tests with inspect_ai itself are in `test_other_tools`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


class Attributes(dict[str, Any]):
    """A mapping whose values are also attributes; those that a log leaves out are None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def attributes(value: object) -> Any:
    return json.loads(json.dumps(value), object_hook=Attributes)


def sample(key: int | str, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    usual = {"input": f"Question {key}?", "choices": ["yes", f"no {key}"], "target": "A"}
    return {"id": key, "epoch": epoch, **usual, **changes}


def scored(value: object, by: str = "choice") -> dict[str, Any]:
    return {"scores": {by: {"value": value}}}


def log_of(samples: Iterable[Mapping[str, Any]], **changes: Any) -> dict[str, Any]:
    """Return a log as inspect_ai writes it. `changes` replaces parts of `eval`."""
    written = list(samples)
    ids = list(dict.fromkeys(sample["id"] for sample in written))
    usual = {"created": "2026-01-02T03:04:05+00:00", "task": "pupils", "model": "hf/org/m", "model_args": {}}
    return {
        "version": 2,
        "status": "success",
        "eval": {**usual, "dataset": {"samples": len(ids), "sample_ids": ids}, **changes},
        "samples": written,
    }


def install(patch: pytest.MonkeyPatch, logs: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Put this reader in the place of inspect_ai.

    logs: the content of each `.eval`, by its name
    """

    def read_eval_log(file: str, header_only: bool = False) -> Any:
        place = Path(file)
        return attributes((logs or {}).get(place.name) or json.loads(place.read_text(encoding="utf-8")))

    package, log = ModuleType("inspect_ai"), ModuleType("inspect_ai.log")
    log.read_eval_log = read_eval_log  # type: ignore[attr-defined]
    package.log = log  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "inspect_ai", package)
    patch.setitem(sys.modules, "inspect_ai.log", log)
