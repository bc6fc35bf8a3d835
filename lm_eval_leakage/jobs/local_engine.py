"""The engine of one machine: worker processes, by default one at a time, each with one loaded model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import open_log
from lm_eval_leakage.jobs.engines import LOOK_S, JobEngine, n_accelerators
from lm_eval_leakage.jobs.folder import CampaignFolder
from lm_eval_leakage.jobs.plan import Plan

BAR_S = "10"  # between two states of a progress bar in a log


class LocalEngine(JobEngine):
    """An engine whose workers are processes of this machine.

    With GPUs in the plan, each worker sees those that are its own; without, all of them.
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, address: str | None = None) -> None:
        super().__init__(plan, folder, plan.workers or 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._devices_of: dict[str, Sequence[str]] = {}
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

    def __enter__(self) -> LocalEngine:
        self._pipe = os.pipe()  # the end to write is this process's alone, and is closed with it
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for descriptor in self._pipe:
            os.close(descriptor)

    def has_room(self, model: str) -> bool:
        return self.plan.model(model).gpus <= len(self._free_devices())

    def start(self, model: str, name: str) -> None:
        devices = self._free_devices()[: self.plan.model(model).gpus]
        environment = {"TQDM_MININTERVAL": BAR_S} | os.environ
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        words = [self.folder.path, model, name, self.plan.retries, self._pipe[0]]
        with open_log(self.folder.log_of_worker(name)) as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "lm_eval_leakage.jobs.worker", *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[self._pipe[0]],
                start_new_session=True,  # so that Ctrl-C reaches the driver alone, and children end with the worker
            )
        self.workers[name], self._devices_of[name] = model, devices

    def ended(self) -> Mapping[str, str | None]:
        reasons = {}
        for name, process in self._processes.items():
            if (code := process.poll()) is not None:
                reasons[name] = _reason(code, self.folder.log_of_worker(name))
        for name in reasons:
            self.stop(name)  # its children may be left
        if not reasons:
            time.sleep(LOOK_S)
        return reasons

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        del self.workers[name], self._devices_of[name]
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _free_devices(self) -> list[str]:
        taken = {device for devices in self._devices_of.values() for device in devices}
        return [device for device in self._devices if device not in taken]


def _reason(code: int, log: Path) -> str | None:
    """Return why a worker has ended, as the end of a sentence; None if nothing was left for it."""
    if code == 0:
        return None
    if code > 0:
        return f"ended with exit code {code}; the reason is in {log}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", as the system does when memory is short" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


def _devices() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(place) for place in range(n_accelerators())]
