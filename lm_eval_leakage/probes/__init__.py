"""Probes: which texts to ask a model about. One module each, found by its registered name."""

from __future__ import annotations

from typing import Protocol

from lm_eval_leakage.records import Question, Request
from lm_eval_leakage.registry import Registry


class Probe(Protocol):
    """A frozen dataclass whose fields are the probe's parameters, settable from a task's `metadata`."""

    def requests(self, question: Question) -> tuple[Request, ...]:
        """The texts about one question, the published wording first; the same for the same question.

        Raises UntestableQuestion, with the reason, for a question that the probe cannot ask about.
        """
        ...


probes: Registry[type[Probe]] = Registry("probe", __name__)
