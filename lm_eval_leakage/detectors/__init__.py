"""Defines what a detector is: a probe and a statistic, both registered by name. Each method has a module here.

A probe decides which requests (context, continuation) a model gets about a question. A statistic decides what the
model's answers to them mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import ClassVar

from jinja2 import Environment, StrictUndefined, Template, TemplateError

from lm_eval_leakage.questions.rendering import AUDITED
from lm_eval_leakage.questions.slots import Exchange
from lm_eval_leakage.records import (
    Answered,
    Block,
    DeclaredRow,
    Question,
    Request,
    Shard,
    UntestableQuestion,
    Verdict,
)
from lm_eval_leakage.registry import Registry


class Probe(ABC):
    """A frozen dataclass whose fields are the probe's parameters, settable from a task's `metadata`.

    needs: the method that the model backend must have: loglikelihood; generate_until, where a request's continuation
        is the text that a model with memory of it would write; or token_scores, which scores every token under the
        model's own distribution
    needs_seal: whether its requests contain texts that only the private folder of a sealed benchmark has
    needs_drawn_orders: whether its verdicts mean something only where the published orders were drawn at random; the
        questions of other benchmarks are skipped
    exchanges_fillers: whether its requests are rows with fillers of other rows, so that a row needs no options, and
        the rows of a run are scored together
    stops: texts after which a model that generates is stopped
    """

    needs: ClassVar[str] = "loglikelihood"
    needs_seal: ClassVar[bool] = False
    needs_drawn_orders: ClassVar[bool] = False
    exchanges_fillers: ClassVar[bool] = False
    stops: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def requests(self, question: Question) -> tuple[Request, ...]:
        """Return the requests about one question, the published wording first; deterministic for a given question.

        Raises UntestableQuestion, with the reason, for a question that the probe cannot test.
        """

    @property
    def asks_orders(self) -> bool:
        """Return whether a verdict on the data set can be computed from orders of the options.

        It can if the requests are orders of a question's options and each, if they were drawn at random, is as likely
        to be the published one.
        """
        return False

    @property
    def asked_layouts(self) -> tuple[str, ...]:
        """Return the layouts of its requests, and of its control forms that show the question; the requests of one
        layout follow those of the one before."""
        return (AUDITED,)

    def in_brief(self) -> Probe:
        """Return the probe for questions that count in no verdict."""
        return self

    def with_pool(self, questions: Callable[[], Sequence[Question]]) -> Probe:
        """Return the probe with access to all questions of the benchmark, for probes that need others, too."""
        return self

    def with_wordings(self, of: Callable[[Question], Sequence[str]]) -> Probe:
        """Return the probe with access to all wordings of each sealed question, the public one first."""
        return self

    def with_exchanges(self, of: Callable[[Question], Exchange | None]) -> Probe:
        """Return the probe with the slots and blocks of a sealed benchmark, for probes that exchange fillers."""
        return self

    def of_shards(self, questions: Sequence[Question]) -> Sequence[Shard] | None:
        """Return the shards that a probe of neighbouring questions tests; None for a probe of single questions.

        questions: all questions of the benchmark, in their published order
        """
        return None

    def of_places(self, placed: Mapping[int, Question]) -> Sequence[Shard]:
        """Return the shards of a sealed file, whose questions a key put in order; none for a probe of single
        questions.

        placed: the questions by their places in the file
        """
        return ()

    def block(self, question: Question) -> Block | None:
        """Return the rows with which a question exchanges fillers, for probes that do so."""
        return None

    def gold(self, question: Question) -> tuple[int, ...]:
        """Return the index of the right option in each list of options that is shown, for probes that show several."""
        return ()

    def candidates(self, question: Question) -> tuple[str, ...]:
        """Return the texts of which a reply may name one, the published one first, for probes that ask for a guess."""
        return ()

    def compared(self, question: Question) -> tuple[int, ...]:
        """Return the places of the requests that the control forms repeat, the first one among them."""
        return ()

    def right_places(self, question: Question) -> tuple[int, ...]:
        """Return the place of the right option in each request, for probes of whole orders; empty if it is unknown."""
        return ()

    def control(self, question: Question) -> tuple[Request, ...]:
        """Return the compared requests again, all of them in each of several control forms.

        A model cannot remember these forms, and they keep what else it may prefer. Empty if the probe has no such
        form.
        """
        return ()

    def n_tokens(self, request: Request) -> int | None:
        """Return how many tokens to generate; None for one more than the expected continuation has."""
        return None


probes: Registry[type[Probe]] = Registry("probe", __name__)


class Statistic:
    """A frozen dataclass whose fields are the statistic's parameters, settable in a task's `filter_list`.

    rows: the rows of the results table that are computed from its verdicts, in addition to the number of skipped
        questions
    probe: the registered name of the probe whose answers it is made for; with another one, the detector's id names it
    """

    rows: ClassVar[tuple[DeclaredRow, ...]]
    probe: ClassVar[str] = ""

    def verdict(self, question: Answered) -> Verdict:
        """Return the verdict on one question: evidence, a measurement, or the reason why it was skipped."""
        raise NotImplementedError(f"{type(self).__name__} has neither `verdict` nor `judge`")

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> Sequence[Verdict]:
        """Return one verdict per question, in the order given.

        Statistics that compute the verdicts on many questions at once, on a device, replace this method.
        """
        return [self.verdict(question) for question in answered]


statistics: Registry[type[Statistic]] = Registry("statistic", __name__)


# ---------------------------------------------------------------------- what probes and statistics refuse


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ValueError if a parameter is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose one of: {', '.join(choices)}")


def is_count(value: object, least: int) -> bool:
    """Return whether a value is a whole number of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_counts(least: int, **values: object) -> None:
    """Raise ValueError if a parameter is no whole number of at least `least`."""
    for name, value in values.items():
        if not is_count(value, least):
            raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")


def check_shares(most: float = 1, **values: object) -> None:
    """Raise ValueError if a parameter is not above 0 and at most `most`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
            raise ValueError(f"{name} is {value!r}; it must be above 0 and at most {most}")


def refuse_few_options(question: Question) -> None:
    """Raise UntestableQuestion for a question with fewer than two options."""
    if len(question.options) < 2:
        raise UntestableQuestion(f"it has {len(question.options)} option(s); at least 2 are needed")


def refuse_repeated(texts: Sequence[str], what: str) -> None:
    """Raise UntestableQuestion if two of the texts are the same; `what` names the texts."""
    if len(set(texts)) < len(texts):
        raise UntestableQuestion(f"two of its {what} are identical, so that some orders of them read the same")


def filled(template: str, **texts: str) -> str:
    """Return a Jinja template with its variables replaced."""
    return _template(template).render(**texts)


@cache
def _template(text: str) -> Template:
    return Environment(undefined=StrictUndefined).from_string(text)


def check_template(name: str, template: str, *variables: str) -> None:
    """Raise ValueError if a parameter is no Jinja template of these variables."""
    try:
        filled(template, **dict.fromkeys(variables, ""))
    except TemplateError as error:
        raise ValueError(
            f"{name} is {template!r}, which cannot be rendered ({error}); its variables are {', '.join(variables)}"
        ) from error
