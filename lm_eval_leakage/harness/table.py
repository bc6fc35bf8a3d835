"""Computes rows of the results table, as lm_eval aggregations over the verdicts on all questions.

Every question contributes its whole verdict to every row, whether it was tested or not: with data parallelism, the
harness needs the same keys on every process, and a p-value of the data set needs all questions at once. Undefined
values are NaN, since the harness does arithmetic on them.

Registers the rows that statistics declare as lm_eval metrics, and builds the `metric_list` of a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from lm_eval_leakage.detectors import Statistic, statistics
from lm_eval_leakage.harness.seams.registries import add_metric, is_metric
from lm_eval_leakage.logs.audit_line import CORE, OF_HARNESS, OF_ORDERS, SHARED_TEXTS
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.records import DeclaredRow, Evidence, OrderAnswers, Skipped, Verdict
from lm_eval_leakage.registry import leave_out, package_of
from lm_eval_leakage.results.data_verdict import VERDICT_ROWS
from lm_eval_leakage.stats.known_scores import CALIBRATED_ROWS, Calibrated
from lm_eval_leakage.stats.pooling import NULL_RATE_ROW, SKIPPED, Verdicts

UNDECIDABLE = "2 options: no rate"


class Contribution(NamedTuple):
    """What one question gives to one row.

    key: as of `questions.copies`; place: the audited task and the number of the row in it
    """

    given: Any
    key: str
    place: tuple[str, int]


class RowValue(float):
    """A row's value that carries the verdicts it was computed from, so that a group can compute its row from them.

    It must be a float: lm_eval 0.4.13 does arithmetic on what an aggregation returns and formats it with `%.4f`. It
    must carry the verdicts: a group gets only these values of its members, and neither its p-value nor the rate over
    all its questions is a mean of theirs. Only `LeakageGroup` and `finish` use the verdicts; copied or saved, it is a
    plain number. If groups got their members' samples, this class would not be needed.

    contributions: of all questions, as the harness collected them
    counted: what the value is computed from: those of the row's own questions, without copies
    words: shown in the table instead of a number that would mislead
    in_table: whether the table shows it
    """

    row: Aggregation
    contributions: Verdicts
    counted: Counted
    words: str | None
    in_table: bool

    def __new__(
        cls,
        row: Aggregation,
        contributions: Verdicts,
        counted: Counted,
        value: float,
        words: str | None = None,
        in_table: bool = True,
    ) -> RowValue:
        made = super().__new__(cls, value)
        made.row, made.contributions, made.counted = row, contributions, counted
        made.words, made.in_table = words, in_table
        return made

    def __format__(self, spec: str) -> str:
        return self.words or super().__format__(spec)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        """A copy, for a logger or another process, is a plain number."""
        return float, (float(self),)


Aggregation = Callable[[Verdicts], RowValue]


@dataclass(frozen=True)
class Counted:
    """The verdicts of a row, each question once, and the number of copies that were left out."""

    verdicts: Verdicts
    n_copies: int = 0

    @staticmethod
    def of(contributions: Verdicts) -> Counted:
        """Without the placeholders for questions of other rows. Of copies, the first in the order of tasks and rows
        counts, in whatever order several processes hand them in."""
        own = [one if isinstance(one, Contribution) else Contribution(one, "", NOWHERE) for one in contributions]
        own = [one for one in own if one.given != ELSEWHERE]
        once = each_once(own, lambda one: one.key, lambda one: one.place)
        return Counted([one.given for one in once], len(own) - len(once))


def aggregations_of(row: DeclaredRow) -> Iterator[Aggregation]:
    """The row and its standard error, which is a separate row: the harness computes errors only for its own `mean`,
    and prints a row named `<row>_stderr` as the ± of the other."""

    def aggregate(contributions: Verdicts) -> RowValue:
        counted = Counted.of(contributions)
        value = row.compute(counted.verdicts)
        words = f"{value:.0f}" if isinstance(value, int) else getattr(value, "words", None)
        if row.withheld_if_undecidable and undecidable(counted.verdicts):
            value, words = math.nan, UNDECIDABLE
        return RowValue(aggregate, contributions, counted, value, words, row.in_table)

    yield _named(aggregate, row.name, row.meaning)
    if row.error is not None:
        yield _named(_error(row, row.error), f"{row.name}_stderr", f"Standard error of `{row.name}`.")


def _error(row: DeclaredRow, compute: Callable[[Verdicts], float]) -> Aggregation:
    def aggregate(contributions: Verdicts) -> RowValue:
        counted = Counted.of(contributions)
        is_withheld = row.withheld_if_undecidable and undecidable(counted.verdicts)
        value = math.nan if is_withheld else compute(counted.verdicts)
        return RowValue(aggregate, contributions, counted, value, in_table=row.in_table)

    return aggregate


def _named(aggregate: Aggregation, name: str, meaning: str) -> Aggregation:
    """Names the function, since the harness prints a row under the name of its function."""
    aggregate.__name__ = aggregate.__qualname__ = name
    aggregate.__doc__ = meaning
    return aggregate


def pooled(values: Sequence[RowValue]) -> RowValue:
    """One row over several tasks, as if all their questions belonged to one task."""
    first, *_ = values
    return first.row([one for value in values for one in value.contributions])


def undecidable(verdicts: Verdicts) -> bool:
    """Whether at least half of the questions are flagged by chance, as with 2 options: then a single flag means
    nothing, only their number does."""
    evidence = [verdict for verdict in verdicts if isinstance(verdict, Evidence)]
    return bool(evidence) and all(e.null_rate >= 0.5 for e in evidence)


# ---------------------------------------------------------------------- the contribution of one question

ELSEWHERE = Skipped("it belongs to another row")
NOWHERE = ("", 0)


@cache
def _same(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first of all equal tuples of names."""
    return names


