"""docs/clean_cases.csv holds the cases of clean models, each at several numbers of questions; docs/validity.md shows
them."""

from __future__ import annotations

import csv
from collections import defaultdict

from lm_eval_leakage.results.data_verdict import EVIDENCE, STRONG_EVIDENCE
from tests.docs.pages import ROOT

Row = dict[str, str]
VALIDITY = (ROOT / "docs/validity.md").read_text(encoding="utf-8")


def cases() -> dict[tuple[str, str, str], list[Row]]:
    """By set, model and format: the verdicts, from the fewest to the most questions."""
    found: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    with (ROOT / "docs/clean_cases.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["set"], row["model"], row["format"]].append(row)
    return found


def test_no_case_is_a_false_alarm_at_any_number_of_questions_and_none_counts_twice() -> None:
    rows = [row for own in cases().values() for row in own]
    assert not [row for row in rows if row["verdict"] in (EVIDENCE, STRONG_EVIDENCE)]
    for own in cases().values():
        sizes = [int(row["questions"]) for row in own]
        assert sizes == sorted(set(sizes))


def test_the_table_of_the_page_is_the_file() -> None:
    section = VALIDITY.partition("## False alarms")[2].partition("\n## ")[0]
    shown = []
    for (name, model, form), (*_, row) in sorted(cases().items()):
        size = "–" if row["mean"] == "nan" else f"{row['mean'].replace('-', '−')} ± {row['error']}"
        numbers = f"{row['questions']} | {row['judged']} | {size} | {row['p'].replace('nan', '–')} | {row['verdict']}"
        shown.append(f"| `{name}` | {model} | {form} | {row['orders']} | {numbers} |")
    assert [line for line in section.splitlines() if line.startswith("| `")] == shown
