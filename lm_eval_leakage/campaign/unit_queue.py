"""Which unit a free worker takes next, and which are tried again or given up: the same for every engine."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from lm_eval_leakage.campaign.attempts import Attempt
from lm_eval_leakage.campaign.plan_settings import CampaignPlan
from lm_eval_leakage.campaign.units import Unit

FURTHER_LOSSES = 4  # attempts beyond `retries` after which a unit is given up though it never failed by itself


class UnitQueue:
    """Units that are waiting, and those that workers have. For one thread.

    A unit is given up after `retries + 1` attempts that failed by themselves, or after `retries + 4` in all: one whose
    worker is killed again and again, for want of memory for example, may be the reason.
    """

    def __init__(self, units: Iterable[Unit], plan: CampaignPlan, earlier: Iterable[Attempt] = ()) -> None:
        """earlier: attempts that count as tries; units that they have exhausted are given up"""
        self._retries = plan.retries
        self._waiting: dict[str, deque[Unit]] = {}
        self._out: set[Unit] = set()
        self._failed, self._tried = Counter[Unit](), Counter[Unit]()
        for attempt in earlier:
            self._count(attempt)
        for unit in units:
            if not self._is_given_up(unit):
                self._waiting.setdefault(unit.model, deque()).append(unit)

    def take(self, model: str) -> Unit | None:
        """The next unit of a model for a worker that has it loaded; None if none is waiting."""
        waiting = self._waiting.get(model)
        if not waiting:
            return None
        unit = waiting.popleft()
        self._out.add(unit)
        return unit

    def returned(self, attempt: Attempt) -> None:
        """Takes note of how an attempt at a unit that was taken has ended; what is told twice counts once."""
        unit = attempt.unit
        if unit not in self._out:
            return
        self._out.remove(unit)
        self._count(attempt)
        if not attempt.ok and not self._is_given_up(unit):
            self._waiting[unit.model].append(unit)

    def _count(self, attempt: Attempt) -> None:
        self._tried[attempt.unit] += 1
        self._failed[attempt.unit] += not attempt.ok and not attempt.lost

    def _is_given_up(self, unit: Unit) -> bool:
        return self._failed[unit] > self._retries or self._tried[unit] >= self._retries + FURTHER_LOSSES

    @property
    def waiting(self) -> list[Unit]:
        """Units that no worker has, of each model together."""
        return [unit for units in self._waiting.values() for unit in units]

    def models_with_work(self) -> dict[str, int]:
        """Number of waiting units by model, for models that have any, in the order of the plan."""
        return {model: len(units) for model, units in self._waiting.items() if units}

    @property
    def finished(self) -> bool:
        """Whether every unit is done or given up."""
        return not self._out and not any(self._waiting.values())
