"""Every audit has a page that agrees with the code and with measured figures, and so does that of published orders."""

from __future__ import annotations

import csv
import re

import pytest

from lm_eval_leakage.harness.tasks.templates import suffixes
from tests import method_pages as made
from tests.method_pages import section

SUMMARY = (made.DOCS / "methods.md").read_text(encoding="utf-8")
ALL_PAGES = (*suffixes(), *made.WITHOUT_TEMPLATE)


def test_every_audit_has_a_page_and_every_page_an_audit() -> None:
    assert {file.stem for file in made.PAGES.glob("*.md")} == set(ALL_PAGES)


@pytest.mark.parametrize("suffix", ALL_PAGES)
def test_what_the_code_determines_is_up_to_date(suffix: str) -> None:
    text = made.page(suffix).read_text(encoding="utf-8")
    assert made.rewritten(text, suffix) == text, "run `python -m tests.method_pages`"
    assert all(expected in section(text, heading) for heading, expected in made.generated(suffix).items())


def test_the_summary_links_every_page_and_lists_the_keys_of_every_audit() -> None:
    assert set(ALL_PAGES) == set(re.findall(r"\(methods/(\w+)\.md\)", SUMMARY))
    assert section(SUMMARY, "Keys that every audit takes").endswith(made.own_keys())


def test_the_table_of_aurocs_has_the_measured_ones() -> None:
    """By training, then benchmark, as in the header of its table; a dash where there are too few questions for one."""
    body = section((made.PAGES / "details" / "auroc.md").read_text(encoding="utf-8"), "The table")
    head, _, *lines = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    places = [tuple(heading.split(", ", 1)) for heading in head[2:]]
    after = {
        (row["method"], row["benchmark"], row["training"]): row
        for row in made.results()
        if row["exposures"] == made.MEASURED_AFTER
    }
    listed = {
        (method.strip("`"), *place): cell
        for method, _, *cells in lines
        for place, cell in zip(places, cells, strict=False)
        if cell.strip()
    }
    assert listed == {at: row["auroc"] or "–" for at, row in after.items()}
    tokens = {line[0].strip("`"): int(line[1].replace(",", "")) for line in lines}
    assert tokens == {
        row["method"]: int(row["tokens_per_question"])
        for row in after.values()
        if row["benchmark"] == "MMLU" and row["training"] == "one by one"
    }


# ---------------------------------------------------------------------- published orders

ORDERS = (made.DOCS / "published_orders" / "results.md").read_text(encoding="utf-8")
STANDARDISED = ("neighbours_z", "length_z", "alphabet_z", "frequency_z", "mention_z")


def stored() -> list[dict[str, str]]:
    with (made.DOCS / "published_orders.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def share(row: dict[str, str], name: str) -> str:
    return f"{row[name]} ({row[f'{name}_by_chance']}), {int(row[f'{name}_n']):,}" if row[name] else "–"


def test_the_table_of_the_page_has_the_files_figures() -> None:
    by_task = {row["task"]: row for row in stored()}
    (table,) = re.findall(r"^\| task \| questions \|.*\n\|[-|]*\n((?:\|.*\n)*)", ORDERS, re.MULTILINE)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert len(lines) == 32
    for task, *cells in lines:
        row = by_task[task.strip("`")]
        plain = [row[name] or "–" for name in (*STANDARDISED, "right_place_p", "smallest_adjusted_p")]
        *shown, smallest = (value.replace("-", "−", 1) if "e-" not in value else value for value in plain)
        expected = [f"{int(row['questions']):,}", share(row, "numbers_sorted"), *shown]
        expected += [share(row, "none_of_the_above_last"), smallest, row["status"]]
        assert cells == expected
