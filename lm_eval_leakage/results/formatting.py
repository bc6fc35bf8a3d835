"""Formats numbers: a dash for what is undefined, never a zero; no more digits than the error allows.

Values formatted as cells of tables and pages, with their sort keys.

Renders cells as Markdown and records as CSV, with nothing in them that a viewer would execute.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lm_eval_leakage.stats.pooling import Estimate
from lm_eval_leakage.texts import visible

DASH = "–"
SMALLEST_PVALUE = 1e-300  # below it doubles lose precision
HUGE = 1e6  # from here on in scientific notation, to keep cells short
COARSE_ERROR = 0.0095  # an error that is visible in two decimals
LOW_SHARE = 0.0095  # a share below it is shown with a decimal
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line


class HasInterval(Protocol):
    """A value with the ends of its interval; NaN where undefined."""

    @property
    def value(self) -> float: ...

    @property
    def low(self) -> float: ...

    @property
    def high(self) -> float: ...


def number(value: float | None, decimals: int = 3) -> str:
    """`value` with a true minus sign; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.4g}" if abs(value) >= HUGE else f"{value:.{decimals}f}"
    is_zero = not text.strip("-0.")
    return text.lstrip("-") if is_zero else text.replace("-", "−", 1)


def count(n: int) -> str:
    return f"{n:,}"


def counted(n: int, noun: str = "question") -> str:
    """`1 question`, `2 questions`."""
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def about(n: int) -> str:
    """`9.6 million`, `36,000`: two digits, for an estimate that is worth no more."""
    if n < 99_500:
        return count(int(float(f"{n:.2g}")))
    if n < 995_000:
        return count(round(n, -4))
    return f"{max(1.0, n / 1e6):.2g} million" if n < 99_500_000 else f"{n / 1e6:,.0f} million"


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def plus_minus(estimate: Estimate, decimals: int | None = None) -> str:
    """`0.41 ± 0.02`; without the error where it is undefined. As many decimals as the error needs, or those given."""
    if decimals is None:
        decimals = 3 if estimate.stderr < COARSE_ERROR else 2
    value = number(estimate.value, decimals)
    return value if not estimate or math.isnan(estimate.stderr) else f"{value} ± {number(estimate.stderr, decimals)}"


def interval(estimate: HasInterval, decimals: int = 2) -> str:
    """`[0.28, 0.38]`; empty where undefined."""
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return ""
    return f"[{number(estimate.low, decimals)}, {number(estimate.high, decimals)}]"


def value_in_interval(estimate: HasInterval) -> str:
    """`0.50 [0.40, 0.62]`; a dash where the value is undefined."""
    shown = number(estimate.value, 2)
    return f"{shown} {interval(estimate)}".rstrip()


def percent(share: float, decimals: int = 1) -> str:
    """`4.2%`; a dash for NaN."""
    return DASH if math.isnan(share) else f"{share:.{decimals}%}"


def whole_percent(share: float) -> str:
    """`54 %`, with a decimal below 1 %; a dash for NaN."""
    if math.isnan(share):
        return DASH
    decimals = 1 if 0 < share < LOW_SHARE else 0
    return f"{100 * share:.{decimals}f}{NO_BREAK}%"


def pvalue(value: float, is_bound: bool = False) -> str:
    """`0.032`, `≤ 1e-80` for an upper bound; an underflow is a bound, not a zero."""
    if math.isnan(value):
        return DASH
    if value < SMALLEST_PVALUE:
        return "< 1e-300"
    return f"{'≤ ' if is_bound else ''}{value:.2g}"


def pvalue_equation(value: float, is_bound: bool = False) -> str:
    """`p = 0.032`, `p ≤ 1e-80`, `p < 1e-300`."""
    text = pvalue(value, is_bound)
    return f"p {text}" if text.startswith(("<", "≤")) else f"p = {text}"


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


Cells = list[list[str]]
STYLES = ("table", "markdown", "csv", "latex", "json")  # of rows; `--help` needs them, and this is quick to import
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # Markdown would pass it on as HTML
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # spreadsheets read the wide forms as formulas, too


def markdown_of(lines: Cells) -> str:
    """A heading and rows, such as `cells` returns."""
    head, *body = [[TAG.sub("&lt;", visible(cell)).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def csv_of(records: Sequence[Mapping[str, object]]) -> str:
    """Has every column that any record has; a text that a spreadsheet would read as a formula begins with an
    apostrophe."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _no_formula(value) for name, value in record.items()} for record in records)
    return text.getvalue().rstrip("\n")


def _no_formula(value: object) -> object:
    if not isinstance(value, str):
        return value
    return f"'{visible(value)}" if value.startswith(FORMULA) else visible(value)
