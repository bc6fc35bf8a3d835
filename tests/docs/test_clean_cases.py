"""docs/clean_cases.csv holds the cases of clean models, each at several numbers of questions; every page that counts
them has its numbers."""

from __future__ import annotations

import csv
import re
from collections import defaultdict

from scipy.stats import binomtest

from lm_eval_leakage.results.verdict import VerdictWord
from tests.docs.pages import PAGES, ROOT

Row = dict[str, str]
COUNTED = re.compile(r"\b(\d+) (?:clean cases|cases of (?:clean )?models)\b")
FALSE_ALARMS = (ROOT / "docs/validity/clean_models.md").read_text(encoding="utf-8").replace("\n", " ")


def cases() -> dict[tuple[str, str, str], list[Row]]:
    """Return the verdicts by set, model and format, from the fewest to the most questions."""
    rows_of_case: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    with (ROOT / "docs/clean_cases.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rows_of_case[row["set"], row["model"], row["format"]].append(row)
    return rows_of_case


def judged_cases() -> list[list[Row]]:
    return [rows for rows in cases().values() if any(row["verdict"] != VerdictWord.NO_VERDICT for row in rows)]


def test_every_page_that_counts_clean_cases_has_the_files_number() -> None:
    by_page = {page.name: set(COUNTED.findall(page.read_text(encoding="utf-8"))) for page in PAGES}
    counting = {name: counts for name, counts in by_page.items() if counts}
    assert counting.keys() == {"README.md", "clean_models.md", "leakage_perm.md", "validity.md", "verdicts.md"}
    assert set().union(*counting.values()) == {str(len(judged_cases()))}


def test_no_case_is_a_false_alarm_at_any_number_of_questions_and_none_counts_twice() -> None:
    rows = [row for case in cases().values() for row in case]
    assert not [row for row in rows if row["verdict"] in (VerdictWord.EVIDENCE, VerdictWord.STRONG_EVIDENCE)]
    for case in cases().values():
        sizes = [int(row["questions"]) for row in case]
        assert sizes == sorted(set(sizes))


def test_the_sentence_of_the_page_follows_from_the_file() -> None:
    high = binomtest(0, len(judged_cases())).proportion_ci(method="exact").high
    assert f"95 % interval of the rate 0 to {high:.2f}".replace("0.", ".") in FALSE_ALARMS
    assert f"{len(cases()) - len(judged_cases())} further cases have no verdict" in FALSE_ALARMS
    rows = [row for case in judged_cases() for row in case if row["verdict"] != VerdictWord.NO_VERDICT]
    n_small = sum(float(row["p"]) <= 0.05 for row in rows)
    smallest = min(float(row["p"]) for row in rows)
    assert f"{n_small} of {len(rows)} p-values are at most .05, the smallest is {smallest:g}".replace(" 0.", " .") in (
        FALSE_ALARMS
    )
