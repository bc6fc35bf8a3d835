"""The rows of the results table, each an aggregation over the verdicts on all questions.

Every question contributes its whole verdict to every row, whether it was tested or not: under data
parallelism the harness needs the same keys on every process, and a p-value of the data set needs all
questions at once. The harness computes a standard error for its own `mean` only, so `flagged_rate_stderr`
is a row of its own, which it prints as the ± of `flagged_rate`. Undefined values are NaN, since the harness
does arithmetic on them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from lm_eval.api.registry import (
    aggregation_registry,
    higher_is_better_registry,
    metric_agg_registry,
    metric_registry,
)

from lm_eval_leakage.records import Evidence, Measurement, Skipped, Verdict
from lm_eval_leakage.statistics.calibration import mean_and_stderr, poisson_binomial_tail, rate_and_stderr
from lm_eval_leakage.statistics.paired_accuracy import ArmsMeasurement, Difference, below_reference, difference
from lm_eval_leakage.statistics.reproduction import NgramMeasurement, ReproductionMeasurement
from lm_eval_leakage.statistics.tail_answered import TailEvidence
from lm_eval_leakage.statistics.token_evidence import TokenMeasurement

Verdicts = Sequence[Verdict]


class RowValue(float):
    """A row's value that knows the verdicts behind it, so that a group's row is computed from all of them.

    words: what the table shows in the place of a number that would mislead
    """

    row: Row
    verdicts: Verdicts
    words: str | None

    def __new__(cls, row: Row, verdicts: Verdicts, value: float, words: str | None = None) -> RowValue:
        made = super().__new__(cls, value)
        made.row, made.verdicts, made.words = row, verdicts, words
        return made

    def __format__(self, spec: str) -> str:
        return self.words or super().__format__(spec)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """A copy, for a logger or another process, is the bare number."""
        return float, (float(self),)


Row = Callable[[Verdicts], RowValue]
ROWS: list[Row] = []


def row(compute: Callable[[Verdicts], float]) -> Row:
    """Makes an aggregation of the harness of a function of all verdicts."""

    @functools.wraps(compute)
    def aggregate(verdicts: Verdicts) -> RowValue:
        value = compute(verdicts)
        words = f"{value:.0f}" if isinstance(value, int) else None
        if compute.__name__.startswith("flagged_rate") and undecidable(_tested(verdicts)):
            value, words = math.nan, None if compute.__name__.endswith("_stderr") else UNDECIDABLE
        return RowValue(aggregate, verdicts, value, words)

    ROWS.append(aggregate)
    return aggregate


def pooled(values: Sequence[RowValue]) -> RowValue:
    """One row of several tasks as if their questions were one task's."""
    first, *_ = values
    return first.row([verdict for value in values for verdict in value.verdicts])


UNDECIDABLE = "2 options: no rate"


def undecidable(evidence: Sequence[Evidence]) -> bool:
    """Whether chance alone flags every second question or more, as it does with 2 options: then no flag on a question
    means anything, and only their number does."""
    return bool(evidence) and all(e.null_rate >= 0.5 for e in evidence)


def _tested(verdicts: Verdicts) -> list[Evidence]:
    return [verdict for verdict in verdicts if isinstance(verdict, Evidence)]


def _flagged(verdicts: Verdicts) -> tuple[float, float]:
    return rate_and_stderr([evidence.flagged for evidence in _tested(verdicts)])


def _pooled_pvalue(verdicts: Verdicts) -> float:
    evidence = _tested(verdicts)
    return poisson_binomial_tail(sum(e.flagged for e in evidence), [e.null_rate for e in evidence])


@row
def flagged_rate(verdicts: Verdicts) -> float:
    """Share of the tested questions that are flagged."""
    return _flagged(verdicts)[0]


