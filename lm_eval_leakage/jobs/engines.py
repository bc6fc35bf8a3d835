"""Engines: what starts workers, on this machine or others, and hands them units."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Generic, Protocol, TypeVar

from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue, lost_attempt
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.units import Unit

INLINE, LOCAL, RAY, SLURM = "inline", "local", "ray", "slurm"
GROUP = "lm_eval_leakage.engines"  # of entry points, by which another package adds one
PLACES = {
    INLINE: "unit_worker:InlineEngine",
    LOCAL: "local_engine:LocalEngine",
    RAY: "ray_engine:RayEngine",
    SLURM: "slurm_engine:SlurmEngine",
}  # imported when used: made from the plan, the folder and the address
CLASSES = {name: EntryPoint(name, f"lm_eval_leakage.jobs.{place}", GROUP) for name, place in PLACES.items()}
EXTRAS = {RAY: "ray", SLURM: "submitit"}  # the package that an engine needs
MOST_STARTING = 16  # workers of a model
STARTS = 3  # workers of a model that may fail in a row before they have a unit
Tell = Callable[[Attempt], None]
Begun = Callable[[Unit, str], None]

logger = logging.getLogger(__name__)


class CampaignEngine(Protocol):
    """Starts workers and places them."""

    @property
    def description(self) -> str:
        """What it is, for the user: `local, 1 worker`."""

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """Runs units until each is done or given up. If it is interrupted, its workers end, but for jobs of a cluster.

        tell: called with every attempt as it ends. Attempts that were lost with their worker are recorded by the
            engine, all others by the worker
        begun: called with a unit and the name of the worker that begins it
        """


def engine_of(name: str | None, address: str | None, plan: Plan, folder: CampaignFolder) -> CampaignEngine:
    """The engine of this name; raises ValueError or ImportError, with the remedy, if it cannot be used.

    name: None takes Ray if it is installed and there is an address or more than one accelerator, else this machine
    address: of a Ray cluster; `local` for jobs of submitit on this machine
    """
    engine: CampaignEngine = entry_of(name or usual_engine(address), address).load()(plan, folder, address)
    return engine


def entry_of(name: str, address: str | None) -> EntryPoint:
    """Where the engine of this name is; raises ValueError or ImportError for what is known without it."""
    known = {one.name: one for one in entry_points(group=GROUP)} | CLASSES
    if name not in known:
        raise ValueError(f"engine is {name!r}; choose one of: {', '.join(sorted(known))}")
    if address is not None and name in (INLINE, LOCAL):
        raise ValueError(f"address is {address!r}, which is for --engine ray and slurm; leave it out for this machine")
    package = EXTRAS.get(name)
    if package is not None and find_spec(package) is None:
        raise ImportError(
            f"--engine {name} needs {package}, which is not installed; run `pip install 'lm-eval-leakage[{name}]'`"
        )
    return known[name]


def usual_engine(address: str | None) -> str:
    if address is not None:
        return RAY
    return RAY if find_spec(EXTRAS[RAY]) is not None and n_accelerators() > 1 else LOCAL


def n_accelerators() -> int:
    """GPUs that this process may use."""
    import torch

    return int(torch.cuda.device_count())


# ---------------------------------------------------------------------- workers


class Worker(ABC):
    """A process with one loaded model, as the engine that has started it sees it.

    unit: that it works on; None while it is started
    since: when that began, by the monotonic clock
    """

    def __init__(self, model: str, name: str) -> None:
        self.model, self.name = model, name
        self.unit: Unit | None = None
        self.since = time.monotonic()

    @abstractmethod
    def hand(self, unit: Unit) -> None:
        """Has it begin a unit."""

    @abstractmethod
    def end(self) -> None:
        """Ends it with its children: at once if it works on a unit, else when it has freed what its model holds."""


AWorker = TypeVar("AWorker", bound=Worker)


class Crew(ABC, Generic[AWorker]):
    """An engine whose workers each load one model and take units of it, one after another.

    Who is wanted and what is tried again is the same wherever they are: the next worker is of the model with most
    waiting units for each of its workers, and one that finds no unit waiting ends.

    called: how the names of its workers begin, before a number
    most: workers at once
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, called: str, most: float) -> None:
        self.plan, self.folder, self.called, self._most = plan, folder, called, most
        self.workers: list[AWorker] = []
        self._n_started, self._failed_starts = 0, Counter[str]()

    @abstractmethod
    def started(self, model: str, name: str) -> AWorker:
        """A new worker, to which `heard` will attend."""

    @abstractmethod
    def heard(self) -> Iterable[tuple[AWorker, Attempt | str | None]]:
        """What workers tell, after a second at most: the attempt that has ended, why the worker was lost (as the end
        of a sentence), or nothing, if it is ready for its first unit."""

    def has_room(self, model: str) -> bool:
        """Whether a worker of this model can be started now."""
        return True

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        self.queue, self._tell, self._begun = UnitQueue(units, self.plan), tell, begun
        try:
            while not self.queue.finished:
                while (model := self._wanted()) is not None:
                    self._n_started += 1
                    self.workers.append(self.started(model, f"{self.called}-{self._n_started}"))
                for worker, told in self.heard():
                    self._hear(worker, told)
                self._end_late()
        finally:
            for worker in self.workers:
                worker.end()

    def _end_late(self) -> None:
        minutes = self.plan.minutes or float("inf")
        for worker in [*self.workers]:
            if worker.unit is not None and time.monotonic() - worker.since > 60 * minutes:
                too_long = f"it took longer than minutes: {minutes:g} allows; give more"
                self._lose(worker, worker.unit, too_long, lost=False)

    def _wanted(self) -> str | None:
        """The model of which a worker is to be started now. At first one of each model is being started, then as many
        as run, so that few wait for a place where there is none."""
        if len(self.workers) >= self._most:
            return None
        waiting, own = self.queue.models_with_work(), Counter(worker.model for worker in self.workers)
        starting = Counter(worker.model for worker in self.workers if worker.unit is None)
        free = [
            model
            for model in waiting
            if starting[model] < min(waiting[model], MOST_STARTING, max(1, own[model] - starting[model]))
            and own[model] < (self.plan.model(model).workers or self._most)
            and self.has_room(model)
        ]
        return max(free, key=lambda model: waiting[model] / (1 + own[model]), default=None)

    def _hear(self, worker: AWorker, told: Attempt | str | None) -> None:
        if isinstance(told, str):
            if worker.unit is None:
                self._not_started(worker, told)
            else:
                self._lose(worker, worker.unit, f"its worker {told}")
            return
        self._failed_starts[worker.model] = 0
        if told is not None:
            self._ended(told)
        worker.unit, worker.since = self.queue.take(worker.model), time.monotonic()
        if worker.unit is None:
            self.remove(worker)
        else:
            worker.hand(worker.unit)
            self._begun(worker.unit, worker.name)

    def _ended(self, attempt: Attempt) -> None:
        self.queue.returned(attempt)
        self._tell(attempt)

    def _lose(self, worker: AWorker, unit: Unit, error: str, *, lost: bool = True) -> None:
        self.remove(worker)
        self.folder.lose(unit, worker.name)
        attempt = lost_attempt(unit, worker.name, error, time.monotonic() - worker.since, lost=lost)
        self.folder.record(attempt)
        self._ended(attempt)

    def _not_started(self, worker: AWorker, why: str) -> None:
        self.remove(worker)
        self._failed_starts[worker.model] += 1
        logger.warning("worker %s could not be started: it %s", worker.name, why)
        if self._failed_starts[worker.model] >= STARTS:
            self.give_up(worker.model, f"{STARTS} workers in a row could not be started; the last one {why}")

    def remove(self, worker: AWorker) -> None:
        self.workers.remove(worker)
        worker.end()

    def give_up(self, model: str, reason: str) -> None:
        """The units of a model that wait are named as failed; the next start of the plan tries them again."""
        for worker in [one for one in self.workers if one.unit is None and one.model == model]:
            self.remove(worker)
        for unit in self.queue.given_up(model):
            attempt = lost_attempt(unit, self.called, reason, 0.0, lost=False)
            self.folder.record(attempt)
            self._tell(attempt)
