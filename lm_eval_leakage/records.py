"""Defines the frozen dataclasses that packages pass to each other. It imports only the standard library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal, NamedTuple

QUESTIONS_KEPT = 1 << 15  # size of the caches of what is read from a question's texts: all of MMLU
ARMS = ("original", "shuffled", "replaced", "generalized")  # arms of choice confusion: what is done to the options


class StrEnum(str, Enum):
    """An enumeration whose members are strings. It replaces `enum.StrEnum`, which Python 3.10 lacks."""

    __str__ = str.__str__


class UntestableQuestion(ValueError):
    """Raised for a question that a probe cannot test; reports show its message as the reason."""


class NoOptions(UntestableQuestion):
    """Raised where the options have no order to change because of the kind of task, not of this question."""


@dataclass(frozen=True)
class Frame:
    """The layout in which a benchmark's own prompt shows options: it consists of `before`, each option after the
    marker of its place, and `after`.

    markers: the label of each place with what separates it from the previous option, such as "\\nB. "
    """

    before: str
    markers: tuple[str, ...]
    after: str

    def text(self, options: Sequence[str]) -> str:
        """Return the prompt with `options` in the given order."""
        return self.before + self.block(options) + self.after

    def block(self, options: Sequence[str]) -> str:
        return "".join(marker + option for marker, option in zip(self.markers, options, strict=True))


@dataclass(frozen=True)
class Question:
    """A multiple-choice question as its benchmark publishes it.

    id: stable across runs and subsets; every random draw about the question is seeded from it
    stem: the question without its options
    options: texts in the published order
    answer: index of the correct option, None if unknown
    frame: how the benchmark's own prompt shows the options, None if it does not
    prompt: the benchmark's own prompt if it does not show the options, None if it does
    subject: the subject to which the benchmark assigns the question, empty if it has no subjects
    """

    id: str
    stem: str
    options: tuple[str, ...]
    answer: int | None = None
    frame: Frame | None = None
    prompt: str | None = None
    subject: str = ""


@dataclass(frozen=True)
class Described:
    """A description of a set of questions that can be compared with another set; it holds no options.

    properties: numbers per question that leakage does not change, such as lengths, by name of the property
    stems: each question's stem by the digest of its whole text, see `questions.families`; empty texts where the
        questions are private
    """

    properties: Mapping[str, Sequence[float]]
    stems: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.stems)


@dataclass(frozen=True)
class Shard(Question):
    """A group of neighbouring questions of a benchmark; their published texts are treated as the options of one
    question.

    members: ids of the questions
    """

    members: tuple[str, ...] = ()


class Request(NamedTuple):
    """A text for the model to score: it returns the log-likelihood of `continuation` given `context`."""

    context: str
    continuation: str


@dataclass(frozen=True)
class TokenScores:
    """The scores of every token of a text, in nats; each field holds one value per token.

    loglikelihoods: the token's log-probability
    means, deviations: mean and standard deviation of log p(v) for v drawn from the model's distribution at the
        position
    """

    loglikelihoods: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Block:
    """A group of rows that exchange their fillers; it also holds the place of one of its rows.

    name: equal for the rows of one block and for no others
    fillers: the fillers with which the rows were published, in the order of the rows
    place: index of this row among them
    """

    name: str
    fillers: tuple[str, ...]
    place: int


@dataclass(frozen=True)
class Answered:
    """A question with the model's answers to a probe's requests about it, in the probe's order.

    answers: log-likelihoods, nats, minus those of a reference model if the run has one
    reference: the reference model's log-likelihoods of the same texts; empty without one
    gold: index of the correct option in each list of options that the probe showed, if it showed several
    tokens: scores of every token of each request's text, if the probe needs them
    texts: what the model generated after each request's context, if the probe asks for generation
    candidates: the texts among which the model guesses, the published one first, if the probe asks for a guess
    fillers: the answers to the question with each filler of its block, if the probe exchanges fillers
    """

    question: Question
    requests: Sequence[Request]
    answers: tuple[float, ...]
    gold: tuple[int, ...] = ()
    tokens: tuple[TokenScores, ...] = ()
    texts: tuple[str, ...] = ()
    reference: tuple[float, ...] = ()
    candidates: tuple[str, ...] = ()
    fillers: FillerAnswers | None = None

    @property
    def model_loglikelihoods(self) -> tuple[float, ...]:
        """Return the log-likelihoods by the run's model alone, without subtracting the reference model's."""
        if not self.reference:
            return self.answers
        return tuple(answer + other for answer, other in zip(self.answers, self.reference, strict=True))


@dataclass(frozen=True)
class OrderAnswers:
    """A model's answers to all orders of one question's options, from which the verdict on the data set is computed.

    loglikelihoods: one per order, the published one first, nats, `(n_orders,)`
    orders: the status of the benchmark's published orders, as `results.null_status` names it
    guarded: whether the options have a natural order, or are a set that many questions share
    compared: indices of the orders that the control forms repeat, 0 first; empty if they repeat all
    control: the model's log-likelihoods of the compared orders in each control form, one form after the other; empty
        without control forms
    reference: another model's log-likelihoods of the same texts; empty without one
    shared: keys of what the question may share with others (`questions.families`); empty where the log has none
    right: for each order, the place of the right option; empty where the answer is unknown
    layouts: names of the layouts in which each order was scored; the log-likelihoods are averaged over them
        (`stats.order_sum.averaged`)
    """

    loglikelihoods: tuple[float, ...]
    orders: str = "too few to say"
    guarded: bool = False
    control: tuple[float, ...] = ()
    reference: tuple[float, ...] = ()
    shared: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    layouts: tuple[str, ...] = ()

    @property
    def controls(self) -> tuple[tuple[float, ...], ...]:
        """Return the log-likelihoods of each control form, `(n_compared,)` each."""
        n = len(self.compared) or len(self.loglikelihoods) or 1
        return tuple(self.control[begin : begin + n] for begin in range(0, len(self.control), n))


@dataclass(frozen=True)
class FillerAnswers:
    """A model's answers to one row with every filler of its block, from which the verdict on the data set is computed.

    block: name of the block
    place: index of the row in the block, and so of its published filler
    loglikelihoods: of the row with each filler, in the order of the block, nats, `(n_layouts, n_fillers)`
    control: the same in the control form, `(n_fillers,)`; empty without one
    reference: another model's log-likelihoods of the same texts; empty without one
    layouts: names of the layouts in which the row was scored
    start: the text at the start of each document
    is_drawn: whether a secret key drew which filler stands in which row of the block
    fillers: the kind of fillers, names or numbers
    """

    block: str
    place: int
    loglikelihoods: tuple[tuple[float, ...], ...]
    control: tuple[float, ...] = ()
    reference: tuple[tuple[float, ...], ...] = ()
    layouts: tuple[str, ...] = ()
    start: str = ""
    is_drawn: bool = False
    fillers: str = "names"

    @property
    def n_fillers(self) -> int:
        return len(self.loglikelihoods[0])


@dataclass(frozen=True)
class Evidence:
    """A verdict on one question by a statistic that has a null hypothesis. Each statistic adds its own values.

    ranked_by: name of the value behind the decision; a higher one always means more leakage
    flagged: the statistic's decision; a suspicion, not proof
    pvalue: probability, without leakage, of a value at least this suspicious
    null_rate: probability, without leakage, that such a question is flagged
    """

    ranked_by: ClassVar[str]
    flagged: bool
    pvalue: float
    null_rate: float

    @property
    def statistic(self) -> float:
        """Return the value behind the decision, which `ranked_by` names."""
        value: float = getattr(self, self.ranked_by)
        return value


@dataclass(frozen=True)
class Measurement:
    """A verdict on one question by a statistic that has no null hypothesis. Each statistic adds its own values.

    ranks_by: names of the values that rank questions, a higher one meaning more leakage
    """

    ranks_by: ClassVar[tuple[str, ...]] = ()

    @property
    def flagged(self) -> bool | None:
        """Return the published rule's decision, whose rate without leakage is unknown; None if there is no rule."""
        return None