@dataclass(frozen=True)
class JudgedQuestion:
    """Takes the place of the filtered response to a question's first request.

    calibrated: the verdict by a calibration, if the run has one, or NOT_CALIBRATED
    detector: the detector's id
    guards: the question's guards; benchmark: the audited task
    row_names, row_values: the rows, and the question's own value in each; None if only all questions have a value
    orders: its answers to all orders, in the task's first pipeline, if its probe asks orders
    key: as of `questions.copies`; number: of its row in the task
    """

    verdict: Verdict
    detector: str = ""
    guards: tuple[str, ...] = ()
    calibrated: Calibrated | Skipped | None = None
    benchmark: str = ""
    row_names: tuple[str, ...] = ()
    row_values: tuple[float | None, ...] = ()
    orders: OrderAnswers | None = None
    key: str = ""
    number: int = 0

    def contribution_to(self, row: DeclaredRow) -> Contribution:
        """What the harness collects of it for a row."""
        return Contribution(self.given_to(row), self.key, (self.benchmark, self.number))

    def given_to(self, row: DeclaredRow) -> Verdict | Calibrated | OrderAnswers:
        """What a row is computed from; ELSEWHERE if this question is not part of the row, since the harness needs a
        value from each."""
        if row.questions == "calibrated":
            return self.calibrated or ELSEWHERE
        if row.questions == "orders":
            return self.orders or ELSEWHERE
        of_others = {"guarded": not self.guards, "unguarded": bool(self.guards)}.get(row.questions, False)
        return ELSEWHERE if of_others else self.verdict

    def with_contributions(self, rows: Mapping[str, DeclaredRow]) -> JudgedQuestion:
        """rows: rows by name, and by the names of their standard errors"""
        values = tuple([self._contribution(row, name) for name, row in rows.items()])
        return replace(self, row_names=_same(tuple(rows)), row_values=values)

    @property
    def contributions(self) -> dict[str, float | None]:
        """The question's own value in each row, by the row's name."""
        return dict(zip(self.row_names, self.row_values, strict=True))

    def _contribution(self, row: DeclaredRow, name: str) -> float | None:
        given = self.given_to(row)
        is_error = name != row.name
        return None if is_error or given is ELSEWHERE or row.per_question is None else row.per_question(given)


