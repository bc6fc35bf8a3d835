"""Computes the rows of the results table, as lm_eval aggregations over the verdicts on all questions.

Every question contributes its whole verdict to every row, whether it was tested or not: with data parallelism, the
harness needs the same keys on every process, and a p-value of the data set needs all questions at once. Undefined
values are NaN, since the harness does arithmetic on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lm_eval_leakage.detectors import Statistic, statistics
from lm_eval_leakage.harness.seams.registries import add_metric, is_metric
from lm_eval_leakage.logs.audit_line import (
    CORE,
    OF_FILLERS,
    OF_HARNESS,
    OF_ORDERS,
)
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.records import DeclaredRow, Evidence, FillerAnswers, OrderAnswers, Skipped, Verdict
from lm_eval_leakage.registry import package_of, unregister
from lm_eval_leakage.results.verdict_numbers import VERDICT_ROWS
from lm_eval_leakage.stats.pooling import NULL_RATE_ROW, SKIPPED, Verdicts

UNDECIDABLE = "2 options: no rate"
ELSEWHERE = Skipped("it belongs to another row")
RESERVED = frozenset((*CORE, *OF_ORDERS, *OF_FILLERS, *OF_HARNESS)) - {NULL_RATE_ROW.name}  # keys of the samples log
_registered: dict[str, tuple[DeclaredRow, tuple[Aggregation, ...]]] = {}


class Contribution(NamedTuple):
    """The value that one question contributes to one row.

    value: a verdict or answers; ELSEWHERE if the question is not part of the row
    key: identifies the question and its copies, as `questions.copies` computes it
    place: the audited task, and the number of the question's data row in it
    """

    value: Any
    key: str = ""
    place: tuple[str, int] = ("", 0)


class Counted(NamedTuple):
    """The verdicts of a row, each question once, and the number of copies that were left out."""

    verdicts: Verdicts = ()
    n_copies: int = 0

    @staticmethod
    def of(contributions: Sequence[Contribution]) -> Counted:
        """Return the verdicts without the placeholders for questions of other rows. Of copies, the first in the order
        of tasks and data rows counts, whatever the order in which several processes contribute them."""
        verdicts = [contribution for contribution in contributions if contribution.value != ELSEWHERE]
        distinct = each_once(verdicts, lambda contribution: contribution.key, lambda contribution: contribution.place)
        return Counted([contribution.value for contribution in distinct], len(verdicts) - len(distinct))


class RowValue(float):
    """A row's value that carries the verdicts it was computed from, so that a group can compute its row from them.

    It must be a float: lm_eval 0.4.13 does arithmetic on what an aggregation returns and formats it with `%.4f`. It
    must carry the verdicts: a group gets only these values of its members, and neither its p-value nor the rate over
    all its questions is a mean of theirs. Only `LeakageGroup` and `finish` use the verdicts; the latter leaves plain
    numbers. If groups got their members' samples, this class would not be needed.

    row: the aggregation that computed the value
    contributions: those of all questions, as the harness collected them
    counted: the verdicts that the value is computed from, without copies and without questions of other rows
    words: a text that the table shows instead of a number that would mislead
    in_table: whether the table shows it
    """

    row: Aggregation
    contributions: Sequence[Contribution]
    counted: Counted
    words: str | None
    in_table: bool

    def __format__(self, spec: str) -> str:
        return self.words or super().__format__(spec)


Aggregation = Callable[[Sequence[Contribution]], RowValue]


def _aggregation(row: DeclaredRow, name: str, compute: Callable[[Verdicts], float]) -> Aggregation:
    """Return the aggregation of a row or of its standard error, which is a separate row: the harness computes errors
    only for its own `mean`, and prints a row named `<row>_stderr` as the ± of the other."""

    def aggregate(contributions: Sequence[Contribution]) -> RowValue:
        counted = Counted.of(contributions)
        value = compute(counted.verdicts)
        words = f"{value:.0f}" if isinstance(value, int) else getattr(value, "words", None)
        if row.withheld_if_undecidable and undecidable(counted.verdicts):
            value, words = math.nan, UNDECIDABLE if name == row.name else None
        row_value = RowValue(value)
        row_value.row, row_value.contributions, row_value.counted = aggregate, contributions, counted
        row_value.words, row_value.in_table = words, row.in_table
        return row_value

    aggregate.__name__ = aggregate.__qualname__ = name  # the harness prints the row under this name
    aggregate.__doc__ = row.meaning if name == row.name else f"Standard error of `{row.name}`."
    return aggregate


def pooled(values: Sequence[RowValue]) -> RowValue:
    """Return the value of one row over several tasks, as if all their questions belonged to one task."""
    return values[0].row([contribution for value in values for contribution in value.contributions])


def undecidable(verdicts: Verdicts) -> bool:
    """Return whether at least half of the questions are flagged by chance, as with 2 options. A single flag then means
    nothing, only the number of flags does."""
    rates = [verdict.null_rate for verdict in verdicts if isinstance(verdict, Evidence)]
    return bool(rates) and min(rates) >= 0.5


@dataclass(frozen=True)
class JudgedQuestion:
    """A question's verdict, which takes the place of the filtered response to the question's first request.

    detector: the detector's id
    guards: the question's guards
    benchmark: the audited task
    orders: the log-likelihoods of all orders, in the task's first pipeline, if its probe scores orders
    fillers: the log-likelihoods with the fillers of its block, if its probe exchanges fillers
    key: identifies the question and its copies, as `questions.copies` computes it
    number: the number of the question's data row in the task
    """

    verdict: Verdict
    detector: str = ""
    guards: tuple[str, ...] = ()
    benchmark: str = ""
    orders: OrderAnswers | None = None
    fillers: FillerAnswers | None = None
    key: str = ""
    number: int = 0

    def contributions_to(self, rows: Mapping[str, DeclaredRow]) -> dict[str, Contribution]:
        """Return what the harness collects for each row. Rows that are computed from the same questions share
        one object: full MMLU would need 700,000 otherwise."""
        place = self.benchmark, self.number
        shared = {
            questions: Contribution(self._given_to(questions), self.key, place)
            for questions in {row.questions for row in rows.values()}
        }
        return {name: shared[row.questions] for name, row in rows.items()}

    def _given_to(self, questions: str) -> Verdict | OrderAnswers | FillerAnswers:
        """Return what rows over these questions (`DeclaredRow.questions`) are computed from; ELSEWHERE if this
        question is not one of them, since the harness needs a value from each."""
        if questions == "orders":
            return self.orders or self.fillers or ELSEWHERE
        is_of_others = questions == ("unguarded" if self.guards else "guarded")
        return ELSEWHERE if is_of_others else self.verdict

    def value_in_row(self, name: str) -> float | None:
        """Return this question's value in the row of this name; None if only all questions together have a value."""
        row = row_named(name)
        value = self._given_to(row.questions)
        is_error = name != row.name
        return None if is_error or value is ELSEWHERE or row.per_question is None else row.per_question(value)


