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


def flagged_rate_guarded(verdicts: Verdicts) -> float:
    """`flagged_rate` of the questions with a guard, whose options have a natural order."""
    return flagged_rate(verdicts)


def flagged_rate_guarded_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate_guarded`."""
    return flagged_rate_stderr(verdicts)


def flagged_rate_unguarded(verdicts: Verdicts) -> float:
    """`flagged_rate` of the questions without a guard."""
    return flagged_rate(verdicts)


def flagged_rate_unguarded_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate_unguarded`."""
    return flagged_rate_stderr(verdicts)


def dataset_pvalue_unguarded(verdicts: Verdicts) -> float:
    """`dataset_pvalue` of the questions without a guard, whose null hypothesis is more credible."""
    return dataset_pvalue(verdicts)


def skipped(verdicts: Verdicts) -> int:
    """How many questions could not be tested; the samples log gives the reason of each."""
    return len(verdicts) - len(_tested(verdicts))


ROWS: tuple[Callable[[Verdicts], float], ...] = (
    flagged_rate,
    flagged_rate_stderr,
    flagged_rate_guarded,
    flagged_rate_guarded_stderr,
    flagged_rate_unguarded,
    flagged_rate_unguarded_stderr,
    null_rate,
    dataset_pvalue,
    dataset_pvalue_unguarded,
    skipped,
)
ELSEWHERE = Skipped("it belongs to another row")


def given_to(row: str, verdict: Evidence | Skipped, guards: Sequence[str]) -> Evidence | Skipped:
    """What a question adds to a row: nothing to the rows of questions that are guarded when it is not, and the
    other way round, though the harness wants something from each."""
    of_guarded, of_unguarded = "_guarded" in row, "_unguarded" in row
    return ELSEWHERE if (of_guarded and not guards) or (of_unguarded and guards) else verdict


def contributions(verdict: Evidence | Skipped, guards: Sequence[str]) -> dict[str, float | None]:
    """What one question adds to each row, under the row's name; None where only all questions make a value."""
    values: dict[str, float | None] = {row.__name__: None for row in ROWS}
    if isinstance(verdict, Skipped):
        return values | {"skipped": 1.0}
    flagged = float(verdict.flagged)
    stratum = "flagged_rate_guarded" if guards else "flagged_rate_unguarded"
    return values | {"flagged_rate": flagged, stratum: flagged, "null_rate": verdict.null_rate, "skipped": 0.0}


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
