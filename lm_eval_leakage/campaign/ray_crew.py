"""The workers of a campaign on Ray: who is started, what each takes next, what is done when one is lost or late.

Ray places workers and tells when one is lost; it restarts none of them. Where a model has waiting units and no worker,
one is started for it; when every such model has one, further workers are started for as long as Ray finds places.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.engines import Begun, Tell, lost_attempt
from lm_eval_leakage.campaign.ray_cluster import largest, living_nodes, total
from lm_eval_leakage.campaign.ray_worker import Errand, RayWorker, WorkerState, cause_of
from lm_eval_leakage.campaign.time_limit import engine_limit, too_long
from lm_eval_leakage.campaign.unit_queue import UnitQueue
from lm_eval_leakage.campaign.units import Unit

LONGEST_WAIT_S = 1.0  # how often deadlines and nodes are looked at while nothing happens
STARTS = 3  # workers of a model that may fail in a row before they have a unit
PLACE_S = 1800.0  # a model waits so long for a node that is large enough, if no worker is running

logger = logging.getLogger(__name__)


@dataclass
class RayCrew:
    """The workers of a campaign, and what the driver knows of them.

    patience: seconds that a model waits for a node that is large enough, once nothing else goes on
    """

    errand: Errand
    folder: CampaignFolder
    queue: UnitQueue
    tell: Tell
    begun: Begun
    patience: float
    workers: list[RayWorker] = field(default_factory=list)
    n_started: int = 0
    failed_starts: Counter[str] = field(default_factory=Counter)
    last_running: float = field(default_factory=time.monotonic)
    token: str = field(default_factory=lambda: uuid4().hex[:6])

    # ------------------------------------------------------------------ the loop

    def work(self) -> None:
        """Until every unit is done or given up, and every worker has ended."""
        import ray

        while not self.queue.finished or self.workers:
            self._dismiss_unneeded()
            self._hire()
            if doing := {worker.waits_for: worker for worker in self.workers}:
                told, _ = ray.wait(list(doing), timeout=self._seconds_to_look())
                for reference in told:
                    self._hear(doing[reference])
            self._stop_late()
            self._give_up_unplaceable()

    def leave(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _seconds_to_look(self) -> float:
        limits = [worker.until - time.monotonic() for worker in self.workers if worker.until is not None]
        return max(0.0, min([LONGEST_WAIT_S, *limits]))

    # ------------------------------------------------------------------ who works

    def _hire(self) -> None:
        for model in self._wanted():
            self.n_started += 1
            name = f"{model}-ray-{self.token}-{self.n_started}"
            settings = self.errand.plan.model(model)
            self.workers.append(RayWorker.started(self.errand, settings, name, self._cpus(model)))

    def _wanted(self) -> Iterator[str]:
        """Models for which a worker is to be started now. As many of a model are started at once as are working, so
        that a free cluster fills quickly and few wait for a place in a full one."""
        waiting = self.queue.models_with_work()
        starting, working = self._count(WorkerState.STARTING), self._count(WorkerState.WORKING)
        room = (self.errand.plan.workers or float("inf")) - starting.total() - working.total()
        first = [model for model in waiting if not starting[model] + working[model]]
        first.sort(key=lambda model: (self._why_no_place(model) is not None, -self.errand.plan.model(model).gpus))
        further = [] if first or any(not working[model] for model in starting) else list(waiting)
        for model in first + further:
            most = self.errand.plan.model(model).workers or float("inf")
            n_new = min(max(1, working[model]), waiting[model], most - working[model]) - starting[model]
            for _ in range(int(max(0, min(n_new, room)))):
                room -= 1
                yield model

    def _count(self, state: WorkerState) -> Counter[str]:
        return Counter(worker.model for worker in self._all(state))

    def _all(self, state: WorkerState) -> list[RayWorker]:
        return [worker for worker in self.workers if worker.state is state]

    def _cpus(self, model: str) -> float:
        """Of one worker. Without a GPU, workers share the CPUs if their number is limited, else each has one."""
        settings, plan = self.errand.plan.model(model), self.errand.plan
        most = settings.workers or plan.workers
        if settings.gpus or most is None:
            return 1.0
        return max(1.0, min(total("CPU") // most, largest("CPU")))

    def _dismiss_unneeded(self) -> None:
        """Workers that wait for a place while others have taken the units, or for a node that is gone."""
        waiting = self.queue.models_with_work()
        starting = self._count(WorkerState.STARTING)
        for worker in self._all(WorkerState.STARTING):
            is_too_many = starting[worker.model] > waiting.get(worker.model, 0)
            if is_too_many or (worker.n_cpus > 1 and worker.n_cpus > largest("CPU")):
                starting[worker.model] -= 1
                self._drop(worker)

    def _drop(self, worker: RayWorker) -> None:
        worker.kill()
        self.workers.remove(worker)

    # ------------------------------------------------------------------ what workers tell

    def _hear(self, worker: RayWorker) -> None:
        import ray

        try:
            told = ray.get(worker.waits_for)
        except ray.exceptions.RayError as error:
            self._lost(worker, cause_of(error))
            return
        if worker.state is WorkerState.ENDING:
            self._drop(worker)
            return
        if isinstance(told, Attempt):
            self._ended(told)
        self._occupy(worker)

    def _occupy(self, worker: RayWorker) -> None:
        self.failed_starts[worker.model] = 0
        unit = self.queue.take(worker.model)
        if unit is None:
            worker.end()
            return
        worker.give(unit, engine_limit(self.errand.plan.minutes))
        self.begun(unit, worker.name)

    def _ended(self, attempt: Attempt) -> None:
        self.queue.returned(attempt)
        self.tell(attempt)

    def _lost(self, worker: RayWorker, cause: str) -> None:
        self._drop(worker)
        if worker.unit is not None:
            self._record(worker, worker.unit, f"the worker was lost: {cause}")
        elif worker.state is WorkerState.STARTING:
            self.failed_starts[worker.model] += 1
            logger.warning("worker %s could not be started: %s", worker.name, cause)
            if self.failed_starts[worker.model] >= STARTS:
                self._give_up(worker.model, f"{STARTS} workers in a row could not be started: {cause}")

    def _stop_late(self) -> None:
        now = time.monotonic()
        for worker in [one for one in self.workers if one.is_late(now)]:
            self._drop(worker)
            if worker.unit is not None:
                self._record(worker, worker.unit, too_long(self.errand.plan.minutes or 0.0), lost=False)

    def _record(self, worker: RayWorker, unit: Unit, error: str, *, lost: bool = True) -> None:
        attempt = lost_attempt(unit, worker.name, error, worker.seconds, lost=lost)
        self.folder.record(attempt)
        self._ended(attempt)

    # ------------------------------------------------------------------ models that no worker can take

    def _give_up_unplaceable(self) -> None:
        """Models for which no node is large enough, once nothing else goes on."""
        now = time.monotonic()
        if len(self._all(WorkerState.STARTING)) < len(self.workers):
            self.last_running = now
        elif now - self.last_running > self.patience:
            for model in list(self.queue.models_with_work()):
                if reason := self._why_no_place(model):
                    self._give_up(model, reason)

    def _why_no_place(self, model: str) -> str | None:
        gpus = self.errand.plan.model(model).gpus
        if gpus > largest("GPU"):
            return f"{model} needs a node with {gpus} GPUs, and the largest has {largest('GPU'):g}"
        return None if living_nodes() else "the cluster has no node left"

    def _give_up(self, model: str, reason: str) -> None:
        """The units of a model that wait are named as failed; the next start of the campaign tries them again."""
        for worker in [one for one in self._all(WorkerState.STARTING) if one.model == model]:
            self._drop(worker)
        named: set[Unit] = set()
        while (unit := self.queue.take(model)) is not None:  # the queue hands out each one as often as it may be tried
            attempt = lost_attempt(unit, f"{model}-ray-{self.token}", reason, 0.0, lost=False)
            self.queue.returned(attempt)
            if unit not in named:
                named.add(unit)
                self.folder.record(attempt)
                self.tell(attempt)