@dataclass(frozen=True)
class Skipped:
    """The verdict on a question that was not tested; it holds the reason in words."""

    reason: str


Verdict = Evidence | Measurement | Skipped


class InWords(float):
    """A number of a row that the table shows in words instead."""

    words: str

    def __new__(cls, value: float, words: str) -> InWords:
        made = super().__new__(cls, value)
        made.words = words
        return made


@dataclass(frozen=True)
class DeclaredRow:
    """A row of the results table; a statistic declares it, and it is computed from the verdicts.

    name: the printed name, which a YAML's `metric_list` may also use
    meaning: what the number means, in a sentence
    compute: returns its value from the verdicts on all questions, tested or not: NaN if undefined, an int for a count
    error: returns its standard error from the same verdicts; None if it has none
    higher_is_better: as in lm_eval; None if neither direction is better
    per_question: returns the contribution of one verdict, for the samples log; None if only all questions together
        have a value
    questions: the verdicts from which it is computed: "all", those on questions with a guard ("guarded") or without
        ("unguarded"), or the answers to option orders ("orders")
    withheld_if_undecidable: whether it is hidden if every flag would be by chance (2 options)
    in_table: whether the harness's table shows it; the results file always has it
    """

    name: str
    meaning: str
    compute: Callable[[Sequence[object]], float]
    error: Callable[[Sequence[object]], float] | None = None
    higher_is_better: bool | None = None
    per_question: Callable[[object], float | None] | None = None
    questions: Literal["all", "guarded", "unguarded", "orders"] = "all"
    withheld_if_undecidable: bool = False
    in_table: bool = True
