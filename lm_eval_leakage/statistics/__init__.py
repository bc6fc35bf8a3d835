"""Statistics: what a model's answers mean. One test a module, found by its registered name, batched in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lm_eval_leakage.records import Evidence, Skipped
from lm_eval_leakage.registry import Registry
from lm_eval_leakage.statistics.orders import OrderScores


class Statistic(Protocol):
    """A frozen dataclass whose fields are the statistic's parameters, settable in a task's `filter_list`."""

    def __call__(self, scores: OrderScores) -> Sequence[Evidence | Skipped]:
        """Evidence on each question of the batch, in its order, or why it cannot be tested so."""
        ...


statistics: Registry[type[Statistic]] = Registry("statistic", __name__)
