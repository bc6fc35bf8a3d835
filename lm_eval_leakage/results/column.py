"""The definition of a results column, and how each kind of value is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from lm_eval_leakage.inference.pooling import NAN, UNKNOWN, Estimate
from lm_eval_leakage.results.cells import (
    EMPTY,
    Cell,
    count_cell,
    error_cell,
    interval_cell,
    number_cell,
    pvalue_cell,
    ratio_cell,
    text_cell,
)
from lm_eval_leakage.results.data_verdict import WORDS, DataVerdict
from lm_eval_leakage.results.measured import Measured
from lm_eval_leakage.results.result_types import Row

Value = TypeVar("Value", str, int, float, Estimate)


@dataclass(frozen=True)
class Kind(Generic[Value]):
    """undefined: the value for a row without data for the column; cell: formats a value for tables and pages"""

    undefined: Value
    cell: Callable[[Value], Cell]


def badge_of(word: str) -> str:
    """The style of a verdict's word as a badge."""
    return word.replace(" ", "-")


def word_cell(word: str) -> Cell:
    """A verdict's word, which sorts by how suspicious it is."""
    return Cell(word, order=WORDS.index(word), badge=badge_of(word)) if word else EMPTY


TEXT: Kind[str] = Kind("", text_cell)
METRIC: Kind[str] = Kind("", lambda key: text_cell(key.removesuffix(",none")))
WORD: Kind[str] = Kind("", word_cell)
COUNT: Kind[int] = Kind(0, count_cell)
NUMBER: Kind[float] = Kind(NAN, number_cell)
PVALUE: Kind[float] = Kind(NAN, pvalue_cell)
WITH_ERROR: Kind[Estimate] = Kind(UNKNOWN, error_cell)
INTERVAL: Kind[Estimate] = Kind(UNKNOWN, interval_cell)
RATIO: Kind[Estimate] = Kind(UNKNOWN, ratio_cell)


@dataclass(frozen=True)
class Column(Generic[Value]):
    """One column of the results.

    key: its name in JSON, CSV and `--fail-if`; an Estimate also has `_stderr`, `_low` and `_high`
    heading: its name in tables and on pages; empty if only JSON and CSV have it
    meaning: a sentence for the docs and the pages; empty if the heading says it all
    compute: the value from a row's questions; None if it is the Row's field `key`
    of_verdict: the value from the row's verdict; None if it is no part of it
    verdict_cell: formats it where that takes more of the verdict than the value; None where the kind does
    harness: its name in the harness's results, where `{metric}` is the row's metric; empty if it has none
    in_text: False if only pages show it, since text tables have less room
    is_optional: whether rows without data for it leave it out of their JSON
    """

    key: str
    heading: str
    kind: Kind[Value]
    meaning: str = ""
    compute: Callable[[Measured], Value] | None = None
    harness: str = ""
    in_text: bool = True
    is_optional: bool = False
    of_verdict: Callable[[DataVerdict], Value] | None = None
    verdict_cell: Callable[[DataVerdict], Cell] | None = None

    def of(self, row: Row) -> Value:
        """The row's value in this column."""
        if self.of_verdict is not None:
            return self.of_verdict(row.verdict)
        if self.compute is None:
            return cast(Value, getattr(row, self.key))
        return cast(Value, row.values.get(self.key, self.kind.undefined))

    def cell(self, row: Row) -> Cell:
        """The row's value, as tables and pages show it."""
        return self.kind.cell(self.of(row)) if self.verdict_cell is None else self.verdict_cell(row.verdict)
