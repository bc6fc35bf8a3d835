"""Which Slurm jobs a campaign has, kept in its folder, so that a driver that is started again finds them.

Each job has one card, written before it is submitted and removed when it is known to have ended, and one mark, which
the job makes when it begins. A mark is made once: either by the job, or by a driver that finds a card whose job never
told its id (an earlier driver was killed while submitting it); that job then ends at once if it starts after all.
So no unit is ever in the hands of two jobs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.campaign_folder import CampaignFolder
from lm_eval_leakage.campaign.engines import lost_attempt
from lm_eval_leakage.campaign.units import Unit
from lm_eval_leakage.files import atomic_remove, atomic_write, write_once

WITHDRAWN = ""  # the id in the mark of a job that must not begin


@dataclass(frozen=True)
class JobCard:
    """worker: the name of the job's only worker, unique in the campaign
    units: that it was dealt
    cluster: `slurm` or `local`, as submitit names them
    job_id: None until it is submitted
    """

    worker: str
    model: str
    units: tuple[Unit, ...]
    cluster: str
    job_id: str | None = None

    def has_made(self, attempt: Attempt) -> bool:
        return attempt.worker.startswith(self.worker)


@dataclass(frozen=True)
class JobMark:
    """unit: in the hands of the job, None before the first one and after the last
    n_attempts: that the job had recorded before that unit
    """

    job_id: str
    unit: Unit | None = None
    n_attempts: int = 0


class JobCards:
    """folder: that of the campaign"""

    def __init__(self, folder: Path) -> None:
        self._cards, self._marks = folder / "slurm" / "jobs", folder / "slurm" / "begun"

    def write(self, card: JobCard) -> None:
        told = asdict(card) | {"units": [unit.id for unit in card.units]}
        atomic_write(self._cards / f"{card.worker}.json", json.dumps(told))

    def remove(self, card: JobCard) -> None:
        atomic_remove(self._cards / f"{card.worker}.json")

    def all(self) -> list[JobCard]:
        """Those of all jobs that are not known to have ended, by worker."""
        return [_card(_read(file)) for file in sorted(self._cards.glob("*.json"))]

    def begin(self, worker: str, job_id: str) -> bool:
        """Called by the job: whether it may do its units. A job that Slurm has put back in the queue may."""
        return write_once(self._marks / f"{worker}.json", _mark_text(JobMark(job_id))) or (
            self._mark_of(worker).job_id == job_id
        )

    def hold(self, worker: str, mark: JobMark) -> None:
        """Called by the job before each unit and after the last."""
        atomic_write(self._marks / f"{worker}.json", _mark_text(mark))

    def withdraw(self, card: JobCard) -> JobCard | None:
        """Called by a driver for a card without an id: None if that job has not begun, and now never will; else the
        card with its id."""
        write_once(self._marks / f"{card.worker}.json", _mark_text(JobMark(WITHDRAWN)))
        mark = self._mark_of(card.worker)
        return None if mark.job_id == WITHDRAWN else JobCard(**{**vars(card), "job_id": mark.job_id})

    def mark(self, worker: str) -> JobMark | None:
        """None if the job has not begun."""
        return self._mark_of(worker) if (self._marks / f"{worker}.json").exists() else None

    def _mark_of(self, worker: str) -> JobMark:
        told = _read(self._marks / f"{worker}.json")
        unit = None if told["unit"] is None else Unit.of_id(told["unit"])
        return JobMark(told["job_id"], unit, told["n_attempts"])


def lost_with(card: JobCard, folder: CampaignFolder, why: str) -> Attempt | None:
    """The attempt that a job had begun when it ended, if it has not recorded it itself."""
    mark = JobCards(folder.path).mark(card.worker)
    if mark is None or mark.unit is None or folder.done(mark.unit):
        return None
    n_recorded = sum(card.has_made(attempt) for attempt in folder.attempts())
    return lost_attempt(mark.unit, card.worker, why, 0.0) if n_recorded <= mark.n_attempts else None


def dealt(units: Sequence[Unit], n_hands: int) -> list[tuple[Unit, ...]]:
    """The units of one model in so many hands, of each kind (nearly) as many in each; those of a task next to each
    other."""
    by_kind = sorted(units, key=lambda unit: (unit.kind, unit.task, unit.shard))
    hands = (tuple(sorted(by_kind[place::n_hands])) for place in range(n_hands))
    return [hand for hand in hands if hand]


def _mark_text(mark: JobMark) -> str:
    return json.dumps(asdict(mark) | {"unit": None if mark.unit is None else mark.unit.id})


def _card(told: dict[str, Any]) -> JobCard:
    return JobCard(**{**told, "units": tuple(Unit.of_id(unit) for unit in told["units"])})


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))
