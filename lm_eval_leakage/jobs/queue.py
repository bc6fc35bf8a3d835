"""The queue of a campaign: which units are to be run, who has them and which were tried, as the folder says it.

Nothing else keeps account. Workers, the driver and `check --status` each read the folder when they need to know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from lm_eval_leakage.jobs.claims import Claim, held_claims, next_claim
from lm_eval_leakage.jobs.folder import BETWEEN, CLAIMS, Attempt, CampaignFolder, lost_attempt
from lm_eval_leakage.jobs.units import Unit

FURTHER_LOSSES = 4  # attempts beyond `retries` after which a unit is given up though it never failed by itself


@dataclass(frozen=True)
class Queue:
    """The units that are left to be run at one moment.

    left: the units that are not done, in the order of the plan
    claims: of those that a worker has
    attempts: of this session, oldest first
    retries: how often a unit that failed is tried again
    """

    left: tuple[Unit, ...]
    claims: Mapping[Unit, Claim]
    attempts: tuple[Attempt, ...]
    retries: int

    @property
    def open(self) -> list[Unit]:
        """The units that a worker may claim, in the order in which it should: what failed comes last.

        A unit is given up after `retries + 1` attempts that failed by themselves, or after `retries + 4` in all: one
        whose worker is killed again and again, for want of memory for example, may be the reason.
        """
        n_tried = Counter(attempt.unit for attempt in self.attempts)
        n_failed = Counter(attempt.unit for attempt in self.attempts if attempt.failed_by_itself)
        units = []
        for unit in self.left:
            is_given_up = n_failed[unit] > self.retries or n_tried[unit] >= self.retries + FURTHER_LOSSES
            if unit not in self.claims and not is_given_up:
                units.append(unit)
        return sorted(units, key=n_tried.__getitem__)

    @property
    def failed(self) -> list[Attempt]:
        """The last attempt at each unit that is left, where it failed."""
        last = {attempt.unit: attempt for attempt in self.attempts}
        return [last[unit] for unit in self.left if unit in last and not last[unit].ok]


def read_queue(folder: CampaignFolder, retries: int, model: str | None = None) -> Queue:
    """Return what is left to be run, of one model or of all.

    A worker publishes, records its attempt and ends its claim, in this order; what it has left is read from the end.
    """
    held = held_claims(folder.path / CLAIMS)
    attempts = folder.attempts(earlier=False)
    left = folder.left(folder.ready_files(model))
    slugs = {unit: _slug(unit.id) for unit in left}
    claims = {unit: held[slug] for unit, slug in slugs.items() if slug in held}
    return Queue(tuple(left), claims, tuple(attempts), retries)


def claim_next(folder: CampaignFolder, retries: int, model: str, worker: str) -> tuple[Unit, Claim] | None:
    """Return the next unit of a model, which from now on this worker has; None if none is left to claim."""
    for unit in read_queue(folder, retries, model).open:
        claim = next_claim(folder.path / CLAIMS, _slug(unit.id), worker)
        if claim is None:
            continue
        if not folder.done(unit):
            return unit, claim
        claim.end()  # another worker was done with it in this moment
    return None


def record_loss(folder: CampaignFolder, unit: Unit, claim: Claim, error: str, *, lost: bool = True) -> None:
    """End the claim of a worker that is gone, and record its attempt, unless somebody else has done so.

    lost: as for `lost_attempt`
    """
    if claim.end() and not folder.done(unit):
        folder.record(lost_attempt(unit, claim.worker, error, claim.seconds, lost=lost))


def _slug(unit_id: str) -> str:
    """Return how the names of the files of a unit's claims begin."""
    return unit_id.replace("/", BETWEEN)
