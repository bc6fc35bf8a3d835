"""What the rooms of the package hand to each other: frozen records, standard library only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

ARMS = ("original", "shuffled", "replaced", "generalized")  # of choice confusion: what is done to the options


class UntestableQuestion(ValueError):
    """A question that a probe cannot ask about; its message is the reason that reports show."""


class NoOptions(UntestableQuestion):
    """A task whose options have no order that could be changed, by its kind and not by this question."""


@dataclass(frozen=True)
class Frame:
    """How a benchmark's own prompt shows options: `before`, each option after the marker of its place, `after`.

    markers: a place's label with what parts it from the option before, such as "\\nB. "
    """

    before: str
    markers: tuple[str, ...]
    after: str

    def text(self, options: Sequence[str]) -> str:
        """The prompt with `options` in the order given."""
        return self.before + self.block(options) + self.after

    def block(self, options: Sequence[str]) -> str:
        return "".join(marker + option for marker, option in zip(self.markers, options, strict=True))


@dataclass(frozen=True)
class Question:
    """One multiple-choice question as its benchmark publishes it.

    id: stable across runs and subsets; every random draw about the question is seeded from it
    stem: the question without its options
    options: texts in the published order
    answer: index of the right option, None where it is unknown
    frame: how the benchmark's own prompt shows the options, None where it does not
    prompt: the benchmark's own prompt where it shows no options, None where it does
    subject: what the benchmark files the question under, empty where it has no such division
    """

    id: str
    stem: str
    options: tuple[str, ...]
    answer: int | None = None
    frame: Frame | None = None
    prompt: str | None = None
    subject: str = ""


@dataclass(frozen=True)
class Shard(Question):
    """Neighbouring questions of a benchmark, whose published texts stand in the place of one question's options.

    members: ids of the questions
    """

    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One text for the model: the log-likelihood of `continuation` given `context` is asked for."""

    context: str
    continuation: str


@dataclass(frozen=True)
class TokenScores:
    """Of every token of a text: its log-probability, and mean and standard deviation of log p(v) for v drawn from the
    model's distribution at its place; nats."""

    loglikelihoods: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Answered:
    """A question with the model's answers to what a probe asked about it, in the probe's order.

    answers: log-likelihoods, nats, less those of a reference model where the run has one
    reference: what that model says of the same texts; empty without one
    gold: place of the right option in each list of options that the probe showed, where it showed several
    tokens: scores of every token of each request's text, where the probe needs them
    texts: what the model wrote after each request's context, where the probe lets it write
    """

    question: Question
    requests: tuple[Request, ...]
    answers: tuple[float, ...]
    gold: tuple[int, ...] = ()
    tokens: tuple[TokenScores, ...] = ()
    texts: tuple[str, ...] = ()
    reference: tuple[float, ...] = ()

    @property
    def own_loglikelihoods(self) -> tuple[float, ...]:
        """Of the run's model alone."""
        if not self.reference:
            return self.answers
        return tuple(answer + other for answer, other in zip(self.answers, self.reference, strict=True))


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
class Measurement:
    """What one statistic measured on a question without a null hypothesis of its own; each statistic adds its values.

    ranks_by: which of them rank questions, a higher one meaning more leakage
    """

    ranks_by: ClassVar[tuple[str, ...]] = ()

    @property
    def flagged(self) -> bool | None:
        """The published rule's decision, whose rate without leakage nobody knows; None where there is no rule."""
        return None

    def values(self) -> dict[str, float]:
        """What it adds to rows of the table, by their names, for the samples log."""
        return {}


@dataclass(frozen=True)
class Skipped:
    """A question that was not tested, with the reason in words."""

    reason: str


Verdict = Evidence | Measurement | Skipped


@dataclass(frozen=True)
class DeclaredRow:
    """A row of the results table, as a statistic declares it beside its verdicts.

    name: under which it is printed and which a YAML's `metric_list` may name
    meaning: of the number, in a sentence
    compute: its value from the verdicts on all questions, tested or not; NaN where it is undefined, an int for a count
    error: its standard error from the same; None where it has none
    higher_is_better: as for the harness; None where neither is
    per_question: what one verdict contributes, for the samples log; None where only all questions make a value
    questions: which it is computed from: "all", those with a guard ("guarded"), those without ("unguarded"), or the
        verdicts by known scores ("calibrated")
    withheld_if_undecidable: whether it is not shown where no question could be flagged but by chance (2 options)
    """

    name: str
    meaning: str
    compute: Callable[[Sequence[object]], float]
    error: Callable[[Sequence[object]], float] | None = None
    higher_is_better: bool | None = None
    per_question: Callable[[object], float | None] | None = None
    questions: Literal["all", "guarded", "unguarded", "calibrated"] = "all"
    withheld_if_undecidable: bool = False
