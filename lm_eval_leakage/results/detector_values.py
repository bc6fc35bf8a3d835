"""Collects the values of detectors without a column in the registry, so that every audit shows up in the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.stats.pooling import (
    FLAGGED_RATE,
    FLAGGED_RATE_GUARDED,
    FLAGGED_RATE_UNGUARDED,
    NAN,
    NULL_RATE_ROW,
    SKIPPED,
    Estimate,
    mean_and_stderr,
    poisson_binomial_tail,
    share,
)

NO_VALUES_OF_THEIR_OWN = {row.name for row in (SKIPPED, FLAGGED_RATE_GUARDED, FLAGGED_RATE_UNGUARDED)}
Values = Mapping[str, float]  # values of one detector on one question, by name


@dataclass(frozen=True)
class DetectorValue:
    """One value of one detector, over the questions of a task, group or subject.

    detector: id; name: of the row that the statistic declares
    n: tested questions; estimate: mean over them
    null_rate, pvalue: of a flagged rate alone: the mean null rate, and the probability, by chance, of at least as many
        flags among all tested questions (exact)
    """

    detector: str
    name: str
    n: int
    estimate: Estimate
    null_rate: float = NAN
    pvalue: float = NAN

    @property
    def key(self) -> str:
        """Its name in JSON and CSV: `token_evidence.min_k`."""
        return f"{self.detector}.{self.name}"


def values_of_line(line: AuditLine) -> Values:
    """Return what a question contributes to each row of its statistic; nothing where it was not tested."""
    if line.reason is not None:
        return {}
    null_rate = {} if line.null_rate is None else {NULL_RATE_ROW.name: line.null_rate}
    names = [name for name in line.row_names if name in line.values and name not in NO_VALUES_OF_THEIR_OWN]
    return null_rate | {name: line.values[name] for name in names}


def detector_values(questions: Iterable[Mapping[str, Values]]) -> tuple[DetectorValue, ...]:
    """Return every value of every detector, sorted by detector.

    questions: of each, its values by detector
    """
    measured = [(detector, values) for question in questions for detector, values in question.items() if values]
    return tuple(
        _over_questions(detector, name, [values for _, values in pairs])
        for detector, pairs in sorted(grouped(measured, lambda pair: pair[0]).items())
        for name in dict.fromkeys(name for _, values in pairs for name in values if name != NULL_RATE_ROW.name)
    )


def _over_questions(detector: str, name: str, of_questions: Sequence[Values]) -> DetectorValue:
    numbers = [values[name] for values in of_questions if name in values]
    null_rates = [values[NULL_RATE_ROW.name] for values in of_questions if NULL_RATE_ROW.name in values]
    if name != FLAGGED_RATE.name or not null_rates:
        return DetectorValue(detector, name, len(numbers), share(numbers))
    decidable = [values[name] for values in of_questions if values[NULL_RATE_ROW.name] < 0.5]  # not with 2 options
    rate = share(decidable)
    pvalue = poisson_binomial_tail(round(sum(numbers)), null_rates)
    return DetectorValue(detector, name, len(numbers), rate, mean_and_stderr(null_rates)[0], pvalue)
