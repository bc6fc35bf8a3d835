"""Carries out what a folder has ready: has an engine start workers, and records what was lost with them.

Which worker is started next, what becomes of units whose workers are gone and when a unit takes too long is the same
wherever workers are. All of it is decided from the folder, which is read once for each look.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence

from lm_eval_leakage.files import clock_of
from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.engines import JobEngine
from lm_eval_leakage.jobs.folder import CLAIMS, lost_attempt
from lm_eval_leakage.jobs.queue import Queue, read_queue, record_loss
from lm_eval_leakage.jobs.units import Unit

STARTS = 3  # workers of a model that may end in a row before they have a unit
ENDING_S = 60.0  # for workers that found nothing left: to free what their models hold
GONE = "its worker was gone, or silent for too long"

logger = logging.getLogger(__name__)


def carry_out(engine: JobEngine, report: Callable[[Queue], None] = lambda _: None, *, job: str = "") -> None:
    """Have workers run the units that are ready, until each is done or given up.

    report: called with what is left, at every look
    job: the name of a cluster's job that calls this for the units of its plan's only model, and with which the names
        of its workers begin; it does not wait for units that other workers have
    """
    supervisor = _Supervisor(engine, job)
    with engine:
        while True:
            queue = supervisor.look()
            report(queue)
            if not supervisor.goes_on(queue):
                return
            for name, reason in engine.ended().items():
                supervisor.bury(name, reason)


class _Supervisor:
    """The state of a driver's workers beside what the folder says: which have had a unit, and which models fail."""

    def __init__(self, engine: JobEngine, job: str) -> None:
        self._engine, self._folder, self._job = engine, engine.folder, job
        self._only_model = engine.plan.models[0].key if job else None
        self._session, self._n_started = secrets.token_hex(4), 0
        self._models: dict[str, str] = {}  # of all workers that were started
        self._with_units: set[str] = set()  # workers that have had one
        self._failed_starts = Counter[str]()
        self._blocked: dict[str, str] = {}  # models of which no worker is started any more, with the reason
        self._given_up: set[str] = set()
        self._last_needed = time.monotonic()

    def look(self) -> Queue:
        return read_queue(self._folder, self._engine.plan.retries, self._only_model)

    def goes_on(self, queue: Queue) -> bool:
        """Do what is to be done at a look; return False if nothing is left to wait for."""
        self._note_units(queue)
        self._stop_late(queue)
        self._end_lost(queue)
        self._give_up(queue)
        units = [unit for unit in queue.open if unit.model not in self._given_up]
        self._start(queue, units)
        if units or any(not self._job or _is_of(claim.worker, self._job) for claim in queue.claims.values()):
            self._last_needed = time.monotonic()
            return True
        for name in [*self._engine.workers]:
            if name not in self._with_units:
                self._engine.stop(name)
        return bool(self._engine.workers) and time.monotonic() - self._last_needed < ENDING_S

    def bury(self, name: str, reason: str | None) -> None:
        """Record what was lost with a worker that has ended."""
        queue, model = self.look(), self._models[name]
        claims = {unit: claim for unit, claim in queue.claims.items() if _is_of(claim.worker, name)}
        for unit, claim in claims.items():
            record_loss(self._folder, unit, claim, f"its worker {reason or 'ended within the unit'}")
        is_left = any(unit.model == model for unit in queue.open)
        if claims or name in self._with_units or any(_is_of(attempt.worker, name) for attempt in queue.attempts):
            self._failed_starts[model] = 0
            if reason and not claims:
                logger.warning("worker %s %s", name, reason)
        elif reason or is_left:
            why = reason or "ended without a unit"
            self._failed_starts[model] += 1
            logger.warning("worker %s could not be started: it %s", name, why)
            if self._failed_starts[model] >= STARTS:
                self._blocked[model] = f"{STARTS} workers in a row could not be started; the last one {why}"

    # ------------------------------------------------------------------ at each look

    def _note_units(self, queue: Queue) -> None:
        self._models |= self._engine.workers
        holders = [claim.worker for claim in queue.claims.values()]
        for name, model in self._engine.workers.items():
            if name not in self._with_units and any(_is_of(holder, name) for holder in holders):
                self._with_units.add(name)
                self._failed_starts[model] = 0

    def _stop_late(self, queue: Queue) -> None:
        minutes = self._engine.minutes
        for unit, claim in queue.claims.items():
            name = self._worker_of(claim)
            if minutes is not None and name is not None and claim.seconds > 60 * minutes:
                self._engine.stop(name)
                error = f"it took longer than minutes: {minutes:g} allows; give more"
                record_loss(self._folder, unit, claim, error, lost=False)

    def _end_lost(self, queue: Queue) -> None:
        """End the claims of workers of other drivers that are gone. Of its own, the engine says so."""
        others = {unit: claim for unit, claim in queue.claims.items() if self._worker_of(claim) is None}
        clock = clock_of(self._folder.path / CLAIMS) if others else 0.0
        for unit, claim in others.items():
            if claim.is_lost(clock):
                record_loss(self._folder, unit, claim, GONE)

    def _give_up(self, queue: Queue) -> None:
        """Record the units of models without workers as failed; the next start of the plan tries them again."""
        for model in dict.fromkeys(unit.model for unit in queue.open):
            reason = self._blocked.get(model) or self._engine.why_hopeless(model)
            names = [name for name, other in self._engine.workers.items() if other == model]
            if reason is None or model in self._given_up or not self._with_units.isdisjoint(names):
                continue
            self._given_up.add(model)
            for name in names:
                self._engine.stop(name)
            for unit in queue.open:
                if unit.model == model:
                    worker = f"{model}-{self._session}"
                    self._folder.record(lost_attempt(unit, worker, reason, 0.0, lost=False))

    def _start(self, queue: Queue, units: Sequence[Unit]) -> None:
        """Start workers for units that nobody has: of the model that has fewest, the first in the plan."""
        n_waiting = Counter(unit.model for unit in units)
        holders = {self._worker_of(claim) for claim in queue.claims.values()}
        models = [model for model in dict.fromkeys(unit.model for unit in queue.left) if model not in self._blocked]
        engine = self._engine
        while len(engine.workers) < engine.most:
            n_workers = Counter(engine.workers.values())
            n_without = Counter(model for name, model in engine.workers.items() if name not in holders)
            wanted = [model for model in models if n_waiting[model] > n_without[model]]
            allowed = [model for model in wanted if n_workers[model] < engine.most_of(model)]
            free = [model for model in allowed if engine.has_room(model)]
            if not free:
                return
            model = min(free, key=n_workers.__getitem__)
            self._n_started += 1
            name = f"{self._job or f'{model}-{self._session}'}-{self._n_started}"
            self._models[name] = model
            engine.start(model, name)

    # ------------------------------------------------------------------ names

    def _worker_of(self, claim: Claim) -> str | None:
        """Return which of the engine's workers holds a claim; None if none of them does."""
        holder = claim.worker
        return next((name for name in self._engine.workers if _is_of(holder, name)), None)


def _is_of(holder: str, name: str) -> bool:
    """Return whether a claim or attempt is of a worker, or of a process that the worker, a job, has started."""
    return holder == name or holder.startswith(f"{name}-")