_known: dict[str, tuple[DeclaredRow, tuple[Aggregation, ...]]] = {}


def known_rows() -> dict[str, Aggregation]:
    """The rows of all registered statistics and their standard errors, by name; registers them with the harness.

    Raises ValueError for an invalid row; if it is one of another distribution, that one's detectors are left out.
    """
    registered = [statistics.get(name) for name in statistics.names()]
    owners = {statistic: package_of(statistic) for statistic in registered}
    ours = [row for statistic, package in owners.items() if package is None for row in _declared(statistic)]
    for row in (*VERDICT_ROWS, *ours, SKIPPED, *CALIBRATED_ROWS):
        _make_known(row)
    for statistic, package in owners.items():
        try:
            for row in () if package is None else _declared(statistic):
                _make_known(row)
        except Exception as error:
            assert package is not None
            leave_out(package, error)
    return {made.__name__: made for _, aggregations in _known.values() for made in aggregations}


def metric_list(pipelines: Iterable[Mapping[str, Any]], *, with_verdict: bool = False) -> list[dict[str, Any]]:
    """The rows of a task with this `filter_list`, before them those of the verdict on the data set. The harness prints
    every row of a task for every pipeline; rows without a value there are removed afterwards."""
    names = [entry["statistic"] for pipeline in pipelines for entry in pipeline["filter"] if "statistic" in entry]
    first = VERDICT_ROWS if with_verdict else ()
    return entries_of([*first, *(row for name in dict.fromkeys(names) for row in _rows_of(name)), SKIPPED])


def entries_of(rows: Sequence[DeclaredRow]) -> list[dict[str, Any]]:
    """The `metric_list` entries of these rows, without duplicates."""
    return [
        {"metric": name, "aggregation": name, "higher_is_better": row.higher_is_better}
        for row in dict.fromkeys(rows)
        for name in names_of(row)
    ]


def names_of(row: DeclaredRow) -> tuple[str, ...]:
    return (row.name,) if row.error is None else (row.name, f"{row.name}_stderr")


def row_of(name: str) -> DeclaredRow:
    """The row that has this name, or whose standard error has it."""
    return _known[name if name in _known else name.removesuffix("_stderr")][0]


def _rows_of(statistic: str) -> tuple[DeclaredRow, ...]:
    declared = _declared(statistics.get(statistic))
    if not declared:
        raise ValueError(
            f"the statistic {statistic!r} declares no rows, so nothing would be printed for it; give its class "
            "`rows`, such as EVIDENCE_ROWS of lm_eval_leakage.stats.pooling"
        )
    return declared


def _declared(statistic: type[Statistic]) -> tuple[DeclaredRow, ...]:
    return getattr(statistic, "rows", ())


RESERVED = frozenset((*CORE, *OF_ORDERS, SHARED_TEXTS, *OF_HARNESS)) - {NULL_RATE_ROW.name}  # keys of the samples log


def _make_known(row: DeclaredRow) -> None:
    if row.name in RESERVED:
        raise ValueError(f"the row {row.name!r} has the name of a key of the samples log; give it another one")
    if row.name in _known:
        if _known[row.name][0] != row:
            raise ValueError(
                f"the row {row.name!r} is declared twice with different meanings; declare it once and share it, or "
                "give one of them another name"
            )
        return
    if taken := [name for name in names_of(row) if is_metric(name)]:
        raise ValueError(f"the row {taken[0]!r} has the name of a metric of the harness; give it another name")
    made = tuple(aggregations_of(row))
    _known[row.name] = row, made
    for aggregation in made:
        add_metric(aggregation.__name__, aggregation, row.higher_is_better)
