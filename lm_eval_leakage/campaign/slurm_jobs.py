"""The jobs of a campaign that have not ended: submitted now, or by an earlier driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from lm_eval_leakage.campaign.plan_settings import CampaignPlan
from lm_eval_leakage.campaign.slurm_cards import JobCard, JobCards
from lm_eval_leakage.campaign.slurm_executor import (
    CLUSTER,
    THIS_MACHINE,
    deaf_to_ctrl_c,
    end_local_job,
    executor,
    has_ended,
    job_of,
    outside_of_a_job,
    queued,
)
from lm_eval_leakage.campaign.slurm_job import SlurmJob

ASK_S = 60.0  # between two questions to Slurm about jobs that have left no result

logger = logging.getLogger(__name__)


class SlurmJobs:
    """folder: that of the campaign; submitit's files and the cards are in `slurm` below it
    cluster: `slurm` or `local`, where jobs are submitted
    """

    def __init__(self, plan: CampaignPlan, folder: Path, cluster: str) -> None:
        self._plan, self._folder, self._cluster = plan, folder.absolute(), cluster
        self._place = self._folder / "slurm"
        self.cards = JobCards(self._folder)
        every = {model.gpus for model in plan.models}
        self._executors = {gpus: executor(self._place, cluster, plan.slurm, gpus) for gpus in sorted(every)}
        self._live: dict[JobCard, Any] = {}
        self._asked = time.monotonic()

    @property
    def live(self) -> list[JobCard]:
        return list(self._live)

    def adopt(self) -> None:
        """Takes over the jobs of an earlier driver."""
        for card in self.cards.all():
            known = card if card.job_id is not None else self.cards.withdraw(card)
            if known is None or known.job_id is None:
                self.cards.remove(card)
                continue
            self._live[known] = job_of(self._place, known.cluster, known.job_id)
            logger.info("job %s of an earlier driver, with %s units", known.job_id, len(known.units))

    def submit(self, cards: Sequence[JobCard]) -> None:
        """Those that need as many GPUs as one job array."""
        for gpus, to in self._executors.items():
            own = [card for card in cards if self._plan.model(card.model).gpus == gpus]
            for card in own:
                self.cards.write(card)
            with outside_of_a_job(), deaf_to_ctrl_c() if self._cluster == THIS_MACHINE else nullcontext():
                jobs = own and to.submit_array([SlurmJob(self._folder, card) for card in own])
            for card, job in zip(own, jobs, strict=True):
                submitted = replace(card, job_id=job.job_id)
                self.cards.write(submitted)
                self._live[submitted] = job
                logger.info("job %s: %s units of %s", job.job_id, len(card.units), card.model)

    def ended(self) -> list[JobCard]:
        """Those that have ended by now, in whatever way. Slurm is asked once a minute."""
        in_queue = None
        if any(card.cluster == CLUSTER for card in self._live) and time.monotonic() - self._asked > ASK_S:
            in_queue, self._asked = queued(), time.monotonic()
        return [card for card, job in self._live.items() if has_ended(job, in_queue)]

    def forget(self, card: JobCard) -> None:
        del self._live[card]
        self.cards.remove(card)

    def log_of(self, card: JobCard) -> Path:
        """What the job wrote to stderr."""
        return Path(self._live[card].paths.stderr)

    def interrupt(self) -> str:
        """Ends the jobs on this machine, since Ctrl-C does not stop them all; says what becomes of the others."""
        for card, job in self._live.items():
            if card.cluster == THIS_MACHINE:
                end_local_job(job)
        on_cluster = [str(card.job_id) for card in self._live if card.cluster == CLUSTER]
        ids = " ".join(sorted({job_id.partition("_")[0] for job_id in on_cluster}))
        return ids and f"the jobs go on; start the campaign again to watch them, or end them with: scancel {ids}"
