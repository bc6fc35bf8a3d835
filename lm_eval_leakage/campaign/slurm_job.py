"""What a Slurm job of a campaign does: the units that it was dealt, by an engine of its own with one worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.slurm_cards import JobCard, JobCards, JobMark, lost_with
from lm_eval_leakage.campaign.unit_queue import UnitQueue
from lm_eval_leakage.campaign.units import Unit

PUT_BACK = "its job reached its time limit or was preempted, and was put back in the queue"


@dataclass(frozen=True)
class SlurmJob:
    """submitit sends it to the job and calls it there.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.
    """

    folder: Path
    card: JobCard

    def __call__(self) -> None:
        """Passes over units that are done, by whomever, and those that it gave up before it was put back in the
        queue."""
        from submitit import JobEnvironment

        from lm_eval_leakage.campaign.local_engine import LocalEngine

        folder, cards, worker = CampaignFolder(self.folder), JobCards(self.folder), self.card.worker
        job_id = JobEnvironment().job_id
        if not cards.begin(worker, job_id):
            return
        plan = folder.plan
        own = replace(plan, models=(plan.model(self.card.model),), workers=1)
        made = [attempt for attempt in folder.attempts() if self.card.has_made(attempt)]

        def begun(unit: Unit, _: str) -> None:
            cards.hold(worker, JobMark(job_id, unit, len(made)))

        units = UnitQueue(folder.left(self.card.units), own, made).waiting
        LocalEngine(own, folder, called=worker).carry_out(units, made.append, begun)
        cards.hold(worker, JobMark(job_id))

    def checkpoint(self) -> Any:
        """What submitit puts back in the queue when the job reaches its time limit or is preempted: the same, since
        the answers of the unit in hand are kept."""
        from submitit.helpers import DelayedSubmission

        folder = CampaignFolder(self.folder)
        if lost := lost_with(self.card, folder, PUT_BACK):
            folder.record(lost)
        return DelayedSubmission(self)