@row
def flagged_rate_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate`."""
    return _flagged(verdicts)[1]


@row
def null_rate(verdicts: Verdicts) -> float:
    """Share of the tested questions that would be flagged without leakage, by the statistic's null."""
    rates = [evidence.null_rate for evidence in _tested(verdicts)]
    return math.fsum(rates) / len(rates) if rates else math.nan


@row
def dataset_pvalue(verdicts: Verdicts) -> float:
    """Probability, without leakage, of at least as many flagged questions (exact Poisson-binomial tail)."""
    return _pooled_pvalue(verdicts)


@row
def flagged_rate_guarded(verdicts: Verdicts) -> float:
    """`flagged_rate` of the questions with a guard, whose options have a natural order."""
    return _flagged(verdicts)[0]


@row
def flagged_rate_guarded_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate_guarded`."""
    return _flagged(verdicts)[1]


@row
def flagged_rate_unguarded(verdicts: Verdicts) -> float:
    """`flagged_rate` of the questions without a guard."""
    return _flagged(verdicts)[0]


@row
def flagged_rate_unguarded_stderr(verdicts: Verdicts) -> float:
    """Standard error of `flagged_rate_unguarded`."""
    return _flagged(verdicts)[1]


@row
def dataset_pvalue_unguarded(verdicts: Verdicts) -> float:
    """`dataset_pvalue` of the questions without a guard, whose null hypothesis is more credible."""
    return _pooled_pvalue(verdicts)


@row
def skipped(verdicts: Verdicts) -> int:
    """How many questions could not be tested; the samples log gives the reason of each."""
    return sum(isinstance(verdict, Skipped) for verdict in verdicts)


@row
def accuracy_original(verdicts: Verdicts) -> float:
    """Share of questions answered rightly as published."""
    return _accuracy(verdicts, "original")[0]


@row
def accuracy_original_stderr(verdicts: Verdicts) -> float:
    """Standard error of `accuracy_original`."""
    return _accuracy(verdicts, "original")[1]


@row
def accuracy_shuffled(verdicts: Verdicts) -> float:
    """Share of questions answered rightly with their options shuffled."""
    return _accuracy(verdicts, "shuffled")[0]


@row
def accuracy_shuffled_stderr(verdicts: Verdicts) -> float:
    """Standard error of `accuracy_shuffled`."""
    return _accuracy(verdicts, "shuffled")[1]


@row
def accuracy_replaced(verdicts: Verdicts) -> float:
    """Share of questions answered rightly with their wrong options replaced."""
    return _accuracy(verdicts, "replaced")[0]


@row
def accuracy_replaced_stderr(verdicts: Verdicts) -> float:
    """Standard error of `accuracy_replaced`."""
    return _accuracy(verdicts, "replaced")[1]


@row
def accuracy_generalized(verdicts: Verdicts) -> float:
    """Share of questions answered rightly with both."""
    return _accuracy(verdicts, "generalized")[0]


@row
def accuracy_generalized_stderr(verdicts: Verdicts) -> float:
    """Standard error of `accuracy_generalized`."""
    return _accuracy(verdicts, "generalized")[1]


@row
def delta(verdicts: Verdicts) -> float:
    """accuracy_generalized - accuracy_original: what a clean model gains (Yao et al., 2024)."""
    return _change(verdicts, "original", "generalized").value


@row
def delta_stderr(verdicts: Verdicts) -> float:
    """Standard error of `delta`, of paired differences."""
    return _change(verdicts, "original", "generalized").stderr


@row
def delta_shuffled(verdicts: Verdicts) -> float:
    """accuracy_shuffled - accuracy_original: what is lost with remembered letters."""
    return _change(verdicts, "original", "shuffled").value


@row
def delta_shuffled_stderr(verdicts: Verdicts) -> float:
    """Standard error of `delta_shuffled`, of paired differences."""
    return _change(verdicts, "original", "shuffled").stderr


@row
def delta_replaced(verdicts: Verdicts) -> float:
    """accuracy_replaced - accuracy_original: what is lost with remembered options."""
    return _change(verdicts, "original", "replaced").value


@row
def delta_replaced_stderr(verdicts: Verdicts) -> float:
    """Standard error of `delta_replaced`, of paired differences."""
    return _change(verdicts, "original", "replaced").stderr


@row
def mcnemar_pvalue(verdicts: Verdicts) -> float:
    """Two-sided exact p-value of `delta`: that answers are as often lost as won."""
    return _change(verdicts, "original", "generalized").pvalue


@row
def reference_pvalue(verdicts: Verdicts) -> float:
    """Probability of a delta at least as far below that of the clean reference; undefined without one."""
    given = [m for m in verdicts if isinstance(m, ArmsMeasurement)]
    if not given or given[0].reference is None:
        return math.nan
    found = _change(verdicts, "original", "generalized")
    return below_reference(found, given[0].reference, given[0].reference_stderr or 0.0)


@row
def accuracy_whole(verdicts: Verdicts) -> float:
    """Share of questions answered rightly when they are shown whole."""
    return rate_and_stderr([verdict.whole for verdict in verdicts if isinstance(verdict, TailEvidence)])[0]


@row
def accuracy_whole_stderr(verdicts: Verdicts) -> float:
    """Standard error of `accuracy_whole`."""
    return rate_and_stderr([verdict.whole for verdict in verdicts if isinstance(verdict, TailEvidence)])[1]


@row
def mean_loglikelihood(verdicts: Verdicts) -> float:
    """Log-likelihood a token of the published text, nats; mean over questions."""
    return _mean(verdicts, "mean_loglikelihood")[0]


@row
def mean_loglikelihood_stderr(verdicts: Verdicts) -> float:
    """Standard error of `mean_loglikelihood`."""
    return _mean(verdicts, "mean_loglikelihood")[1]


@row
def mean_zscore(verdicts: Verdicts) -> float:
    """Min-K%++ with k = 100 %: z-score of the published text's tokens; mean over questions."""
    return _mean(verdicts, "mean_zscore")[0]


