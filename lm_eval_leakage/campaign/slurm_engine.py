"""Slurm through submitit: units are dealt to jobs, and what a job leaves behind when it dies is dealt again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.campaign_folder import ATTEMPTS, CampaignFolder
from lm_eval_leakage.campaign.new_attempts import NewAttempts
from lm_eval_leakage.campaign.plan_settings import CampaignPlan
from lm_eval_leakage.campaign.slurm_cards import JobCard, JobMark, dealt, lost_with
from lm_eval_leakage.campaign.slurm_executor import THIS_MACHINE, cluster_of, refuse_several_processes
from lm_eval_leakage.campaign.slurm_jobs import SlurmJobs
from lm_eval_leakage.campaign.unit_queue import UnitQueue
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.texts import visible

LOOK_S, LOCAL_LOOK_S = 5.0, 0.2  # between two looks at the folder
NO_LIMIT = 10**6  # jobs; Slurm has its own
STILLBORN = 3  # jobs in a row that ended before they began; the next one would, too
DIED = "its job died (killed, out of memory, preempted, or its node was lost)"

logger = logging.getLogger(__name__)
Tell = Callable[[Attempt], None]
Begun = Callable[[Unit, str], None]


class SlurmEngine:
    """Jobs outlive the driver: if it is killed or interrupted they go on, and the next driver on the same folder takes
    them over. Those of `--address local`, on this machine, end when the driver is interrupted.

    A model has at most as many jobs as its `workers`, else as the plan has shards; all models together as many as the
    plan's `workers`, else one on this machine.

    address: `local` for submitit's local executor, None for Slurm
    """

    def __init__(self, plan: CampaignPlan, folder: CampaignFolder, address: str | None = None) -> None:
        refuse_several_processes(plan.slurm)
        self._plan, self._folder, self._cluster = plan, folder, cluster_of(address)
        self._jobs = SlurmJobs(plan, folder.path, self._cluster)
        self._told: dict[Attempt, None] = {}
        self._marks: dict[str, JobMark] = {}
        self._n_stillborn = 0

    @property
    def description(self) -> str:
        return "Slurm through submitit" if self._cluster != THIS_MACHINE else "submitit on this machine"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """See `Engine`; but jobs of a cluster go on when it is interrupted."""
        news = NewAttempts(self._folder.path / ATTEMPTS)
        self._jobs.adopt()
        self._told = {attempt: None for attempt in self._folder.attempts() if self._job_of(attempt)}
        try:
            left = self._left(units)
            while left or self._jobs.live:
                left = self._deal(left)
                time.sleep(LOCAL_LOOK_S if self._cluster == THIS_MACHINE else LOOK_S)
                ended = self._jobs.ended()  # before the attempts are read, so that none of theirs is missed
                self._hear(news, tell, begun)
                if ended:
                    self._bury(ended, tell)
                    left = self._left(units)
        except BaseException:
            if says := self._jobs.interrupt():
                logger.warning(says)
            raise
        self._hear(news, tell, begun)

    # ------------------------------------------------------------------ dealing

    def _left(self, units: Sequence[Unit]) -> list[Unit]:
        """Those that are neither done nor given up, nor in the hands of a job."""
        held = {unit for card in self._jobs.live for unit in card.units}
        free = self._folder.left(unit for unit in units if unit not in held)
        return UnitQueue(free, self._plan, self._told).waiting

    def _deal(self, left: Sequence[Unit]) -> list[Unit]:
        """Submits as many jobs as may run at once; returns the units for which there is none yet."""
        cards: list[JobCard] = []
        for model in self._plan.models:
            own = [unit for unit in left if unit.model == model.name]
            every = [*self._jobs.live, *cards]
            n_wanted = min(model.workers or self._plan.shards, self._most)
            n_hands = n_wanted - sum(card.model == model.name for card in every)
            for hand in dealt(own, n_hands)[: self._most - len(every)]:
                cards.append(JobCard(f"{model.name}-{uuid4().hex[:8]}", model.name, hand, self._cluster))
        if cards:
            self._jobs.submit(cards)
        given = {unit for card in cards for unit in card.units}
        return [unit for unit in left if unit not in given]

    @property
    def _most(self) -> int:
        """How many jobs of all models there may be at once."""
        return self._plan.workers or (1 if self._cluster == THIS_MACHINE else NO_LIMIT)

    # ------------------------------------------------------------------ listening

    def _hear(self, news: NewAttempts, tell: Tell, begun: Begun) -> None:
        found = [attempt for attempt in news.look() if attempt not in self._told]
        for attempt in found:
            self._told[attempt] = None
            tell(attempt)
        heard = {card.worker for attempt in found if (card := self._job_of(attempt))}
        for card in self._jobs.live:
            old = self._marks.get(card.worker)
            is_at_another = old is None or old.unit is None or card.worker in heard
            mark = self._jobs.cards.mark(card.worker) if is_at_another else old
            if mark is not None and mark != old:
                self._marks[card.worker] = mark
                if mark.unit is not None:
                    begun(mark.unit, card.worker)

    def _job_of(self, attempt: Attempt) -> JobCard | None:
        return next((card for card in self._jobs.live if card.has_made(attempt)), None)

    def _bury(self, ended: Sequence[JobCard], tell: Tell) -> None:
        """Records what jobs that died have left in the middle, and forgets them."""
        for card in ended:
            if lost := lost_with(card, self._folder, DIED):
                self._folder.record(lost)
                self._told[lost] = None
                tell(lost)
            is_stillborn = not any(card.has_made(attempt) for attempt in self._told)
            self._n_stillborn = self._n_stillborn + 1 if is_stillborn and self._folder.left(card.units) else 0
            if self._n_stillborn >= STILLBORN:
                log = self._jobs.log_of(card)
                raise ValueError(
                    f"{STILLBORN} jobs in a row ended before their first unit, the last one ({card.job_id}) with: "
                    f"{_last_line(log)} See {log}"
                )
            self._jobs.forget(card)


def _last_line(log: Path) -> str:
    if not log.is_file():
        return "nothing in its log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((visible(line.strip()) for line in reversed(lines) if line.strip()), "nothing in its log")
