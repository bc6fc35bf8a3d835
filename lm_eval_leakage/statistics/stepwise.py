"""At how many places does the model expect the published option next, among the remaining ones?

Null hypothesis: the options are in random order. Whatever the model prefers, the published option is then its first
choice at place k with probability 1 / (n - k), independently of the places before, so that the number of such places
follows a Poisson-binomial distribution, and it is the first choice at every place with probability 1 / n!. Limits: a
natural order of the options breaks it. Source: ours, after the n-gram method of Hidayat et al., 2025 (arXiv
2505.24263).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial
from typing import ClassVar

from lm_eval_leakage.inference.pooling import EVIDENCE_ROWS, poisson_binomial_tail
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.tail_answered import margin_and_rank


@dataclass(frozen=True)
class StepwiseEvidence(Evidence):
    """flagged: the published option is the first choice at every place; a tie does not count

    pvalue: probability of at least as many such places
    n_expected: number of places where it is the first choice
    least_margin: smallest margin over all places of the published option over the best other remaining one, nats
    """

    n_expected: int
    least_margin: float

    @property
    def statistic(self) -> float:
        return self.n_expected


@statistics.register("stepwise")
@dataclass(frozen=True)
class Stepwise:
    probe: ClassVar[str] = "option_steps"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[StepwiseEvidence]:
        return [_evidence(question) for question in answered]


def _evidence(answered: Answered) -> StepwiseEvidence:
    n_options = len(answered.question.options)
    left, margins = list(answered.answers), []
    for n_left in range(n_options, 1, -1):
        margins.append(margin_and_rank(left[:n_left], 0)[0])
        left = left[n_left:]
    n_expected = sum(margin > 0 for margin in margins)
    pvalue = poisson_binomial_tail(n_expected, [1 / n_left for n_left in range(2, n_options + 1)])
    everywhere = n_expected == len(margins)
    return StepwiseEvidence(everywhere, pvalue, 1 / factorial(n_options), n_expected, min(margins))