@row
def mean_zscore_stderr(verdicts: Verdicts) -> float:
    """Standard error of `mean_zscore`."""
    return _mean(verdicts, "mean_zscore")[1]


@row
def min_k(verdicts: Verdicts) -> float:
    """Min-K%: log-probability of the k % least likely tokens, nats; mean over questions."""
    return _mean(verdicts, "min_k")[0]


@row
def min_k_stderr(verdicts: Verdicts) -> float:
    """Standard error of `min_k`."""
    return _mean(verdicts, "min_k")[1]


@row
def min_k_zscore(verdicts: Verdicts) -> float:
    """Min-K%++: the k % lowest z-scores of tokens; mean over questions."""
    return _mean(verdicts, "min_k_zscore")[0]


@row
def min_k_zscore_stderr(verdicts: Verdicts) -> float:
    """Standard error of `min_k_zscore`."""
    return _mean(verdicts, "min_k_zscore")[1]


@row
def reproduced_rate(verdicts: Verdicts) -> float:
    """Share of questions of which the model writes at least a share T of the options."""
    return mean_and_stderr([float(m.reproduced) for m in verdicts if isinstance(m, ReproductionMeasurement)])[0]


@row
def reproduced_rate_stderr(verdicts: Verdicts) -> float:
    """Standard error of `reproduced_rate`."""
    return mean_and_stderr([float(m.reproduced) for m in verdicts if isinstance(m, ReproductionMeasurement)])[1]


@row
def control_rate(verdicts: Verdicts) -> float:
    """The same when completions are compared with the next option: what templates and shared words give."""
    return mean_and_stderr([float(m.control) for m in verdicts if isinstance(m, ReproductionMeasurement)])[0]


@row
def control_rate_stderr(verdicts: Verdicts) -> float:
    """Standard error of `control_rate`."""
    return mean_and_stderr([float(m.control) for m in verdicts if isinstance(m, ReproductionMeasurement)])[1]


@row
def ngram_accuracy(verdicts: Verdicts) -> float:
    """Share of places where the model writes exactly how the published text goes on; mean over questions."""
    return mean_and_stderr([float(m.ngram_accuracy) for m in verdicts if isinstance(m, NgramMeasurement)])[0]


@row
def ngram_accuracy_stderr(verdicts: Verdicts) -> float:
    """Standard error of `ngram_accuracy`."""
    return mean_and_stderr([float(m.ngram_accuracy) for m in verdicts if isinstance(m, NgramMeasurement)])[1]


def _mean(verdicts: Verdicts, name: str) -> tuple[float, float]:
    return mean_and_stderr(
        [getattr(measured, name) for measured in verdicts if isinstance(measured, TokenMeasurement)]
    )


def _arm(verdicts: Verdicts, arm: str) -> list[bool]:
    return [getattr(measured, arm) for measured in verdicts if isinstance(measured, ArmsMeasurement)]


def _accuracy(verdicts: Verdicts, arm: str) -> tuple[float, float]:
    return rate_and_stderr(_arm(verdicts, arm))


def _change(verdicts: Verdicts, before: str, after: str) -> Difference:
    return difference(_arm(verdicts, before), _arm(verdicts, after))


ELSEWHERE = Skipped("it belongs to another row")


def given_to(row: str, verdict: Verdict, guards: Sequence[str]) -> Verdict:
    """What a question adds to a row: nothing to the rows of questions that are guarded when it is not, and the
    other way round, though the harness wants something from each."""
    of_guarded, of_unguarded = "_guarded" in row, "_unguarded" in row
    return ELSEWHERE if (of_guarded and not guards) or (of_unguarded and guards) else verdict


def contributions(verdict: Verdict, guards: Sequence[str]) -> dict[str, float]:
    """What one question adds to rows, under the row's name; nothing where only all questions make a value."""
    if isinstance(verdict, Skipped):
        return {"skipped": 1.0}
    if isinstance(verdict, Measurement):
        return {"skipped": 0.0} | verdict.values()
    flagged = float(verdict.flagged)
    stratum = "flagged_rate_guarded" if guards else "flagged_rate_unguarded"
    return {"skipped": 0.0, "flagged_rate": flagged, stratum: flagged, "null_rate": verdict.null_rate}


def _register(row: Row) -> None:
    name = row.__name__
    if name not in metric_registry:
        metric_registry.register(name, target=row)
        aggregation_registry.register(name, target=row)
    if name not in metric_agg_registry:
        metric_agg_registry.register(name, target=row)
        higher_is_better_registry.register(name, target=False)


for _row in ROWS:
    _register(_row)
