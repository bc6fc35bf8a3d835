"""A worker process of this machine, as the engine that started it sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from lm_eval_leakage.campaign.attempts import Attempt, attempt_of
from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.files import log_to_add_to

MODULE = "lm_eval_leakage.campaign.worker_process"
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

    @property
    def has_ended(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(SECONDS_TO_END)
        return self._process.poll() is not None

    @property
    def reason(self) -> str:
        """Why it has ended, in words."""
        code = self._process.returncode
        if code is None or code >= 0:
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
