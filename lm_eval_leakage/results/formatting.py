"""Formats numbers: a dash for what is undefined, never a zero; no more digits than the error allows.

Values formatted as cells of tables and pages, with their sort keys. A column of any table: what it is called, what it
means, the value of a record and how that is shown.

Tables as text, Markdown or LaTeX, and records as CSV, with nothing in them that a viewer would execute.
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from lm_eval_leakage.texts import visible

DASH = "–"
SMALLEST_PVALUE = 1e-300  # below it doubles lose precision
HUGE = 1e6  # from here on in scientific notation, to keep cells short
COARSE_ERROR = 0.0095  # an error that is visible in two decimals
LOW_SHARE = 0.0095  # a share below it is shown with a decimal
NO_BREAK = "\u00a0"  # keeps a number and its unit on one line
STYLES = ("table", "markdown", "csv", "latex", "json")  # of rows; `--help` needs them, and this is quick to import
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # Markdown would pass it on as HTML
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # spreadsheets read the wide forms as formulas, too
SPECIAL = {**{letter: f"\\{letter}" for letter in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$", "≤": r"$\leq$", "∞": r"$\infty$"}
SPECIAL |= {DASH: "--"}


def defined(value: Any) -> Any:
    """Return the value, or None for NaN, which JSON does not have."""
    return None if isinstance(value, float) and math.isnan(value) else value


def number(value: float | None, decimals: int = 3) -> str:
    """Return a number with a true minus sign; a dash for None and NaN."""
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
    """Return a number and its noun: `1 question`, `2 questions`."""
    return f"{count(n)} {noun}{'' if n == 1 else 's'}"


def rounded_up(n: float) -> int:
    """Return a number above 0, to two digits."""
    size = int(10.0 ** max(0, math.floor(math.log10(n)) - 1))
    return math.ceil(n / size) * size


def about(n: int) -> str:
    """Return a rough number, `9.6 million` or `36,000`: two digits, for an estimate that is worth no more."""
    rounded = int(float(f"{n:.2g}"))
    return count(rounded) if rounded < 1_000_000 else f"{rounded / 1e6:,g} million"


def duration(seconds: float) -> str:
    """Return a duration: `45 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def plus_minus(estimate: Estimate, decimals: int | None = None) -> str:
    """Return an estimate as `0.41 ± 0.02`, without the error where it is undefined. It has as many decimals as the
    error needs, or those given."""
    if decimals is None:
        decimals = 3 if estimate.stderr < COARSE_ERROR else 2
    value = number(estimate.value, decimals)
    return value if not estimate or math.isnan(estimate.stderr) else f"{value} ± {number(estimate.stderr, decimals)}"


def interval(estimate: Any, decimals: int = 2) -> str:
    """Return an interval as `[0.28, 0.38]`, of anything with ends `low` and `high`; empty where undefined."""
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return ""
    return f"[{number(estimate.low, decimals)}, {number(estimate.high, decimals)}]"


def value_in_interval(estimate: Any) -> str:
    """Return an estimate as `0.50 [0.40, 0.62]`; a dash where the value is undefined."""
    shown = number(estimate.value, 2)
    return f"{shown} {interval(estimate)}".rstrip()


def percent(share: float, decimals: int = 1) -> str:
    """Return a share as `4.2%`; a dash for NaN."""
    return DASH if math.isnan(share) else f"{share:.{decimals}%}"


def whole_percent(share: float) -> str:
    """Return a share as `54 %`, with a decimal below 1 %; a dash for NaN."""
    if math.isnan(share):
        return DASH
    decimals = 1 if 0 < share < LOW_SHARE else 0
    return f"{100 * share:.{decimals}f}{NO_BREAK}%"


def pvalue(value: float, is_bound: bool = False) -> str:
    """Return a p-value as `0.032`, or `≤ 1e-80` for an upper bound; an underflow is a bound, not a zero."""
    if math.isnan(value):
        return DASH
    if value < SMALLEST_PVALUE:
        return "< 1e-300"
    return f"{'≤ ' if is_bound else ''}{value:.2g}"


def pvalue_equation(value: float, is_bound: bool = False) -> str:
    """Return a p-value as an equation: `p = 0.032`, `p ≤ 1e-80`, `p < 1e-300`."""
    text = pvalue(value, is_bound)
    return f"p {text}" if text.startswith(("<", "≤")) else f"p = {text}"


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    text: as shown; small: a second line; order: sort key if it is not the text; badge: the style of a text that is
        shown as a badge
    """

    text: str = DASH
    small: str = ""
    order: float | None = None
    badge: str = ""

    @property
    def in_line(self) -> str:
        """Return both texts on one line, for text tables; with a minus sign that any terminal encoding can print."""
        text = f"{self.text} {self.small}".rstrip()
        return text if self.order is None else text.replace("−", "-")


EMPTY = Cell()


# ---------------------------------------------------------------------- columns and tables

Record = TypeVar("Record")
Cells = list[list[str]]


@dataclass(frozen=True)
class Kind:
    """The type of a value, and how it is shown.

    undefined: the value of a record without data for the column; form: formats any other value
    endings: of an Estimate, what the names of the parts that records of verdicts have of it end with
    """

    undefined: Any
    form: Callable[[Any], Cell]
    endings: Sequence[str] = ("",)

    @property
    def is_text(self) -> bool:
        return isinstance(self.undefined, str)

    def cell(self, value: Any) -> Cell:
        is_undefined = value == "" or value != value or (isinstance(value, Estimate) and not value)
        return EMPTY if is_undefined else self.form(value)


TEXT = Kind("", Cell)
COUNT = Kind(0, lambda n: Cell(count(n), order=n))
NUMBER = Kind(math.nan, lambda value: Cell(number(value), order=value))
PERCENT = Kind(math.nan, lambda share: Cell(whole_percent(share), order=share))
PVALUE = Kind(math.nan, lambda value: Cell(pvalue(value), order=value))
BOUND_OF_PVALUE = Kind(math.nan, lambda value: Cell(pvalue(value, is_bound=True), order=value))
WITH_ERROR = Kind(UNKNOWN, lambda estimate: Cell(plus_minus(estimate, 3), order=estimate.value), ("", "_stderr"))
INTERVAL = Kind(
    UNKNOWN, lambda estimate: Cell(number(estimate.value), interval(estimate), estimate.value), ("", "_low", "_high")
)
# may be far above 1
RATIO = Kind(
    UNKNOWN, lambda estimate: Cell(number(estimate.value, 2), interval(estimate), estimate.value), ("", "_low")
)


def flat_value(name: str, kind: Kind, value: Any) -> dict[str, Any]:
    """Return the parts of a value that records of verdicts have, by name; None where undefined."""
    if not isinstance(value, Estimate):
        return {name: _finite(value)}
    parts = {"": value.value, "_stderr": value.stderr, "_low": value.low, "_high": value.high}
    return {f"{name}{ending}": _finite(parts[ending]) for ending in kind.endings}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Column(Generic[Record]):
    """One column of a table, a page or a file.

    heading: its name in tables and on pages; empty if only JSON and CSV have it
    of: the record's value; a Cell if it is formatted already
    meaning: a sentence for the docs and the pages; empty if the heading says it all
    key: its name in JSON, CSV and `--fail-on`; an Estimate also has `_stderr`, `_low` and `_high`
    record: its name in `verdicts.json` and in Python; empty if these do not have it
    shown: formats it where that takes more of the record than the value
    compute: the value from the questions that a row measures, from which `of` reads it
    harness: its name in the harness's results, where `{metric}` is the row's metric; empty if it has none
    in_text: False if only pages show it, since text tables have less room
    is_optional: whether rows without data for it leave it out of their JSON
    """

    heading: str
    kind: Kind
    of: Callable[[Record], Any]
    meaning: str = ""
    key: str = ""
    shown: Callable[[Record], Cell] | None = None
    compute: Callable[[Any], Any] | None = None
    harness: str = ""
    in_text: bool = True
    is_optional: bool = False
    record: str = ""

    def cell(self, record: Record) -> Cell:
        """Return the record's value, as tables and pages show it."""
        if self.shown is not None:
            return self.shown(record)
        value = self.of(record)
        return value if isinstance(value, Cell) else self.kind.cell(value)


@dataclass(frozen=True)
class Table:
    """A table in columns.

    lines: each with a value to filter lines by; the first cell names the line
    """

    columns: Sequence[Column[Any]]
    lines: Sequence[tuple[str, Sequence[Cell]]]

    @property
    def levels(self) -> list[str]:
        return list(dict.fromkeys(level for level, _ in self.lines))

    @property
    def cells(self) -> Cells:
        """Return the headings, and the lines as texts."""
        lines = ([visible(cell.in_line) for cell in line] for _, line in self.lines)
        return [[column.heading for column in self.columns], *lines]


def tabulate(
    records: Sequence[Record], columns: Sequence[Column[Record]], level: Callable[[Record], str] = lambda _: ""
) -> Table:
    """Return the table. The first column names the lines and is always shown; of the others those in which some record
    has a value."""
    filled = [(column, [column.cell(record) for record in records]) for column in columns]
    shown = [pair for pair in filled if pair is filled[0] or set(pair[1]) - {EMPTY}]
    lines = zip(*(cells for _, cells in shown), strict=True)
    return Table(
        [column for column, _ in shown], [(level(record), line) for record, line in zip(records, lines, strict=True)]
    )


def aligned(lines: Cells) -> str:
    """Return a heading and rows in columns of equal width."""
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in ruled
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def markdown_of(lines: Cells) -> str:
    """Return a heading and rows, such as `cells` returns."""
    head, *body = [[TAG.sub("&lt;", visible(cell)).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def latex_of(lines: Cells) -> str:
    """Return a LaTeX table for the booktabs package."""
    texts = [["".join(SPECIAL.get(letter, letter) for letter in cell) for cell in line] for line in lines]
    head, *body = [f"{' & '.join(line)} \\\\" for line in texts]
    begin = f"\\begin{{tabular}}{{{'l' * len(lines[0])}}}"
    return "\n".join([begin, "\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"])


def csv_of(records: Sequence[Mapping[str, object]]) -> str:
    """Return CSV with every column that any record has; a text that a spreadsheet would read as a formula begins with
    an apostrophe."""
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
