"""Renders cells as Markdown and records as CSV, with nothing in them that a viewer would execute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from lm_eval_leakage.texts import visible

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
