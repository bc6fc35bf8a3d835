"""Tests parts of the published order instead of whole orders: two options at a time, or one place after the other.

Pairs: ordered pairs of a question's options, as if it had only two: n(n-1) short texts are scored instead of n! long
ones. `pair_published`, as in the paper, flags if the first two options in their order are the most likely of all
ordered pairs. Null hypothesis: each of the n(n-1) pairs is equally likely to be that. It compares texts of different
words, so a short pair wins in either order. `pair_direction`, like for like, flags if the log-likelihood gain of each
pair over its own reverse, summed over the pairs in the published direction, is higher than that sum for every other
order of the options. Null hypothesis: the orders are exchangeable, so that each has the highest sum with probability 1
/ n!.

Steps: at how many places does the model expect the published option next, among the remaining ones? The n-gram method
by log-likelihood, without generation. Null hypothesis: the options are in random order. Whatever the model prefers,
the published option is then its first choice at place k with probability 1 / (n - k), independently of the places
before, so that the number of such places follows a Poisson-binomial distribution, and it is the first choice at every
place with probability 1 / n!.

Limits: a natural order of the options breaks all of them, as it does for whole orders. Source: Hidayat et al., 2025
(arXiv 2505.24263), "permutation-Q"; `pair_direction` is our correction of it; steps are ours, after their n-gram
method.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.detectors import Probe, Statistic, probes, refuse_few_options, refuse_repeated, statistics
from lm_eval_leakage.detectors.tail_answered import margin_and_rank
from lm_eval_leakage.questions.rendering import lettered, option_format, up_to_label
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence, Question, Request
from lm_eval_leakage.stats.pooling import EVIDENCE_ROWS, poisson_binomial_tail

EXACT_UP_TO = 7  # options; their 5,040 orders are enumerated
N_DRAWN = 5_000  # orders of more options


@probes.register("option_pairs")
@dataclass(frozen=True)
class OptionPairs(Probe):
    """Sends a request for each ordered pair of options: the context is the question, the continuation the two options.

    Request 0 has the first two in the published order.

    format: "usual" ("A. ") or "papers" ("question:" and "A:")
    """

    format: str = "usual"

    def __post_init__(self) -> None:
        option_format(self.format)

    def requests(self, question: Question) -> tuple[Request, ...]:
        refuse_few_options(question)
        refuse_repeated([option.strip() for option in question.options], "options")
        frame = lettered(question.stem, 2, self.format)
        return tuple(
            Request(frame.before, frame.block([question.options[i], question.options[j]]))
            for i, j in permutations(range(len(question.options)), 2)
        )


@dataclass(frozen=True)
class PairEvidence(Evidence):
    """Records whether the published pair, or order, is the most likely one.

    flagged: no other pair (or order) is as likely as the published one
    pvalue: share of the pairs (or orders), the published one included, that are at least as likely
    margin: nats by which the published one beats the best other one; negative where it does not
    n_compared: number of pairs (or orders), the published one included
    """

    ranked_by: ClassVar[str] = "margin"
    margin: float
    n_compared: int


def _evidence(scores: Sequence[float]) -> PairEvidence:
    (margin, rank), n_compared = margin_and_rank(scores, 0), len(scores)
    return PairEvidence(margin > 0, rank / n_compared, 1 / n_compared, margin, n_compared)


@statistics.register("pair_published")
@dataclass(frozen=True)
class PairPublished(Statistic):
    """Flags a question if its first two options in their order are the most likely pair."""

    probe: ClassVar[str] = "option_pairs"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def verdict(self, question: Answered) -> PairEvidence:
        return _evidence(question.answers)


@statistics.register("pair_direction")
@dataclass(frozen=True)
class PairDirection(Statistic):
    """Flags a question if the published direction of its pairs has the highest gain of all orders."""

    probe: ClassVar[str] = "option_pairs"
    rows: ClassVar[tuple[DeclaredRow, ...]] = EVIDENCE_ROWS

    def verdict(self, question: Answered) -> PairEvidence:
        n_options = len(question.question.options)
        gains = _gains(question.answers, n_options)
        first, second = np.triu_indices(n_options, 1)
        orders = np.array(_orders(n_options, rng=random.Random(question.question.id)))
        sums = gains[orders[:, first], orders[:, second]].sum(axis=1)
        return _evidence(sums.tolist())


def _gains(loglikelihoods: Sequence[float], n_options: int) -> NDArray[np.float64]:
    """Return the log-likelihood of option i before j minus that of j before i, nats, `(n_options, n_options)`."""
    ordered = np.zeros((n_options, n_options))
    ordered[~np.eye(n_options, dtype=bool)] = loglikelihoods  # row by row, as `permutations` has the pairs
    # rounded, so that sums that differ only by floating-point error are ties
    gains: NDArray[np.float64] = np.round(ordered - ordered.T, 9)
    return gains


def _orders(n_options: int, *, rng: random.Random) -> list[tuple[int, ...]]:
    """Return the published order and all others, or up to N_DRAWN random ones if there are too many."""
    if n_options <= EXACT_UP_TO:
        return list(permutations(range(n_options)))
    drawn = [tuple(rng.sample(range(n_options), n_options)) for _ in range(N_DRAWN)]
    published = tuple(range(n_options))
    return [published, *(order for order in drawn if order != published)]


# ---------------------------------------------------------------------- steps


@probes.register("option_steps")
@dataclass(frozen=True)
class OptionSteps(Probe):
    """Sends, for every place but the last, each option published there or later, the published one first.

    The context is the published options before it and the label of the place. That makes n(n+1)/2 - 1 requests.

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
    """Records at how many places the published option is the model's first choice.

    flagged: the published option is the first choice at every place; a tie does not count
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
    """Counts the places where the published option is the model's first choice."""

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
