"""The engine of a Ray cluster, or of a Ray of this machine's own: workers are actors.

Ray places them, reports which are lost, and ends them with the driver. A worker is started before Ray has a place for
it, so that clusters that grow on demand do.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import lm_eval_leakage
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.engines import LOOK_S, JobEngine
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.ray_actor import RunnerMaker, WorkerActor, mark_of
from lm_eval_leakage.jobs.ray_cluster import cause_of, check_reachable, connected, head_address
from lm_eval_leakage.jobs.ray_places import amounts, cpus_of_worker, warnings_of_gpus, why_no_place

HEAD_S = 15.0  # a head that was not reached for so long is gone; after 60 s Ray would end this process with status 1
MOST_WAITING = 16  # workers of a model that wait for a place
PLACE_S = 1800.0  # a model waits so long for a node that is large enough, if no worker is running

logger = logging.getLogger(__name__)


@dataclass
class _Actor:
    """A worker in Ray, placed or waiting for a place.

    handle: Ray's, of the actor
    n_cpus: that Ray reserves for it
    call: Ray's reference to what it does: that it is placed and ready or, if `is_placed`, its work
    """

    handle: Any
    n_cpus: float
    call: Any
    is_placed: bool = False


class RayEngine(JobEngine):
    """An engine whose workers are actors of a Ray cluster.

    address: of a Ray cluster; None takes RAY_ADDRESS, else starts Ray on this machine until the plan is done
    maker: see `WorkerActor`
    """

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, maker: RunnerMaker | None = None
    ) -> None:
        super().__init__(plan, folder, plan.workers or float("inf"))
        self._address, self._maker, self._mark = address, maker, uuid4().hex
        self._actors: dict[str, _Actor] = {}
        self._connection = ExitStack()

    @property
    def description(self) -> str:
        return f"ray, {self._address or 'this machine'}"

    def __enter__(self) -> RayEngine:
        """Connect to the cluster; raises ValueError if it cannot be used."""
        atomic_write(mark_of(self.folder.path), self._mark)
        is_of_our_own = self._connection.enter_context(connected(self._address))
        self._head, self._last_reached = head_address(), time.monotonic()
        self._patience, self._last_placed = 0.0 if is_of_our_own else PLACE_S, time.monotonic()
        for sentence in warnings_of_gpus(self.plan):
            logger.warning(sentence)
        return self

    def __exit__(self, *error: Any) -> None:
        with self._connection:
            super().__exit__(*error)

    def has_room(self, model: str) -> bool:
        """Return whether another worker may wait for a place.

        At first one of each model waits, then as many as have a place, so that few wait in vain.
        """
        is_placed = Counter(self._actors[name].is_placed for name, other in self.workers.items() if other == model)
        return is_placed[False] < min(MOST_WAITING, max(1, is_placed[True]))

    def start(self, model: str, name: str) -> None:
        """Ask Ray for a place, which may take as long as others need theirs."""
        import ray

        n_cpus = cpus_of_worker(self.plan, model)
        options = {"num_cpus": n_cpus, "num_gpus": self.plan.model(model).gpus, "max_restarts": 0}
        handle = ray.remote(WorkerActor).options(**options)
        handle = handle.remote(self.plan, model, self.folder.path.absolute(), name, self._maker)
        call = handle.ready.remote(self._mark, lm_eval_leakage.__version__, Path.cwd())
        self.workers[name], self._actors[name] = model, _Actor(handle, n_cpus, call)

    def ended(self) -> Mapping[str, str | None]:
        import ray

        if not self._reaches_head():
            time.sleep(LOOK_S)
            return {}
        if any(actor.is_placed for actor in self._actors.values()):
            self._last_placed = time.monotonic()
        self._ask_again_for_fewer()
        names = {actor.call: name for name, actor in self._actors.items()}
        if not names:
            time.sleep(LOOK_S)
        calls, _ = ray.wait(list(names), num_returns=len(names), timeout=LOOK_S) if names else ([], [])
        reasons: dict[str, str | None] = {}
        for call in calls:
            actor, name = self._actors[names[call]], names[call]
            try:
                ray.get(call)
            except ray.exceptions.RayError as error:
                reasons[name] = f"was lost: {cause_of(error)}"
            else:
                if actor.is_placed:
                    reasons[name] = None
                else:
                    actor.is_placed, actor.call = True, actor.handle.work.remote()
        for name in reasons:
            self.stop(name)
        return reasons

    def stop(self, name: str) -> None:
        import ray

        del self.workers[name]
        ray.kill(self._actors.pop(name).handle)

    def why_hopeless(self, model: str) -> str | None:
        """Return why no node is large enough; None while a larger one may still come."""
        is_patient = time.monotonic() - self._last_placed <= self._patience
        return None if is_patient else why_no_place(self.plan.model(model))

    def _reaches_head(self) -> bool:
        """Return whether the cluster's head accepts connections; until it does again, nothing is asked of Ray.

        Raises ConnectionError for a head that is gone. Its workers are not ended one by one, for which Ray would wait:
        they end with their cluster.
        """
        moment = time.monotonic()
        try:
            check_reachable(self._head)
        except OSError as error:
            if moment - self._last_reached < HEAD_S:
                return False
            self.workers.clear()
            self._actors.clear()
            raise ConnectionError(
                f"the head of the Ray cluster at {self._head} is gone ({error}); start the cluster again, then the "
                "same command, which continues with the units that are not done"
            ) from error
        self._last_reached = moment
        return True

    def _ask_again_for_fewer(self) -> None:
        """Start workers again that wait for more CPUs than any node has left."""
        for name, actor in [*self._actors.items()]:
            is_waiting = not actor.is_placed and actor.n_cpus > 1
            if is_waiting and actor.n_cpus > max(amounts("CPU"), default=0.0):
                model = self.workers[name]
                self.stop(name)
                self.start(model, name)
