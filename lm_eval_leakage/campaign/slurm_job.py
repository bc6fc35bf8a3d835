"""What a Slurm job of a campaign does: its units, one after another, by a worker process of this engine's own."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SlurmJob:
    """submitit sends it to the job and calls it there; units that are done, by whomever, are passed over.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.
    """

    folder: str
    worker: str
    model: str
    units: tuple[str, ...]
    directory: str

    def __call__(self) -> None:
        from submitit import JobEnvironment

        from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
        from lm_eval_leakage.campaign.local_engine import LocalEngine
        from lm_eval_leakage.campaign.slurm_cards import JobCards, JobMark
        from lm_eval_leakage.campaign.units import Unit

        cards = JobCards(Path(self.folder))
        if not cards.begin(self.worker, job_id := JobEnvironment().job_id):
            return

    def checkpoint(self) -> Any:
        """What submitit puts back in the queue when the job reaches its time limit or is preempted: the same, since
        done units are passed over and the answers of the unit in hand are kept."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)
