"""Renders rows as text table, Markdown, LaTeX, CSV or JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence

from lm_eval_leakage.results.cells import EMPTY
from lm_eval_leakage.results.column_registry import MODEL, displayed
from lm_eval_leakage.results.flat import flat_row
from lm_eval_leakage.results.formatting import DASH
from lm_eval_leakage.results.markup import TAG, Cells, csv_of, markdown_of
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.suspicion import benchmarks
from lm_eval_leakage.texts import as_json, visible


def as_text(rows: Sequence[Row], style: str) -> str:
    """In one of the STYLES of `markup`. Text tables, Markdown and LaTeX leave out columns without any value."""
    return RENDERERS[style](rows)


def verdicts_in_words(rows: Sequence[Row], style: str) -> str:
    """A line with the verdict's sentence for each benchmark (a group, or a task outside groups), the most suspicious
    first; empty in styles that programs read."""
    if style not in ("table", "markdown"):
        return ""
    is_one, found = len({row.model for row in rows}) == 1, benchmarks(rows)
    lines = {(row.model, row.task): row.verdict.sentence for row in found if row.verdict.word}
    told = [visible(f"{task if is_one else f'{model}, {task}'}: {text}") for (model, task), text in lines.items()]
    return "\n".join(told if style == "table" else [f"- {TAG.sub('&lt;', line)}" for line in told])


def cells(rows: Sequence[Row]) -> Cells:
    """The heading and the rows."""
    found = {column: [column.cell(row) for row in rows] for column in displayed() if column.in_text}
    shown = {column: own for column, own in found.items() if set(own) - {EMPTY}}
    if len({row.model for row in rows}) == 1:
        shown.pop(MODEL, None)
    lines = [[visible(own[i].in_line) for own in shown.values()] for i in range(len(rows))]
    return [[column.heading for column in shown], *lines]


def _table(rows: Sequence[Row]) -> str:
    return aligned(cells(rows))


def aligned(lines: Cells) -> str:
    """A heading and rows in columns of equal width."""
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    return "\n".join(
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in ruled
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


SPECIAL = {**{letter: f"\\{letter}" for letter in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "≤": r"$\leq$",
    "∞": r"$\infty$",
    DASH: "--",
}


def _latex(rows: Sequence[Row]) -> str:
    """For the booktabs package."""
    lines = [["".join(SPECIAL.get(letter, letter) for letter in cell) for cell in line] for line in cells(rows)]
    head, *body = [f"{' & '.join(line)} \\\\" for line in lines]
    columns = "l" * len(lines[0])
    return "\n".join(
        [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"]
    )


def _json(rows: Sequence[Row]) -> str:
    return as_json([flat_row(row) for row in rows], indent=1)


RENDERERS: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "table": _table,
    "markdown": lambda rows: markdown_of(cells(rows)),
    "csv": lambda rows: csv_of([flat_row(row) for row in rows]),
    "latex": _latex,
    "json": _json,
}
