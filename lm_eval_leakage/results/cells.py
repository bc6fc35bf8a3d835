"""Values formatted as cells of tables and pages, with their sort keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lm_eval_leakage.inference.pooling import Estimate
from lm_eval_leakage.results.formatting import DASH, count, interval, number, plus_minus, pvalue


@dataclass(frozen=True)
class Bar:
    """A share with its interval and the share by chance, drawn on an axis from 0 to 1."""

    low: float
    value: float
    high: float
    chance: float | None


@dataclass(frozen=True)
class Cell:
    """text: as shown; small: a second line; order: sort key if it is not the text; badge: the style of a text that is
    shown as a badge"""

    text: str = DASH
    small: str = ""
    order: float | None = None
    bar: Bar | None = None
    badge: str = ""

    @property
    def in_line(self) -> str:
        """Both texts on one line, for text tables; with a minus sign that any terminal encoding can print."""
        text = f"{self.text} {self.small}".rstrip()
        return text if self.order is None else text.replace("−", "-")


EMPTY = Cell()


def text_cell(text: str) -> Cell:
    return Cell(text) if text else EMPTY


def count_cell(n: int) -> Cell:
    return Cell(count(n), order=n)


def number_cell(value: float) -> Cell:
    return EMPTY if math.isnan(value) else Cell(number(value), order=value)


def pvalue_cell(value: float, is_bound: bool = False) -> Cell:
    return EMPTY if math.isnan(value) else Cell(pvalue(value, is_bound), order=value)


def error_cell(estimate: Estimate) -> Cell:
    """The value with its standard error."""
    return Cell(plus_minus(estimate, 3), order=estimate.value) if estimate else EMPTY


def interval_cell(estimate: Estimate) -> Cell:
    """The value above its 95 % interval."""
    return Cell(number(estimate.value), interval(estimate), estimate.value) if estimate else EMPTY


def ratio_cell(estimate: Estimate) -> Cell:
    """A ratio, which may be far above 1, above its interval."""
    return Cell(number(estimate.value, 2), interval(estimate), estimate.value) if estimate else EMPTY


def bar_cell(estimate: Estimate, chance: float = math.nan) -> Cell:
    """The value with its standard error above a drawing of its 95 % interval."""
    if not estimate:
        return EMPTY
    low, value, high = (
        min(1.0, max(0.0, estimate.value if math.isnan(end) else end))
        for end in (estimate.low, estimate.value, estimate.high)
    )
    bar = Bar(low, value, high, None if math.isnan(chance) else min(1.0, max(0.0, chance)))
    return Cell(plus_minus(estimate, 3), interval(estimate), estimate.value, bar)
