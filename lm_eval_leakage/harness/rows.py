"""The rows of the results table, each an aggregation over the verdicts on all questions.

Every question contributes its whole verdict to every row, whether it was tested or not: under data
parallelism the harness needs the same keys on every process, and a p-value of the data set needs all
questions at once. The harness computes a standard error for its own `mean` only, so `flagged_rate_stderr`
is a row of its own, which it prints as the ± of `flagged_rate`. Undefined values are NaN, since the harness
does arithmetic on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lm_eval.api.registry import (
    aggregation_registry,
    higher_is_better_registry,
    metric_agg_registry,
    metric_registry,
)

from lm_eval_leakage.records import Evidence, Skipped
from lm_eval_leakage.statistics.calibration import poisson_binomial_tail, rate_and_stderr

Verdicts = Sequence[Evidence | Skipped]


def _tested(verdicts: Verdicts) -> list[Evidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, Evidence)]


def flagged_rate(verdicts: Verdicts) -> float:
    """Share of the tested questions that are flagged."""
    return rate_and_stderr([evidence.flagged for evidence in _tested(verdicts)])[0]


def flagged_rate_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate`."""
    return rate_and_stderr([evidence.flagged for evidence in _tested(verdicts)])[1]


def null_rate(verdicts: Verdicts) -> float:
    """Share of the tested questions that would be flagged without leakage, by the statistic's null."""
    rates = [evidence.null_rate for evidence in _tested(verdicts)]
    return math.fsum(rates) / len(rates) if rates else math.nan


def dataset_pvalue(verdicts: Verdicts) -> float:
    """Probability, without leakage, of at least as many flagged questions (exact Poisson-binomial tail)."""
    evidence = _tested(verdicts)
    return poisson_binomial_tail(sum(e.flagged for e in evidence), [e.null_rate for e in evidence])


def skipped(verdicts: Verdicts) -> int:
    """How many questions could not be tested; the samples log gives the reason of each."""
    return len(verdicts) - len(_tested(verdicts))


ROWS: tuple[Callable[[Verdicts], float], ...] = (
    flagged_rate,
    flagged_rate_stderr,
    null_rate,
    dataset_pvalue,
    skipped,
)


def contributions(verdict: Evidence | Skipped) -> dict[str, float | None]:
    """What one question adds to each row, under the row's name; None where only all questions make a value."""
    values: dict[str, float | None] = {row.__name__: None for row in ROWS}
    if isinstance(verdict, Skipped):
        return values | {"skipped": 1.0}
    return values | {"flagged_rate": float(verdict.flagged), "null_rate": verdict.null_rate, "skipped": 0.0}


def _register(row: Callable[[Verdicts], float]) -> None:
    name = row.__name__
    if name not in metric_registry:
        metric_registry.register(name, target=row)
        aggregation_registry.register(name, target=row)
    if name not in metric_agg_registry:
        metric_agg_registry.register(name, target=row)
        higher_is_better_registry.register(name, target=False)


for _row in ROWS:
    _register(_row)
