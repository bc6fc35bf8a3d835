"""Rows of the results table that several statistics share, and the ways to declare one of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lm_eval_leakage.records import DeclaredRow, Evidence, Measurement, Skipped
from lm_eval_leakage.statistics.calibration import mean_and_stderr, poisson_binomial_tail, rate_and_stderr

Verdicts = Sequence[object]


def row_with_error(
    name: str,
    meaning: str,
    compute: Callable[[Verdicts], tuple[float, float]],
    *,
    higher_is_better: bool | None = None,
) -> DeclaredRow:
    """A row whose value and standard error are computed together."""
    return DeclaredRow(
        name,
        meaning,
        lambda verdicts: compute(verdicts)[0],
        lambda verdicts: compute(verdicts)[1],
        higher_is_better,
    )


def mean_row(name: str, meaning: str, *, higher_is_better: bool | None = None) -> DeclaredRow:
    """The mean over questions of what a Measurement's `values` give under this name."""

    def mean(verdicts: Verdicts) -> tuple[float, float]:
        measured = [verdict.values() for verdict in verdicts if isinstance(verdict, Measurement)]
        return mean_and_stderr([values[name] for values in measured if name in values])

    return row_with_error(name, f"{meaning}; mean over questions.", mean, higher_is_better=higher_is_better)


def _tested(verdicts: Verdicts) -> list[Evidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, Evidence)]


def _flagged(verdicts: Verdicts) -> tuple[float, float]:
    return rate_and_stderr([evidence.flagged for evidence in _tested(verdicts)])


def _null_rate(verdicts: Verdicts) -> float:
    return mean_and_stderr([evidence.null_rate for evidence in _tested(verdicts)])[0]


def _pooled_pvalue(verdicts: Verdicts) -> float:
    evidence = _tested(verdicts)
    return poisson_binomial_tail(sum(e.flagged for e in evidence), [e.null_rate for e in evidence])


FLAGGED_RATE = row_with_error(
    "flagged_rate", "Share of the tested questions that are flagged.", _flagged, higher_is_better=False
)
FLAGGED_RATE_GUARDED = row_with_error(
    "flagged_rate_guarded",
    "`flagged_rate` of the questions with a guard, whose options have a natural order.",
    _flagged,
    higher_is_better=False,
)
FLAGGED_RATE_UNGUARDED = row_with_error(
    "flagged_rate_unguarded", "`flagged_rate` of the questions without a guard.", _flagged, higher_is_better=False
)
NULL_RATE = DeclaredRow(
    "null_rate",
    "Share of the tested questions that would be flagged without leakage, by the statistic's null.",
    _null_rate,
)
DATASET_PVALUE = DeclaredRow(
    "dataset_pvalue",
    "Probability, without leakage, of at least as many flagged questions (exact Poisson-binomial tail).",
    _pooled_pvalue,
)
DATASET_PVALUE_UNGUARDED = DeclaredRow(
    "dataset_pvalue_unguarded",
    "`dataset_pvalue` of the questions without a guard, whose null hypothesis is more credible.",
    _pooled_pvalue,
)
EVIDENCE_ROWS = (
    FLAGGED_RATE,
    FLAGGED_RATE_GUARDED,
    FLAGGED_RATE_UNGUARDED,
    NULL_RATE,
    DATASET_PVALUE,
    DATASET_PVALUE_UNGUARDED,
)
SKIPPED = DeclaredRow(  # of every task, so that no statistic need declare it
    "skipped",
    "How many questions could not be tested; the samples log gives the reason of each.",
    lambda verdicts: sum(isinstance(verdict, Skipped) for verdict in verdicts),
)
