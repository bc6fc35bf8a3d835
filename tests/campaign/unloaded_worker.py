"""A worker without a model and without the harness: what becomes of a unit is told by the name of its task."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, now
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.jobs.units import Unit

LOADED = "loaded"  # folder with a file for each worker that was made


class UnloadedWorker:
    def __init__(self, folder: CampaignFolder, model: str, name: str) -> None:
        self.folder, self.name = folder, name
        file = folder.path / LOADED / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        file.write_text(json.dumps({"model": model, "pid": os.getpid(), "gpus": gpus, "cwd": str(Path.cwd())}))

    def __enter__(self) -> UnloadedWorker:
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder.path / LOADED / f"{self.name}.json").with_suffix(".ended").touch()

    def run(self, unit: Unit) -> Attempt:
        begun = time.monotonic()
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
        attempt = Attempt(unit, error is None, time.monotonic() - begun, 1, 1, error, False, self.name, now())
        self.folder.record(attempt)
        return attempt

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
