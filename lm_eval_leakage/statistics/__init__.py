"""Statistics: what a model's answers mean. One test a module, found by its registered name, batched in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from lm_eval_leakage.records import Answered, DeclaredRow, Verdict
from lm_eval_leakage.registry import Registry


class Statistic(Protocol):
    """A frozen dataclass whose fields are the statistic's parameters, settable in a task's `filter_list`.

    rows: what is printed of its verdicts, beside the number of skipped questions; the task asks the harness for them
    probe: the registered name of the probe whose answers it is made for; the detector's id tells any other
    """

    rows: ClassVar[tuple[DeclaredRow, ...]]
    probe: ClassVar[str]

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> Sequence[Verdict]:
        """Evidence on each question, in the order given, or why it cannot be tested so."""
        ...


statistics: Registry[type[Statistic]] = Registry("statistic", __name__)
