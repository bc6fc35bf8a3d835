"""Any cells as Markdown, and any records as CSV, with nothing in them that a reader would execute."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence

from lm_eval_leakage.texts import visible

Cells = list[list[str]]
STYLES = ("table", "markdown", "csv", "latex", "json")  # of rows; here, where nothing slow is imported for a `--help`
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # what Markdown passes on as HTML
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # spreadsheets take the wide forms for them too


def markdown_of(lines: Cells) -> str:
    """A head and rows, such as `cells` gives."""
    head, *body = [[TAG.sub("&lt;", visible(cell)).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


def csv_of(records: Sequence[Mapping[str, object]]) -> str:
    """With every column that any record has. A text that a spreadsheet would take for a formula begins with an
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
