"""Rows as a table that people read, or that programs do."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

from lm_eval_leakage.results.annotation import Estimate, Row
from lm_eval_leakage.results.flags import P_ADJUSTED, P_UNGUARDED, P
from lm_eval_leakage.results.flat import flat_row
from lm_eval_leakage.results.visible import as_json, visible

Cells = list[list[str]]
NOTHING = "–"
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # what Markdown passes on as HTML
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # spreadsheets take the wide forms for them too


def _interval(estimate: Estimate) -> str:
    if math.isnan(estimate.low):
        return _number(estimate.value)
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def _with_error(estimate: Estimate) -> str:
    if not estimate:
        return NOTHING
    return f"{estimate.value:.3f}" + ("" if math.isnan(estimate.stderr) else f" ± {estimate.stderr:.3f}")


def pvalue(value: float) -> str:
    if math.isnan(value):
        return NOTHING
    return "< 1e-300" if value < 1e-300 else f"{value:.2g}"


def _number(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:.3f}"


COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "model": lambda row: row.model,
    "task": lambda row: row.name,
    "metric": lambda row: row.metric.removesuffix(",none") or NOTHING,
    "n": lambda row: str(row.n) if row.n == row.n_tested else f"{row.n} ({row.n_tested} tested)",
    "accuracy": lambda row: _with_error(row.accuracy),
    "accuracy, unflagged": lambda row: _interval(row.accuracy_unflagged),
    "accuracy, flagged": lambda row: _interval(row.accuracy_flagged),
    "flagged": lambda row: _with_error(row.flagged),
    "by chance": lambda row: _number(row.null_rate),
    P: lambda row: pvalue(row.pvalue),
    P_ADJUSTED: lambda row: pvalue(row.pvalue_adjusted),
    P_UNGUARDED: lambda row: pvalue(row.pvalue_unguarded),
    "outlier": lambda row: _with_error(row.outlier),
    "calibrated": lambda row: _with_error(row.calibrated),
    "probability": lambda row: _number(row.probability),
    "prevalence": lambda row: _interval(row.prevalence),
    "confusion": lambda row: _with_error(row.confusion),
    "gap in strata": lambda row: _interval(row.gap_adjusted),
    "p of gap": lambda row: pvalue(row.gap_pvalue),
    "strong": lambda row: _with_error(row.strong),
}


def as_text(rows: Sequence[Row], style: str) -> str:
    """In one of STYLES. Columns of which no row knows anything are left out of those for people."""
    return STYLES[style](rows)


def cells(rows: Sequence[Row]) -> Cells:
    """Heads and rows."""
    found = {head: [cell(row) for row in rows] for head, cell in COLUMNS.items()}
    shown = {head: column for head, column in found.items() if set(column) - {NOTHING}}
    if len(set(found["model"])) == 1:
        del shown["model"]
    return [list(shown), *([visible(column[i]) for column in shown.values()] for i in range(len(rows)))]


def _table(rows: Sequence[Row]) -> str:
    lines = cells(rows)
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in ruled
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def markdown_of(lines: Cells) -> str:
    """A head and rows, such as `cells` gives."""
    head, *body = [[TAG.sub("&lt;", visible(cell)).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *body])


SPECIAL = {**{letter: f"\\{letter}" for letter in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$", NOTHING: "--"}


def _latex(rows: Sequence[Row]) -> str:
    """For the booktabs package."""
    lines = [["".join(SPECIAL.get(letter, letter) for letter in cell) for cell in line] for line in cells(rows)]
    head, *body = [f"{' & '.join(line)} \\\\" for line in lines]
    columns = "l" * len(lines[0])
    return "\n".join(
        [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"]
    )


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


def _json(rows: Sequence[Row]) -> str:
    return as_json([flat_row(row) for row in rows], indent=1)


STYLES: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "table": _table,
    "markdown": lambda rows: markdown_of(cells(rows)),
    "csv": lambda rows: csv_of([flat_row(row) for row in rows]),
    "latex": _latex,
    "json": _json,
}
