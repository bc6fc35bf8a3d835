"""Statistics: what a model's answers to a question mean. One test or measurement per module, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from lm_eval_leakage.records import Answered, DeclaredRow, Verdict
from lm_eval_leakage.registry import Registry


class Statistic(Protocol):
    """A frozen dataclass whose fields are the statistic's parameters, settable in a task's `filter_list`.

    rows: the rows of the results table that are computed from its verdicts, in addition to the number of skipped
        questions
    probe: the registered name of the probe whose answers it is made for; with another one, the detector's id names it
    """

    rows: ClassVar[tuple[DeclaredRow, ...]]
    probe: ClassVar[str]

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> Sequence[Verdict]:
        """One verdict per question, in the order given: evidence, a measurement, or the reason why it was skipped."""
        ...


statistics: Registry[type[Statistic]] = Registry("statistic", __name__)
