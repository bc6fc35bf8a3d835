"""The tables of columns and of a verdict's numbers in the docs, made from the registries.

    python -m tests.column_tables

rewrites them; `tests/results/test_column_registry.py` fails where a page has another table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.results import columns as registry
from lm_eval_leakage.results.tabulating import COUNT, PVALUE
from lm_eval_leakage.results.verdict_numbers import NUMBERS, VerdictNumber
from lm_eval_leakage.results.verdict_record import OF_RECORD
from tests.method_pages import table

DOCS = Path(__file__).parents[1] / "docs"
NUMBER_HEAD = ("`verdicts.json`", "`annotate`", "`leakage_details`", "type", "unit", "meaning", "undefined")


def columns_of_annotate() -> str:
    """Return the table of docs/annotate/columns.md."""
    shown = registry.displayed()
    rows = []
    for column in shown:
        place = "" if column.in_text else " (pages)"
        rows.append([f"`{column.heading}`{place}", f"`{column.key}`", column.meaning])
    rows += [["", f"`{column.key}`", column.meaning] for column in registry.recorded() if column not in shown]
    return table(("heading", "key", "meaning"), rows).replace("|  |", "| |")


def numbers_of_verdicts() -> str:
    """Return the table of docs/verdicts.md: each number of a verdict with its name in every output."""
    rows = []
    for number in NUMBERS:
        names = [_code(name) for name in (number.record, number.column, number.detail)]
        rows.append([*names, _type_of(number), number.unit, number.meaning, number.undefined])
    for column in OF_RECORD:
        rows.append([_code(column.record), "", "", "", "", column.meaning, ""])
    return table(NUMBER_HEAD, rows)


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def _type_of(number: VerdictNumber) -> str:
    if number.kind.is_text:
        return "text"
    if number.kind is COUNT:
        return "count"
    if number.kind is PVALUE or len(number.kind.endings) == 1:
        return "number"
    return "number" + "".join(f", `{ending}`" for ending in number.kind.endings[1:])


TABLES: Sequence[tuple[str, str]] = (
    ("annotate/columns.md", columns_of_annotate()),
    ("verdicts.md", numbers_of_verdicts()),
)


def rewritten(text: str, wanted: str) -> str:
    """Return the page with its table of this heading replaced."""
    head = re.escape(wanted.split("\n")[0])
    return re.sub(rf"^{head}\n(?:\|.*\n?)+", lambda _: f"{wanted}\n", text, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    for name, wanted in TABLES:
        page = DOCS / name
        atomic_write(page, rewritten(page.read_text(encoding="utf-8"), wanted))
