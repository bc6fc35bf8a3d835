"""The printed table of a run with audits: fewer rows, the number of questions, and what the rows mean."""

from __future__ import annotations

from typing import Any

from lm_eval import utils

import lm_eval_leakage.harness.plugin
import lm_eval_leakage.harness.tasks.task  # noqa: F401 (a process that has audits)
from lm_eval_leakage.harness.tasks.finished_results import DETAILS
from lm_eval_leakage.harness.tasks.printed_results import MEANINGS

AUDIT: dict[str, Any] = {
    "alias": "quiz_leakage_perm",
    "sample_len": 2,
    "evidence,max_order": "no verdict",
    "flagged_rate,max_order": 0.0,
    "flagged_rate_stderr,max_order": 0.0,
    "null_rate,max_order": 1 / 24,
    "flagged_rate,outlier": 0.5,
    "flagged_rate_stderr,outlier": 0.3536,
    "skipped,max_order": 0,
    "skipped,outlier": 1,
}
CONFUSION: dict[str, Any] = {
    "alias": "quiz_choice_confusion",
    "sample_len": 30,
    "accuracy_original,paired_accuracy": 0.5,
    "delta,paired_accuracy": 0.2,
    "delta_stderr,paired_accuracy": 0.1,
    "delta_shuffled,paired_accuracy": 0.0,
    "delta_shuffled_stderr,paired_accuracy": 0.0,
    "delta_replaced,paired_accuracy": 0.2,
}
TASK: dict[str, Any] = {
    "alias": "quiz",
    "sample_len": 2,
    "acc,none": 0.625,
    "acc_stderr,none": 0.125,
    "acc_unflagged,leakage": 0.75,
    "acc_gap,leakage": 0.0,
    "acc_gap_adjusted_stderr,leakage": 0.0,
}


def printed(audits: dict[str, Any], **others: Any) -> list[list[str]]:
    """Return the cells of each printed line; a line outside of the table is one cell."""
    rows = {row["alias"]: row for row in (*audits.values(), *others.values())}
    results = {"results": rows, "versions": {}, "n-shot": {}, DETAILS: {row["alias"]: {} for row in audits.values()}}
    before = repr(results)
    lines = utils.make_table(results).splitlines()
    assert repr(results) == before  # what is saved keeps every row
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def metrics(lines: list[list[str]]) -> list[tuple[str, ...]]:
    return [(line[2], line[4], line[6], line[8]) for line in lines[2:] if len(line) == 9]


def test_an_audit_has_its_number_of_questions_and_no_error_of_zero() -> None:
    assert metrics(printed({"perm": AUDIT})) == [
        ("max_order", "evidence", "no verdict", ""),
        ("max_order", "flagged_rate", "0.0000", "N/A"),
        ("outlier", "flagged_rate", "0.5000", "0.3536"),
        ("max_order", "null_rate", "0.0417", ""),
        ("max_order", "sample", "2 questions", ""),
        ("outlier", "skipped", "1", ""),
    ]


def test_below_the_table_stands_what_its_rows_mean() -> None:
    lines = [line[0] for line in printed({"perm": AUDIT}) if len(line) == 1]
    assert [line.partition(":")[0] for line in lines if ":" in line] == ["null_rate", "outlier"]
    confusion = [line[0] for line in printed({"confusion": CONFUSION}) if len(line) == 1]
    assert confusion[-1] == f"delta: {MEANINGS['delta']}."


def test_choice_confusion_shows_accuracies_and_one_difference() -> None:
    shown = [name for _, name, _, _ in metrics(printed({"confusion": CONFUSION}))]
    assert shown == ["accuracy_original", "delta", "sample"]


def test_the_table_of_other_tasks_keeps_its_own_rows() -> None:
    assert metrics(printed({}, quiz=TASK)) == [
        ("none", "acc", "0.625", "0.125"),
        ("leakage", "acc_unflagged", "0.750", ""),
    ]
    assert all(len(line) == 9 or not line[0] for line in printed({}, quiz=TASK))
