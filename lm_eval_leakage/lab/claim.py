"""The folder of a simulation: for one process at a time, and for one set of settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import check_writable, write_whole
from lm_eval_leakage.lab.settings import Simulation

LOCK = ".lock"
CLAIM = "settings.json"
MAY_CHANGE = ("epochs", "detectors")


@contextmanager
def sole_use(folder: Path) -> Iterator[None]:
    """`folder` for this process alone; a kill gives it back. Raises ValueError where another process has it, or where
    it cannot be written."""
    from filelock import FileLock, Timeout

    check_writable(folder, folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise ValueError(
            f"{folder} is in use by another simulation; wait for its end, or give another output folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def check_claim(settings: Simulation, folder: Path) -> None:
    """Raises ValueError where `folder` holds results of other settings, which must not be mixed with these; epochs and
    detectors may be added to."""
    file = folder / CLAIM
    if not file.exists():
        return
    there, wanted = _read_claim(file), _claim_of(settings)
    if there is None and {entry.name for entry in folder.iterdir()} <= {CLAIM, LOCK}:
        return  # nothing was made under it
    if there is None:
        raise ValueError(
            f"{file} does not say of which settings the results beside it are (it is cut or damaged); give another "
            "output folder, or remove that one"
        )
    for key in {**there, **wanted}:
        if there.get(key) != wanted.get(key):
            raise ValueError(
                f"{folder} holds a simulation with {key} = {there.get(key)!r}, not {wanted.get(key)!r}; give "
                "another output folder, or remove that one"
            )


def claim(settings: Simulation, folder: Path) -> None:
    """Says of which settings the results in `folder` are."""
    if _read_claim(folder / CLAIM) is None:
        write_whole(folder / CLAIM, json.dumps(_claim_of(settings), indent=1))


def _claim_of(settings: Simulation) -> dict[str, Any]:
    wanted: Mapping[str, Any] = json.loads(json.dumps(asdict(settings)))
    fixed = {key: value for key, value in wanted.items() if key not in MAY_CHANGE}
    if settings.recipe.schedule != "constant":
        fixed["last epoch"] = max(settings.epochs)  # the schedule ends there
    return fixed


def _read_claim(file: Path) -> dict[str, Any] | None:
    """None where there is none, or half of one."""
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return there if isinstance(there, dict) else None
