"""Tables of any records: columns that know their cells; a column that no record fills is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lm_eval_leakage.report.formatting import DASH, count, interval, number, plus_minus, pvalue
from lm_eval_leakage.results.annotation import Estimate

Record = TypeVar("Record")


@dataclass(frozen=True)
class Bar:
    """A share with its interval and the share by chance, to be drawn from 0 to 1."""

    low: float
    value: float
    high: float
    chance: float | None


@dataclass(frozen=True)
class Cell:
    """text: as shown; small: a second line; order: what the cell is sorted by, where that is not its text"""

    text: str = DASH
    small: str = ""
    order: float | None = None
    bar: Bar | None = None


EMPTY = Cell()


@dataclass(frozen=True)
class Column(Generic[Record]):
    """meaning: a sentence for the list of columns; empty where the title says all"""

    title: str
    cell: Callable[[Record], Cell]
    meaning: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Head:
    title: str
    meaning: str
    is_text: bool


@dataclass(frozen=True)
class Line:
    """level: what the line can be filtered by; head: the cell that names the line"""

    level: str
    head: Cell
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]

    @property
    def levels(self) -> list[str]:
        return list(dict.fromkeys(line.level for line in self.lines))


def tabulate(
    records: Sequence[Record], columns: Sequence[Column[Record]], level: Callable[[Record], str] = lambda _: ""
) -> Table:
    """The first column names the line and always stays."""
    first, *others = columns
    filled = [column for column in others if any(column.cell(record) != EMPTY for record in records)]
    return Table(
        tuple(Head(column.title, column.meaning, column.is_text) for column in (first, *filled)),
        tuple(
            Line(level(record), first.cell(record), tuple(column.cell(record) for column in filled))
            for record in records
        ),
    )


def text_cell(text: str) -> Cell:
    return Cell(text) if text else EMPTY


def count_cell(n: int) -> Cell:
    return Cell(count(n), order=n)


def number_cell(value: float) -> Cell:
    return EMPTY if math.isnan(value) else Cell(number(value), order=value)


def pvalue_cell(value: float) -> Cell:
    return EMPTY if math.isnan(value) else Cell(pvalue(value), order=value)


def error_cell(estimate: Estimate) -> Cell:
    """The value with its standard error."""
    return Cell(plus_minus(estimate, 3), order=estimate.value) if estimate else EMPTY


def interval_cell(estimate: Estimate) -> Cell:
    """The value over its 95 % interval."""
    return Cell(number(estimate.value), interval(estimate), estimate.value) if estimate else EMPTY


def bar_cell(estimate: Estimate, chance: float = math.nan) -> Cell:
    """The value with its standard error over a drawing of its 95 % interval."""
    if not estimate:
        return EMPTY
    low, value, high = (
        min(1.0, max(0.0, estimate.value if math.isnan(end) else end))
        for end in (estimate.low, estimate.value, estimate.high)
    )
    bar = Bar(low, value, high, None if math.isnan(chance) else min(1.0, max(0.0, chance)))
    return Cell(plus_minus(estimate, 3), interval(estimate), estimate.value, bar)
