"""A worker process of this machine, as the engine that started it sees it.

The engine of one machine: worker processes, by default one at a time, each with one loaded model.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import IO

from lm_eval_leakage.files import log_to_add_to
from lm_eval_leakage.jobs.engines import Begun, Tell, lost_attempt, n_accelerators
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue, attempt_of
from lm_eval_leakage.jobs.plan import Plan, Unit
from lm_eval_leakage.jobs.unit_worker import engine_limit, too_long

MODULE = "lm_eval_leakage.jobs.worker_process"
SECONDS_TO_END = 5.0


class LocalWorker:
    """unit: that it works on; None if it is free
    devices: the GPUs that it sees; all if it reserves none
    """

    def __init__(self, folder: CampaignFolder, model: str, name: str, devices: Sequence[str]) -> None:
        self.model, self.name, self.devices = model, name, tuple(devices)
        self.unit: Unit | None = None
        self._begun = time.monotonic()
        environment = os.environ | ({"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {})
        command = [sys.executable, "-m", MODULE, str(folder.path), model, name]
        self._log = folder.log_of_worker(name)
        with log_to_add_to(self._log) as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # so that Ctrl-C reaches the driver alone, and children end with the worker
            )

    @property
    def answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def seconds(self) -> float:
        """Since its unit was handed out; 0 if it is free."""
        return time.monotonic() - self._begun if self.unit is not None else 0.0

    def hand(self, unit: Unit) -> None:
        self.unit, self._begun = unit, time.monotonic()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: its answers say so
            self._process.stdin.write(f"{unit.id}\n".encode())
            self._process.stdin.flush()

    def told(self) -> Attempt | None:
        """The attempt that it has written; None if it has ended. Waits for one of the two."""
        try:
            attempt = attempt_of(self.answers.readline())
        except ValueError:  # it was killed before the end of the line
            return None
        self.unit = None
        return attempt

    def why_ended(self) -> str | None:
        """In words; None if it has not."""
        try:
            code = self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            return None
        if code >= 0:
            return f"its worker ended with exit code {code}; the reason is in {self._log}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory is short" if -code == signal.SIGKILL else ""
        return f"its worker was ended by {name}{hint}"

    def end(self) -> None:
        """Lets a free worker end by itself; kills a busy one, with its children."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        if self.unit is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(SECONDS_TO_END)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


SECONDS_OF_A_LOOK = 1.0  # at which time limits are looked at


class LocalEngine:
    """Starts a worker process for a model that has units left, and another one when it has none.

    With GPUs in the plan, each worker sees those that are its own; without, all of them.

    called: how the names of its workers begin
    """

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, *, called: str | None = None
    ) -> None:
        self._plan, self._folder, self._called = plan, folder, called or f"local-{secrets.token_hex(4)}"
        self._n_workers = plan.workers or 1
        self._devices = _devices() if any(model.gpus for model in plan.models) else []
        for model in plan.models:
            if model.gpus > len(self._devices):
                raise ValueError(
                    f"models has {model.name!r} with gpus: {model.gpus}, but this machine has {len(self._devices)}; "
                    "give gpus: 0 to reserve none, or use another machine or engine"
                )
        self._n_started = 0

    @property
    def description(self) -> str:
        return f"local, {self._n_workers} worker{'s' if self._n_workers > 1 else ''}"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        queue, workers = UnitQueue(units, self._plan), list[LocalWorker]()
        try:
            while not queue.finished:
                self._start(queue, workers)
                for worker in workers:
                    if worker.unit is None and (unit := queue.take(worker.model)) is not None:
                        worker.hand(unit)
                        begun(unit, worker.name)
                for attempt in self._attempts(workers):
                    queue.returned(attempt)
                    tell(attempt)
        finally:
            for worker in workers:
                worker.end()

    # ------------------------------------------------------------------ workers

    def _start(self, queue: UnitQueue, workers: list[LocalWorker]) -> None:
        """Ends workers whose model has no unit waiting, and starts those for which there is room."""
        waiting = queue.models_with_work()
        for worker in [one for one in workers if one.unit is None and one.model not in waiting]:
            _remove(worker, workers)
        while (name := self._next_model(waiting, workers)) is not None:
            self._n_started += 1
            devices = self._free(workers)[: self._plan.model(name).gpus]
            workers.append(LocalWorker(self._folder, name, f"{self._called}-{self._n_started}", devices))

    def _next_model(self, waiting: dict[str, int], workers: Sequence[LocalWorker]) -> str | None:
        """The model with most waiting units for each of its workers; the first in the plan among equals."""
        if len(workers) >= self._n_workers:
            return None
        n_free, most, found = len(self._free(workers)), 0.0, None
        for name, n_waiting in waiting.items():
            model, n_own = self._plan.model(name), sum(worker.model == name for worker in workers)
            n_idle = sum(worker.model == name and worker.unit is None for worker in workers)
            has_room = model.gpus <= n_free and n_own < (model.workers or self._n_workers) and n_idle < n_waiting
            if has_room and n_waiting / (1 + n_own) > most:
                most, found = n_waiting / (1 + n_own), name
        return found

    def _free(self, workers: Sequence[LocalWorker]) -> list[str]:
        taken = {device for worker in workers for device in worker.devices}
        return [device for device in self._devices if device not in taken]

    # ------------------------------------------------------------------ attempts

    def _attempts(self, workers: list[LocalWorker]) -> list[Attempt]:
        """Those that have ended meanwhile; waits at most a second for one."""
        found, by_stream = [], {worker.answers.fileno(): worker for worker in workers}
        for stream in wait(list(by_stream), SECONDS_OF_A_LOOK):
            worker = by_stream[int(stream)]  # type: ignore[arg-type]
            told = worker.told()
            if told is not None:
                found.append(told)
            elif (why := worker.why_ended()) is not None:
                found += self._lost(worker, why, lost=True)
                _remove(worker, workers)
        limit = engine_limit(self._plan.minutes)
        for worker in [one for one in workers if limit is not None and one.seconds > limit]:
            found += self._lost(worker, too_long(self._plan.minutes or 0.0), lost=False)
            _remove(worker, workers)
        return found

    def _lost(self, worker: LocalWorker, error: str, *, lost: bool) -> list[Attempt]:
        if worker.unit is None:
            return []
        attempt = lost_attempt(worker.unit, worker.name, error, worker.seconds, lost=lost)
        self._folder.record(attempt)
        return [attempt]


def _remove(worker: LocalWorker, workers: list[LocalWorker]) -> None:
    worker.end()
    workers.remove(worker)


def _devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    return told.split(",") if told else [str(place) for place in range(n_accelerators())]
