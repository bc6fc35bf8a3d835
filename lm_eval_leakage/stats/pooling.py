"""Pools verdicts on questions into results for the data set: rates with errors and intervals, and p-values. It also
declares the rows of the results table that several statistics share, and has helpers to declare others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.records import DeclaredRow, Evidence, Measurement, Skipped

Floats = NDArray[np.float64]
IN_95_PERCENT = 1.959963984540054  # standard deviations of a normal distribution
NAN = math.nan
UNGUARDED = "without a guard"
WHOLE = 1e-6  # from a whole number of right answers
Verdicts = Sequence[object]
SKIPPED = DeclaredRow(  # added to every task, so that statistics do not declare it
    "skipped",
    "Number of questions that could not be tested; the samples log gives the reason for each.",
    lambda verdicts: sum(isinstance(verdict, Skipped) for verdict in verdicts),
    per_question=lambda verdict: float(isinstance(verdict, Skipped)),
)


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error and the ends of its 95 % interval; what is undefined is NaN."""

    value: float = NAN
    stderr: float = NAN
    low: float = NAN
    high: float = NAN

    def __bool__(self) -> bool:
        """Return whether the value is defined."""
        return not math.isnan(self.value)


UNKNOWN = Estimate()


def mean_and_stderr(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error (sample standard deviation over sqrt n). For flags, the mean is the share
    of those that are true.

    The mean of no values is NaN, and so is the error of fewer than two.
    """
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    return mean, float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def poisson_binomial_tail(n_flagged: int, null_rates: Sequence[float]) -> float:
    """Return P(at least `n_flagged` flags) if question i is flagged independently with probability null_rates[i].

    It is exact: the flags of questions with one rate follow a binomial distribution, and these are convolved directly
    (all terms are positive, so small tails keep their relative precision). Null hypothesis: no question was
    seen, and each question's null rate is correct.
    """
    if not null_rates:
        return math.nan
    from scipy.stats import binom  # takes a second

    counts = np.ones(1)
    for rate, n_questions in sorted(Counter(null_rates).items()):
        # from the logarithm, since scipy's pmf overflows on rates near the smallest float
        binomial = np.exp(binom.logpmf(np.arange(n_questions + 1), n_questions, rate))
        counts = np.convolve(counts, binomial)
    return float(min(1.0, counts[n_flagged:].sum()))


def smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number of an interval from which a condition holds, by bisection; it must hold at `high`."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def share(values: Sequence[float]) -> Estimate:
    """Return the mean of values in [0, 1] with its errors. The interval is Wilson's if all values are 0 or 1."""
    if not values:
        return UNKNOWN
    mean, stderr = mean_and_stderr(values)
    if all(value in (0, 1) for value in values):
        return replace(estimate_share(round(sum(values)), len(values)), stderr=stderr)
    return normal(mean, stderr)


def estimate_share(n_hits: int, n: int) -> Estimate:
    """Return the share n_hits / n with Wilson's 95 % interval, without a standard error."""
    from scipy.stats import binomtest

    ends = binomtest(n_hits, n).proportion_ci(method="wilson")
    return Estimate(n_hits / n, NAN, float(ends.low), float(ends.high))


def accuracy_in_interval(accuracy: Estimate, n: int) -> Estimate:
    """Return an accuracy with its 95 % interval: Wilson's where it is a share of the n questions that it counts, else
    that of a normal error within [0, 1]; without ends where no error is known.

    Another metric, with a value outside [0, 1], has the interval of a normal error.
    """
    n_right, is_share = accuracy.value * n, 0 <= accuracy.value <= 1
    if n > 0 and is_share and abs(n_right - round(n_right)) < WHOLE:
        of_share = estimate_share(round(n_right), n)
        return replace(accuracy, low=of_share.low, high=of_share.high)
    if not accuracy.stderr > 0:
        return replace(accuracy, low=NAN, high=NAN)
    ends = normal(accuracy.value, accuracy.stderr)
    return replace(ends, low=max(0.0, ends.low), high=min(1.0, ends.high)) if is_share else ends


def normal(value: float, stderr: float) -> Estimate:
    """Return an estimate with the interval of a normal error."""
    return Estimate(value, stderr, value - IN_95_PERCENT * stderr, value + IN_95_PERCENT * stderr)


def difference_of_shares(flagged: Estimate, unflagged: Estimate) -> Estimate:
    """Return the difference of two shares with Newcombe's interval, computed from Wilson's intervals."""
    value = flagged.value - unflagged.value
    below = math.hypot(flagged.value - flagged.low, unflagged.high - unflagged.value)
    above = math.hypot(flagged.high - flagged.value, unflagged.value - unflagged.low)
    return Estimate(value, math.hypot(flagged.stderr, unflagged.stderr), value - below, value + above)


# ---------------------------------------------------------------------- rows


def row_with_error(
    name: str,
    meaning: str,
    compute: Callable[[Verdicts], tuple[float, float]],
    *,
    higher_is_better: bool | None = None,
    per_question: Callable[[object], float | None] | None = None,
) -> DeclaredRow:
    """Declare a row whose value and standard error are computed together."""
    return DeclaredRow(
        name,
        meaning,
        lambda verdicts: compute(verdicts)[0],
        lambda verdicts: compute(verdicts)[1],
        higher_is_better,
        per_question,
    )


def declare_row(
    kind: type, name: str, meaning: str, field: str, *, higher_is_better: bool | None = None
) -> DeclaredRow:
    """Declare a row with the mean over questions of a field of their verdicts.

    kind: the class of verdicts that count; a verdict whose field is None does not count
    """

    def contribution(verdict: object) -> float | None:
        value = getattr(verdict, field, None) if isinstance(verdict, kind) else None
        return None if value is None else float(value)

    def mean(verdicts: Verdicts) -> tuple[float, float]:
        return mean_and_stderr([value for value in map(contribution, verdicts) if value is not None])

    return row_with_error(name, meaning, mean, higher_is_better=higher_is_better, per_question=contribution)


def mean_row(name: str, meaning: str, field: str = "", *, higher_is_better: bool | None = None) -> DeclaredRow:
    """Declare a row with the mean over questions of a field of their Measurements, by default the row's name."""
    meaning = f"{meaning}; mean over questions."
    return declare_row(Measurement, name, meaning, field or name, higher_is_better=higher_is_better)


def _tested(verdicts: Verdicts) -> tuple[list[bool], list[float]]:
    """Return the flags and the null rates of the tested questions."""
    tested = [verdict for verdict in verdicts if isinstance(verdict, Evidence)]
    return [evidence.flagged for evidence in tested], [evidence.null_rate for evidence in tested]


def _pooled_pvalue(verdicts: Verdicts) -> float:
    flags, null_rates = _tested(verdicts)
    return poisson_binomial_tail(sum(flags), null_rates)


def _of_part(row: DeclaredRow, questions: Literal["guarded", "unguarded"], which: str) -> DeclaredRow:
    """Declare the same row for the questions with or without a guard; only the results file shows it."""
    name, meaning = f"{row.name}_{questions}", f"`{row.name}` of the questions {which}."
    return replace(row, name=name, meaning=meaning, questions=questions, in_table=False)


FLAGGED_RATE = replace(
    declare_row(
        Evidence, "flagged_rate", "Share of the tested questions that are flagged.", "flagged", higher_is_better=False
    ),
    withheld_if_undecidable=True,
)
FLAGGED_RATE_GUARDED = _of_part(FLAGGED_RATE, "guarded", "with a guard, whose options have a natural order")
FLAGGED_RATE_UNGUARDED = _of_part(FLAGGED_RATE, "unguarded", UNGUARDED)
NULL_RATE_ROW = DeclaredRow(
    "null_rate",
    "Share of the tested questions that would be flagged without leakage, by the statistic's null hypothesis.",
    lambda verdicts: mean_and_stderr(_tested(verdicts)[1])[0],
    per_question=lambda verdict: verdict.null_rate if isinstance(verdict, Evidence) else None,
)
DATASET_PVALUE = DeclaredRow(
    "dataset_pvalue",
    "Probability of at least as many flagged questions if the statistic's null hypothesis holds for each (exact "
    "Poisson-binomial tail). On written orders it does not: the verdict is `evidence`.",
    _pooled_pvalue,
    in_table=False,
)
EVIDENCE_ROWS = (
    FLAGGED_RATE,
    FLAGGED_RATE_GUARDED,
    FLAGGED_RATE_UNGUARDED,
    NULL_RATE_ROW,
    DATASET_PVALUE,
    _of_part(DATASET_PVALUE, "unguarded", UNGUARDED),
)
