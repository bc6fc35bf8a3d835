"""The table of a run with audits as lm_eval prints it: the rows that a reader needs, and below them what they mean.

The results and the files of a run keep all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval_leakage.harness.tasks.finished_results import DETAILS, NO_ERROR
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.tables import LEAKAGE_FILTER

SAMPLE = "sample"  # the row with the number of questions
SAMPLE_LEN = "sample_len"  # lm_eval's key of that number, which it does not print
DIFFERENCES = ("delta_shuffled", "delta_replaced")  # of rows that are shown
GAPS = ("_gap", "_gap_adjusted")  # of accuracies that are shown
MEANINGS = {  # of rows and filters, by the name that the table shows
    "null_rate": "the share of questions that are flagged by chance, without leakage",
    "outlier": "flags a question if one order of its options, whichever it is, is much likelier than all others",
    "delta": (
        "accuracy with wrong options replaced by right options of other questions, minus the original accuracy. The "
        "new choice is easier, so a model that has not seen the benchmark gains; one that does not gain may know the "
        "published options"
    ),
}


def shortened_results(results: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    """Return results whose table has fewer rows of audits and leakage columns, and the number of questions audited."""
    audits = results.get(DETAILS) or {}
    rows = {}
    for name, row in results[section].items():
        rows[name] = _shortened_audit(row) if name in audits else _without_gaps(row)
    return {**results, section: rows}


def _without_gaps(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of another task without the gaps among its leakage columns."""
    shown = {}
    for key, value in row.items():
        name, _, pipeline = key.partition(",")
        if pipeline != LEAKAGE_FILTER or not name.removesuffix("_stderr").endswith(GAPS):
            shown[key] = value
    return shown


def _shortened_audit(row: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, value in row.items():
        name = key.partition(",")[0]
        if name.removesuffix("_stderr") in DIFFERENCES or (name == "skipped" and value == 0):
            continue
        is_zero_error = name.endswith("_stderr") and value == 0  # equal values of few questions are no certainty
        shown[key] = NO_ERROR if is_zero_error else value
    pipelines = [key.partition(",")[2] for key in shown if "," in key]
    if row.get(SAMPLE_LEN) and pipelines:
        shown[f"{SAMPLE},{pipelines[0]}"] = counted(row[SAMPLE_LEN])  # a number would be printed with decimals
    return shown


def explanations(results: Mapping[str, Any], section: str) -> Sequence[str]:
    """Return a sentence on each row and filter of audits that needs one, as lines below the table."""
    audits = results.get(DETAILS) or {}
    shown = {part for name in audits for key in results[section].get(name, {}) for part in key.split(",")}
    return [f"{name}: {meaning}." for name, meaning in MEANINGS.items() if name in shown]
