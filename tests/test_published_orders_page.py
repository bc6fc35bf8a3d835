"""docs/published_orders.md shows rows of docs/published_orders.csv, and its counts are those of the file."""

from __future__ import annotations

import csv
import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "published_orders.md").read_text(encoding="utf-8")
STANDARDISED = ("neighbours_z", "length_z", "alphabet_z", "frequency_z", "mention_z")
NO_SUBJECTS = {"mmlu_stem", "mmlu_humanities", "mmlu_social_sciences", "mmlu_other"}
NO_SUBJECTS |= {f"mmlu_dev_{language}" for language in ("de", "es", "fr", "it")}


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


def test_the_page_counts_the_subjects_of_mmlu_that_are_written() -> None:
    subjects = [row for row in stored() if row["task"].startswith("mmlu_") and row["task"] not in NO_SUBJECTS]
    written = sum(row["status"] == "written" for row in subjects)
    assert f"{written} of {len(subjects)} subjects are `written` by themselves" in PAGE
    assert f"{len(subjects) - written} subjects of MMLU are `too few to say`" in PAGE


def test_the_page_counts_the_subjects_of_the_chinese_benchmarks_that_are_written() -> None:
    for name, prefix in (("CMMLU", "cmmlu_"), ("C-Eval", "ceval-valid_")):
        statuses = [row["status"] for row in stored() if row["task"].startswith(prefix)]
        assert f"- {name}: {statuses.count('written')} of {len(statuses)} of its subjects" in PAGE
    assert f"has {len(stored())} rows" in PAGE
