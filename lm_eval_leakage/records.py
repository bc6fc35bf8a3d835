"""What the rooms of the package hand to each other: frozen records, standard library only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


class UntestableQuestion(ValueError):
    """A question that a probe cannot ask about; its message is the reason that reports show."""


@dataclass(frozen=True)
class Question:
    """One multiple-choice question as its benchmark publishes it.

    id: stable across runs and subsets; every random draw about the question is seeded from it
    stem: the question without its options
    options: texts in the published order
    answer: index of the right option, None where it is unknown
    """

    id: str
    stem: str
    options: tuple[str, ...]
    answer: int | None = None


@dataclass(frozen=True)
class Request:
    """One text for the model: the log-likelihood of `continuation` given `context` is asked for."""

    context: str
    continuation: str


@dataclass(frozen=True)
class Evidence(ABC):
    """What one statistic says about one question; each statistic adds its own values.

    flagged: the statistic's decision; suspicion, not proof
    pvalue: probability, without leakage, of a value at least this suspicious
    null_rate: probability, without leakage, that such a question is flagged
    """

    flagged: bool
    pvalue: float
    null_rate: float

    @property
    @abstractmethod
    def statistic(self) -> float:
        """The value behind the decision; a higher one always means more leakage."""


@dataclass(frozen=True)
class Skipped:
    """A question that was not tested, with the reason in words."""

    reason: str
