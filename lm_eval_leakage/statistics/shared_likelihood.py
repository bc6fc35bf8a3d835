"""Is the published order of a benchmark's questions more likely than other orders, over many shards of it?

Null hypothesis: the orders of a shard are exchangeable. Then the published order's gain over the mean of the others
has mean 0, which a one-sided t-test over shards tests, and each of a shard's orders is equally likely to be the
published one, which gives an exact permutation test without a normal approximation. Limits: those of the probe; a
preference that all shards share, as in a file sorted by length or topic, looks like leakage (the audit warns of files
whose texts tell their order); the verdict is on the data set, since one shard in 26 is flagged by chance. Source: the
t-test, Oren et al. (arXiv 2310.17623); the permutation test and the verdict on each shard are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.stats import ttest_1samp

from lm_eval_leakage.inference.pooling import FLAGGED_RATE, NULL_RATE_ROW, Verdicts, mean_and_stderr, row_with_error
from lm_eval_leakage.records import Answered, DeclaredRow, Evidence
from lm_eval_leakage.statistics import statistics
from lm_eval_leakage.statistics.tail_answered import margin_and_rank

SHARD_LEVEL = 0.05
N_PERMUTATIONS = 99_999
RESAMPLED_AT_ONCE = 1 << 22  # values


@dataclass(frozen=True)
class ShardEvidence(Evidence):
    """flagged: the p-value is at most `level`

    pvalue: rank of the published order over the number of orders; ties rank it lower
    gain: nats by which the published order beats the mean of the others
    n_examples: number of questions of the shard that fitted into the model's window
    loglikelihoods: of the published order and then of the others, nats
    """

    gain: float
    n_examples: int
    loglikelihoods: tuple[float, ...]

    @property
    def statistic(self) -> float:
        return self.gain


def _shards(verdicts: Verdicts) -> list[ShardEvidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, ShardEvidence)]


def _gains(verdicts: Verdicts) -> list[float]:
    return [shard.gain for shard in _shards(verdicts)]


ORDER_ROWS = (
    row_with_error(
        "order_gain",
        "Nats by which a shard's published order beats the mean of other orders; mean over shards.",
        lambda verdicts: mean_and_stderr(_gains(verdicts)),
        higher_is_better=False,
    ),
    DeclaredRow(
        "ttest_pvalue",
        "One-sided t-test over shards that `order_gain` is above 0 (Oren et al., 2023); invalid for sorted questions.",
        lambda verdicts: ttest_pvalue(_gains(verdicts)),
    ),
    DeclaredRow(
        "permutation_pvalue",
        "Permutation test: probability, without leakage, of a sum over shards at least as high (exact, unless the "
        "questions are sorted: then every model may prefer their order).",
        lambda verdicts: permutation_pvalue([shard.loglikelihoods for shard in _shards(verdicts)]),
    ),
)


@statistics.register("shared_likelihood")
@dataclass(frozen=True)
class SharedLikelihood:
    """level: a shard is flagged at this p-value or below"""

    probe: ClassVar[str] = "example_order"
    rows: ClassVar[tuple[DeclaredRow, ...]] = (
        *ORDER_ROWS,
        FLAGGED_RATE,
        NULL_RATE_ROW,
    )  # no row about guards, which apply to single questions
    level: float = SHARD_LEVEL

    def __post_init__(self) -> None:
        if isinstance(self.level, bool) or not isinstance(self.level, (int, float)) or not 0 < self.level < 1:
            raise ValueError(f"level is {self.level!r}; it is a probability, above 0 and below 1")

    def judge(self, answered: Sequence[Answered], device: str = "auto") -> list[ShardEvidence]:
        return [self._evidence(shard) for shard in answered]

    def _evidence(self, shard: Answered) -> ShardEvidence:
        published, *others = shard.answers
        n_orders = len(shard.answers)
        rank = margin_and_rank(shard.answers, 0)[1]
        highest_flagged = math.floor(self.level * n_orders + 1e-9)
        return ShardEvidence(
            rank <= highest_flagged,
            rank / n_orders,
            highest_flagged / n_orders,
            published - math.fsum(others) / len(others),
            len(shard.question.options),
            shard.answers,
        )


def ttest_pvalue(gains: Sequence[float]) -> float:
    """One-sided p-value of Student's t-test that the mean gain of the shards is above 0; NaN if undefined."""
    if len(gains) < 2 or len(set(gains)) == 1:
        return math.nan
    return float(ttest_1samp(gains, 0.0, alternative="greater").pvalue)


def permutation_pvalue(shards: Sequence[Sequence[float]], n_resamples: int = N_PERMUTATIONS) -> float:
    """Probability that the sum over shards, with a random order of each, is at least that of the published orders.

    shards: nats, one sequence per shard with the published order first; lengths may differ

    Monte Carlo with the observed sum among the draws, so exact at every level; the smallest possible p-value is
    1 / (n_resamples + 1).
    """
    if not shards:
        return math.nan
    rng = np.random.default_rng(0)
    gains = [np.asarray(shard) - shard[0] for shard in shards]
    at_once = max(1, RESAMPLED_AT_ONCE // len(gains))
    at_least_as_high = 1
    for start in range(0, n_resamples, at_once):
        drawn = np.zeros(min(at_once, n_resamples - start))
        for gain in gains:
            drawn += gain[rng.integers(len(gain), size=len(drawn))]
        at_least_as_high += int((drawn >= -1e-9).sum())  # with a tolerance, so that equal sums tie despite rounding
    return at_least_as_high / (n_resamples + 1)
