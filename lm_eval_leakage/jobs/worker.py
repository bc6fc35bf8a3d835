"""A worker: one process with one loaded model, which claims a unit of the folder, runs it, and takes the next.

It is the same loop in the driver's process, in an actor of Ray, and in a process of its own on this machine, which is
`python -m lm_eval_leakage.jobs.worker FOLDER MODEL NAME RETRIES DESCRIPTOR`. The descriptor is of a pipe into which
nobody writes: it ends when the driver does. Then the process ends itself and its children, so that a campaign that is
started again finds nobody at work.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Protocol

from lm_eval_leakage.jobs.claims import Claim
from lm_eval_leakage.jobs.folder import CampaignFolder, lost_attempt
from lm_eval_leakage.jobs.queue import claim_next
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.texts import in_one_sentence


class Runner(Protocol):
    """Runs units of one model."""

    def run(self, unit: Unit, claim: Claim) -> None:
        """Run a unit, publish it and record the attempt; a failure of the unit is recorded, and raises nothing."""


def run_next(folder: CampaignFolder, retries: int, model: str, name: str, runner: Runner) -> bool:
    """Claim a unit and run it. Return False if none is left to claim, which is the end of the worker."""
    claimed = claim_next(folder, retries, model, name)
    if claimed is None:
        return False
    unit, claim = claimed
    with claim.renewed():
        try:
            runner.run(unit, claim)
        except Exception as error:  # the end of the worker, whatever has raised it
            with suppress(OSError):  # a full disk may be the reason
                reason = f"its worker ended with {in_one_sentence(error)}"
                folder.record(lost_attempt(unit, name, reason, claim.seconds))
            raise
    return True


def work(folder: CampaignFolder, retries: int, model: str, name: str, runner: Runner) -> None:
    """Run units of a model until none is left to claim."""
    while run_next(folder, retries, model, name, runner):
        pass


def run_worker(path: str, model: str, name: str, retries: str, descriptor: str) -> None:
    os.set_inheritable(int(descriptor), False)
    threading.Thread(target=_end_with_driver, args=(int(descriptor),), daemon=True).start()
    from lm_eval_leakage.jobs.unit_runner import UnitRunner  # seconds: imports torch and lm_eval

    folder = CampaignFolder(path)
    with UnitRunner(folder, model, name) as runner:
        work(folder, int(retries), model, name, runner)


def _end_with_driver(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    run_worker(*sys.argv[1:])
