"""docs/published_orders.md shows rows of docs/published_orders.csv, and its counts are those of the file."""

from __future__ import annotations

import csv
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "published_orders.md").read_text(encoding="utf-8")
STANDARDISED = ("neighbours_z", "length_z", "alphabet_z", "frequency_z", "mention_z")


def stored() -> list[dict[str, str]]:
    with (DOCS / "published_orders.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def share(row: dict[str, str], name: str) -> str:
    return f"{row[name]} ({row[f'{name}_by_chance']}), {int(row[f'{name}_n']):,}" if row[name] else "–"


def test_the_table_of_the_page_has_the_files_figures() -> None:
    by_task = {row["task"]: row for row in stored()}
    (table,) = re.findall(r"^\| task \| questions \|.*\n\|[-|]*\n((?:\|.*\n)*)", PAGE, re.MULTILINE)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert len(lines) == 32
    for task, *cells in lines:
        row = by_task[task.strip("`")]
        plain = [row[name] or "–" for name in (*STANDARDISED, "right_place_p", "smallest_adjusted_p")]
        *shown, smallest = (value.replace("-", "−", 1) if "e-" not in value else value for value in plain)
        expected = [f"{int(row['questions']):,}", share(row, "numbers_sorted"), *shown]
        expected += [share(row, "none_of_the_above_last"), smallest, row["status"]]
        assert cells == expected
