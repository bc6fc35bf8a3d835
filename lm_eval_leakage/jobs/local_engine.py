"""The engine of one machine: worker processes, by default one at a time, each with one loaded model.

Such a process is `python -m lm_eval_leakage.jobs.local_engine FOLDER MODEL WORKER DESCRIPTOR`: it reads units from a
connection and writes their attempts to it. If the connection ends during a unit, whoever handed it out has died; then
the process ends itself and its children, so that a restarted campaign finds nobody at work.
"""

from __future__ import annotations

import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

from lm_eval_leakage.files import open_log
from lm_eval_leakage.jobs.engines import Crew, Worker, n_accelerators
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.units import Unit

ENDING_S = 5.0
LOOK_S = 1.0  # at which time limits are looked at
BAR_S = "10"  # between two states of a progress bar in a log


class LocalWorker(Worker):
    """devices: the GPUs that it sees; all if it reserves none"""

    def __init__(self, folder: CampaignFolder, model: str, name: str, devices: Sequence[str]) -> None:
        super().__init__(model, name)
        self.devices, self._log = devices, folder.log_of_worker(name)
        self.connection, other = Pipe()
        environment = {"TQDM_MININTERVAL": BAR_S} | os.environ
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        command = [sys.executable, "-m", "lm_eval_leakage.jobs.local_engine", folder.path, model, name]
        with open_log(self._log) as log, other:
            self._process = subprocess.Popen(
                [*map(str, command), str(other.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[other.fileno()],
                start_new_session=True,  # so that Ctrl-C reaches the driver alone, and children end with the worker
            )

    def hand(self, unit: Unit) -> None:
        with suppress(OSError):  # it has ended: its answers say so
            self.connection.send(unit)

    def told(self) -> Attempt | str:
        """The attempt that has ended, or why the worker has. Waits for one of the two."""
        try:
            attempt: Attempt = self.connection.recv()
        except (OSError, EOFError):
            return self._why_ended()
        return attempt

    def _why_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        code = self._process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}; the reason is in {self._log}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory is short" if -code == signal.SIGKILL else ""
        return f"was ended by {name}{hint}"

    def end(self) -> None:
        self.connection.close()
        if self.unit is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class LocalEngine(Crew[LocalWorker]):
    """With GPUs in the plan, each worker sees those that are its own; without, all of them."""

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, *, called: str | None = None
    ) -> None:
        super().__init__(plan, folder, called or f"local-{secrets.token_hex(4)}", plan.workers or 1)
        self._devices = _devices() if any(model.gpus for model in plan.models) else []
        for model in plan.models:
            if model.gpus > len(self._devices):
                raise ValueError(
                    f"models has {model.key!r} with gpus: {model.gpus}, but this machine has {len(self._devices)}; "
                    "give gpus: 0 to reserve none, or use another machine or engine"
                )

    @property
    def description(self) -> str:
        n = self.plan.workers or 1
        return f"local, {n} worker{'s' if n > 1 else ''}"

    def has_room(self, model: str) -> bool:
        return self.plan.model(model).gpus <= len(self._free())

    def started(self, model: str, name: str) -> LocalWorker:
        return LocalWorker(self.folder, model, name, self._free()[: self.plan.model(model).gpus])

    def heard(self) -> Iterator[tuple[LocalWorker, Attempt | str | None]]:
        new = [worker for worker in self.workers if worker.unit is None]
        yield from ((worker, None) for worker in new)
        by_connection = {worker.connection: worker for worker in self.workers}
        for connection in wait([*by_connection], 0 if new else LOOK_S):
            worker = by_connection[connection]  # type: ignore[index]
            yield worker, worker.told()

    def _free(self) -> list[str]:
        taken = {device for worker in self.workers for device in worker.devices}
        return [device for device in self._devices if device not in taken]


def _devices() -> list[str]:
    """GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    return told.split(",") if told else [str(place) for place in range(n_accelerators())]


# ---------------------------------------------------------------------- in the process of a worker


def main(path: str, model: str, name: str, descriptor: str) -> None:
    os.set_inheritable(int(descriptor), False)
    connection, units = Connection(int(descriptor)), queue.Queue[Unit | None]()
    threading.Thread(target=_read, args=(connection, units), daemon=True).start()
    from lm_eval_leakage.jobs.unit_worker import UnitWorker  # seconds: imports torch and lm_eval

    with UnitWorker(CampaignFolder(path), model, name) as worker:
        while (unit := units.get()) is not None:
            attempt = worker.run(unit)
            units.task_done()
            connection.send(attempt)


def _read(connection: Connection, units: queue.Queue[Unit | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            units.put(connection.recv())
    if units.unfinished_tasks:
        os.killpg(0, signal.SIGKILL)
    units.put(None)


if __name__ == "__main__":
    main(*sys.argv[1:])
