"""Tables of arbitrary records: each column computes its cells; a column without any value is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lm_eval_leakage.results.cells import EMPTY, Cell
from lm_eval_leakage.results.column import Column
from lm_eval_leakage.results.result_types import Row

Record = TypeVar("Record")


@dataclass(frozen=True)
class PageColumn(Generic[Record]):
    """meaning: a sentence for the list of columns; empty if the title is enough"""

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
class TableLine:
    """level: value to filter lines by; head: the cell that names the line"""

    level: str
    head: Cell
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    heads: tuple[Head, ...]
    lines: tuple[TableLine, ...]

    @property
    def levels(self) -> list[str]:
        return list(dict.fromkeys(line.level for line in self.lines))


def tabulate(
    records: Sequence[Record], columns: Sequence[PageColumn[Record]], level: Callable[[Record], str] = lambda _: ""
) -> Table:
    """The first column names the lines and is never left out."""
    first, *others = columns
    filled = [column for column in others if any(column.cell(record) != EMPTY for record in records)]
    return Table(
        tuple(Head(column.title, column.meaning, column.is_text) for column in (first, *filled)),
        tuple(
            TableLine(level(record), first.cell(record), tuple(column.cell(record) for column in filled))
            for record in records
        ),
    )


def of_row(column: Column[Any]) -> PageColumn[Row]:
    """The page's column for a column of the registry."""
    return PageColumn(column.heading, column.cell, column.meaning, isinstance(column.kind.undefined, str))
