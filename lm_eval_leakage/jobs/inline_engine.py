"""The engine that is this process: it works for one model after the other, each loaded once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from lm_eval_leakage.jobs.engines import LOOK_S, JobEngine
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.loaded_tasks import LoadedTasks
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.steps import ReadyUnit
from lm_eval_leakage.jobs.unit_runner import OnScreen, UnitRunner
from lm_eval_leakage.jobs.worker import run_next


class InlineEngine(JobEngine):
    """An engine in this process, whose only worker runs a unit at each call of `ended`.

    tasks, screen: as for `UnitRunner`
    """

    description = "in this process"

    def __init__(
        self,
        plan: Plan,
        folder: CampaignFolder,
        address: str | None = None,
        *,
        tasks: LoadedTasks | None = None,
        screen: OnScreen | None = None,
    ) -> None:
        for name, most in (("workers", 1), ("minutes", 0)):
            if (given := getattr(plan, name) or most) > most:
                raise ValueError(
                    f"{name} is {given:g}, but --engine inline is this one process; leave it out, or choose another "
                    "engine"
                )
        super().__init__(plan, folder, 1)
        self._tasks, self._screen = tasks, screen
        self._runner: UnitRunner | None = None
        self._left: Sequence[ReadyUnit] = ()

    def __enter__(self) -> InlineEngine:
        if self._screen is not None:
            files = self.folder.ready_files()
            self._left = [ReadyUnit.read(files[unit]) for unit in self.folder.left(files)]
        return self

    def start(self, model: str, name: str) -> None:
        self.workers[name] = model
        loaded = self.plan.model(model).loaded
        self._runner = UnitRunner(
            self.folder, model, name, loaded=loaded, tasks=self._tasks, screen=self._screen, left=self._left
        )

    def ended(self) -> Mapping[str, str | None]:
        for name, model in self.workers.items():
            if self._runner is not None and run_next(self.folder, self.plan.retries, model, name, self._runner):
                return {}
            self.stop(name)
            return {name: None}
        time.sleep(LOOK_S)
        return {}

    def stop(self, name: str) -> None:
        del self.workers[name]
        if self._runner is not None:
            self._runner.close()
            self._runner = None
