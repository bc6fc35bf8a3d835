"""Tables as text, Markdown or LaTeX, and records as CSV, with nothing in them that a viewer would execute.

A column of any table says what it is called, what it means, the value of a record and how that is shown: as cells with
their sort keys.
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from lm_eval_leakage.results.formatting import (
    DASH,
    NO_BREAK,
    count,
    decimals_of,
    format_pvalue,
    interval,
    number,
    whole_percent,
)
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from lm_eval_leakage.texts import visible

STYLES = ("table", "markdown", "csv", "latex", "json")  # of rows; `--help` needs them, and this is quick to import
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # Markdown would pass it on as HTML
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # spreadsheets read the wide forms as formulas, too
SPECIAL = {**{letter: f"\\{letter}" for letter in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$", "≤": r"$\leq$", "∞": r"$\infty$"}
SPECIAL |= {DASH: "--"}
Cells = list[list[str]]
Record = TypeVar("Record")
INTERVALS_NAMED = f"Values in brackets are 95{NO_BREAK}% intervals"


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
        between = ": " if self.badge and self.small else " "
        text = f"{self.text}{between}{self.small}".rstrip()
        return text if self.order is None else text.replace("−", "-")


EMPTY = Cell()


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
PVALUE = Kind(math.nan, lambda value: Cell(format_pvalue(value), order=value))
BOUND_OF_PVALUE = Kind(math.nan, lambda value: Cell(format_pvalue(value, is_bound=True), order=value))


def _interval_cell(estimate: Estimate) -> Cell:
    decimals = decimals_of(estimate)
    return Cell(number(estimate.value, decimals), interval(estimate, decimals), estimate.value)


# all estimates are shown with their 95 % intervals; records differ in which parts they have
INTERVAL = Kind(UNKNOWN, _interval_cell, ("", "_low", "_high"))
INTERVAL_AND_ERROR = replace(INTERVAL, endings=("", "_stderr", "_low", "_high"))
WITH_ERROR = replace(INTERVAL, endings=("", "_stderr"))
RATIO = replace(INTERVAL, endings=("", "_low"))


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
