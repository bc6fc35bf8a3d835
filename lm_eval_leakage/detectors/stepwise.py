"""At how many places does the model expect the published option next, among the remaining ones? The n-gram method by
log-likelihood, without generation.

Null hypothesis: the options are in random order. Whatever the model prefers, the published option is then its first
choice at place k with probability 1 / (n - k), independently of the places before, so that the number of such places
follows a Poisson-binomial distribution, and it is the first choice at every place with probability 1 / n!. Limits:
natural orders break it as they do for whole orders. Source: ours, after the n-gram method of Hidayat et al., 2025
(arXiv 2505.24263).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import ClassVar

from lm_eval_leakage.detectors import Probe, Statistic, probes, refuse_few_options, refuse_repeated, statistics
from lm_eval_leakage.detectors.tail_answered import margin_and_rank
from lm_eval_leakage.questions.rendering import option_format, up_to_label
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request
from lm_eval_leakage.stats.pooling import EVIDENCE_ROWS, poisson_binomial_tail


@probes.register("option_steps")
@dataclass(frozen=True)
class OptionSteps(Probe):
    """For every place but the last: each option published there or later, after the published options before it and
    the label of the place; the published one first. n(n+1)/2 - 1 requests.

    format: as in `option_orders`
    """

    format: str | None = None

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        options = question.options
        refuse_few_options(question)
        refuse_repeated([option.strip() for option in options], "options")
        before = [up_to_label(question, place, self.format).rstrip() for place in range(len(options) - 1)]
        return tuple(
            Request(text, f" {option.strip()}\n") for place, text in enumerate(before) for option in options[place:]
        )


@dataclass(frozen=True)
class StepwiseEvidence(Evidence):
    """flagged: the published option is the first choice at every place; a tie does not count

    pvalue: probability of at least as many such places
    n_expected: number of places where it is the first choice
    least_margin: smallest margin over all places of the published option over the best other remaining one, nats
    """

    ranked_by: ClassVar[str] = "n_expected"
    n_expected: int
    least_margin: float


@statistics.register("stepwise")
@dataclass(frozen=True)
class Stepwise(Statistic):
    probe: ClassVar[str] = "option_steps"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def verdict(self, question: Answered) -> StepwiseEvidence:
        n_options = len(question.question.options)
        left, margins = list(question.answers), []
        for n_left in range(n_options, 1, -1):
            margins.append(margin_and_rank(left[:n_left], 0)[0])
            left = left[n_left:]
        n_expected = sum(margin > 0 for margin in margins)
        pvalue = poisson_binomial_tail(n_expected, [1 / n_left for n_left in range(2, n_options + 1)])
        everywhere = n_expected == len(margins)
        return StepwiseEvidence(everywhere, pvalue, 1 / factorial(n_options), n_expected, min(margins))
