"""A runner without a model and without the harness: the name of its task says what becomes of a unit."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from lm_eval_leakage.jobs.checked_plan import units_of
from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.steps import ReadyUnit, Step, UnitWork
from lm_eval_leakage.jobs.units import Unit

LOADED = "loaded"  # folder with a file for each worker that was made


class UnloadedRunner:
    def __init__(self, folder: CampaignFolder, model: str, name: str) -> None:
        self.folder, self.name = folder, name
        file = folder.path / LOADED / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        file.write_text(json.dumps({"model": model, "pid": os.getpid(), "gpus": gpus, "cwd": str(Path.cwd())}))

    def __enter__(self) -> UnloadedRunner:
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder.path / LOADED / f"{self.name}.json").with_suffix(".ended").touch()

    def run(self, unit: Unit, claim: Claim) -> None:
        start = time.monotonic()
        error = "it always fails" if unit.task == "fails" else None
        if unit.task == "dies" or (unit.task == "dies_once" and self._is_first(unit)):
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.task == "hangs" or (unit.task == "hangs_once" and self._is_first(unit)):
            self._is_first(unit)
            time.sleep(3600)
        if unit.task == "exits":
            raise RuntimeError("the worker itself is broken")
        if error is None:
            self.folder.conclude(unit, {})
        self.folder.record(
            Attempt(unit, error is None, time.monotonic() - start, 1, 1, error, False, self.name, now())
        )

    def _is_first(self, unit: Unit) -> bool:
        file = self.folder.path / "first" / unit.id.replace("/", "~")
        file.parent.mkdir(exist_ok=True)
        is_first = not file.exists()
        file.touch()
        return is_first


def workers_made(folder: CampaignFolder) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted((folder.path / LOADED).glob("*.json"))]


def a_plan(n_models: int = 2, tasks: tuple[str, ...] = ("one", "two"), **other: object) -> Plan:
    models = tuple(PlanModel(name=f"model{place}") for place in range(n_models))
    return Plan(**({"models": models, "tasks": tasks, "audits": (), "output_path": Path("unused")} | other))


def made_ready(plan: Plan, folder: CampaignFolder) -> list[Unit]:
    """Write the files of all units of a plan; return the units in their order."""
    units = units_of(plan)
    folder.make_ready(
        ReadyUnit(unit, place, plan.model(unit.model).who, (), (), Step(unit.task, "run"), UnitWork("t", {}, {}, {}))
        for place, unit in enumerate(units)
        if not folder.done(unit)
    )
    return units
