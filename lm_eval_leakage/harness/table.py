"""Rows of the results table: lm_eval aggregations over the verdicts on all questions.

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
_known: dict[str, tuple[DeclaredRow, tuple[Aggregation, ...]]] = {}
RESERVED = frozenset((*CORE, *OF_ORDERS, *OF_FILLERS, *OF_HARNESS)) - {NULL_RATE_ROW.name}  # keys of the samples log


class Contribution(NamedTuple):
    """What one question gives to one row.

    key: as of `questions.copies`; place: the audited task and the number of the row in it
    """

    given: Any
    key: str = ""
    place: tuple[str, int] = ("", 0)


class Counted(NamedTuple):
    """The verdicts of a row, each question once, and the number of copies that were left out."""

    verdicts: Verdicts = ()
    n_copies: int = 0

    @staticmethod
    def of(contributions: Sequence[Contribution]) -> Counted:
        """Without the placeholders for questions of other rows. Of copies, the first in the order of tasks and rows
        counts, in whatever order several processes hand them in."""
        own = [one for one in contributions if one.given != ELSEWHERE]
        once = each_once(own, lambda one: one.key, lambda one: one.place)
        return Counted([one.given for one in once], len(own) - len(once))


class RowValue(float):
    """A row's value that carries the verdicts it was computed from, so that a group can compute its row from them.

    It must be a float: lm_eval 0.4.13 does arithmetic on what an aggregation returns and formats it with `%.4f`. It
    must carry the verdicts: a group gets only these values of its members, and neither its p-value nor the rate over
    all its questions is a mean of theirs. Only `LeakageGroup` and `finish` use the verdicts; the latter leaves plain
    numbers. If groups got their members' samples, this class would not be needed.

    contributions: of all questions, as the harness collected them
    counted: what the value is computed from: those of the row's own questions, without copies
    words: shown in the table instead of a number that would mislead
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
    """The row or its standard error, which is a separate row: the harness computes errors only for its own `mean`, and
    prints a row named `<row>_stderr` as the ± of the other."""

    def aggregate(contributions: Sequence[Contribution]) -> RowValue:
        counted = Counted.of(contributions)
        value = compute(counted.verdicts)
        words = f"{value:.0f}" if isinstance(value, int) else getattr(value, "words", None)
        if row.withheld_if_undecidable and undecidable(counted.verdicts):
            value, words = math.nan, UNDECIDABLE if name == row.name else None
        found = RowValue(value)
        found.row, found.contributions, found.counted = aggregate, contributions, counted
        found.words, found.in_table = words, row.in_table
        return found

    aggregate.__name__ = aggregate.__qualname__ = name  # under which the harness prints the row
    aggregate.__doc__ = row.meaning if name == row.name else f"Standard error of `{row.name}`."
    return aggregate


def pooled(values: Sequence[RowValue]) -> RowValue:
    """One row over several tasks, as if all their questions belonged to one task."""
    return values[0].row([one for value in values for one in value.contributions])


def undecidable(verdicts: Verdicts) -> bool:
    """Whether at least half of the questions are flagged by chance, as with 2 options: then a single flag means
    nothing, only their number does."""
    rates = [verdict.null_rate for verdict in verdicts if isinstance(verdict, Evidence)]
    return bool(rates) and min(rates) >= 0.5


@dataclass(frozen=True)
class JudgedQuestion:
    """Takes the place of the filtered response to a question's first request.

    detector: the detector's id
    guards: the question's guards; benchmark: the audited task
    orders: its answers to all orders, in the task's first pipeline, if its probe asks orders
    fillers: its answers with the fillers of its block, if its probe exchanges fillers
    key: as of `questions.copies`; number: of its row in the task
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
        """Return what the harness collects of it for each row. Rows that are computed from the same questions share
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

    def own_value(self, name: str) -> float | None:
        """In the row of this name; None if only all questions together have one."""
        row = row_named(name)
        given = self._given_to(row.questions)
        is_error = name != row.name
        return None if is_error or given is ELSEWHERE or row.per_question is None else row.per_question(given)


def known_rows() -> dict[str, Aggregation]:
    """The rows of all registered statistics and their standard errors, by name; registers them with the harness.

    Raises ValueError for an invalid row; if it is one of another distribution, that one's detectors are left out.
    """
    registered = [statistics.get(name) for name in statistics.names()]
    owners = {statistic: package_of(statistic) for statistic in registered}
    ours = [row for statistic, package in owners.items() if package is None for row in _declared(statistic)]
    for row in (*VERDICT_ROWS, *ours, SKIPPED):
        _make_known(row)
    for statistic, package in owners.items():
        if package is not None:
            try:
                for row in _declared(statistic):
                    _make_known(row)
            except Exception as error:
                unregister(package, error)
    return {made.__name__: made for _, aggregations in _known.values() for made in aggregations}


def metric_list(pipelines: Iterable[Mapping[str, Any]], *, with_verdict: bool = False) -> list[dict[str, Any]]:
    """The rows of a task with this `filter_list`, before them those of the verdict on the data set. The harness prints
    every row of a task for every pipeline; rows without a value there are removed afterwards."""
    rows = [*VERDICT_ROWS] if with_verdict else []
    for name in [entry["statistic"] for pipeline in pipelines for entry in pipeline["filter"] if "statistic" in entry]:
        if not (declared := _declared(statistics.get(name))):
            raise ValueError(
                f"the statistic {name!r} declares no rows, so nothing would be printed for it; give its class "
                "`rows`, such as EVIDENCE_ROWS of lm_eval_leakage.stats.pooling"
            )
        rows += declared
    return entries_of([*rows, SKIPPED])


def entries_of(rows: Sequence[DeclaredRow]) -> list[dict[str, Any]]:
    """The `metric_list` entries of these rows, without duplicates."""
    return [
        {"metric": name, "aggregation": name, "higher_is_better": row.higher_is_better}
        for row in dict.fromkeys(rows)
        for name in names_of(row)
    ]


def names_of(row: DeclaredRow) -> tuple[str, ...]:
    return (row.name,) if row.error is None else (row.name, f"{row.name}_stderr")


def row_named(name: str) -> DeclaredRow:
    """The row that has this name, or whose standard error has it."""
    return _known[name if name in _known else name.removesuffix("_stderr")][0]


def _declared(statistic: type[Statistic]) -> tuple[DeclaredRow, ...]:
    return getattr(statistic, "rows", ())


def _make_known(row: DeclaredRow) -> None:
    if row.name in _known and _known[row.name][0] == row:
        return
    if taken := [name for name in names_of(row) if name in RESERVED or is_metric(name)]:
        raise ValueError(
            f"the row {taken[0]!r} has a name that the harness, the samples log or another row uses; give it another"
        )
    computed = zip(names_of(row), (row.compute, row.error), strict=False)
    _known[row.name] = row, tuple(_aggregation(row, name, compute) for name, compute in computed if compute)
    for aggregation in _known[row.name][1]:
        add_metric(aggregation.__name__, aggregation, row.higher_is_better)