def registered_rows() -> dict[str, Aggregation]:
    """Return the rows of all statistics and their standard errors, by name; registers them with the harness.

    Raises ValueError for an invalid row of this package. An invalid row of another distribution unregisters the
    detectors of that distribution.
    """
    packages = {statistic: package_of(statistic) for statistic in map(statistics.get, statistics.names())}
    ours = [row for statistic, package in packages.items() if package is None for row in _declared(statistic)]
    for row in (*VERDICT_ROWS, *ours, SKIPPED):
        _register(row)
    for statistic, package in packages.items():
        if package is not None:
            try:
                for row in _declared(statistic):
                    _register(row)
            except Exception as error:
                unregister(package, error)
    return {
        aggregation.__name__: aggregation for _, aggregations in _registered.values() for aggregation in aggregations
    }


def metric_list(pipelines: Iterable[Mapping[str, Any]], *, with_verdict: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a task with this `filter_list`, as its `metric_list`. The harness prints every row of a task
    for every pipeline; rows without a value there are removed afterwards.

    with_verdict: whether the rows of the verdict on the data set come first
    """
    rows = [*VERDICT_ROWS] if with_verdict else []
    filters = [entry for pipeline in pipelines for entry in pipeline["filter"]]
    for name in [entry["statistic"] for entry in filters if "statistic" in entry]:
        declared = _declared(statistics.get(name))
        if not declared:
            raise ValueError(
                f"the statistic {name!r} declares no rows, so nothing would be printed for it; give its class "
                "`rows`, such as EVIDENCE_ROWS of lm_eval_leakage.stats.pooling"
            )
        rows += declared
    return entries_of([*rows, SKIPPED])


def entries_of(rows: Sequence[DeclaredRow]) -> list[dict[str, Any]]:
    """Return the `metric_list` entries of these rows, without duplicates."""
    return [
        {"metric": name, "aggregation": name, "higher_is_better": row.higher_is_better}
        for row in dict.fromkeys(rows)
        for name in names_of(row)
    ]


def names_of(row: DeclaredRow) -> tuple[str, ...]:
    """Return the names under which a row and its standard error are printed."""
    return (row.name,) if row.error is None else (row.name, f"{row.name}_stderr")


def row_named(name: str) -> DeclaredRow:
    """Return the row that has this name, or whose standard error has it."""
    return _registered[name if name in _registered else name.removesuffix("_stderr")][0]


def _declared(statistic: type[Statistic]) -> tuple[DeclaredRow, ...]:
    return getattr(statistic, "rows", ())


def _register(row: DeclaredRow) -> None:
    if row.name in _registered and _registered[row.name][0] == row:
        return
    for name in names_of(row):
        if name in RESERVED or is_metric(name):
            raise ValueError(
                f"the row {name!r} has a name that the harness, the samples log or another row uses; give it another"
            )
    functions = zip(names_of(row), (row.compute, row.error), strict=False)
    aggregations = tuple(_aggregation(row, name, compute) for name, compute in functions if compute)
    _registered[row.name] = row, aggregations
    for aggregation in aggregations:
        add_metric(aggregation.__name__, aggregation, row.higher_is_better)
