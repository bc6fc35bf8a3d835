"""The registry of results columns: key, heading, meaning, computation and format of each in one entry.

Text tables, Markdown, LaTeX, CSV, JSON, the pages, the harness's results and `--fail-on` read this module. To add a
column, add one entry to one of its sections, or a property to `Measured` if it is computed from a row's questions, and
its line to docs/annotate.md (a failing test prints that line).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.data_verdict import WORDS, DataVerdict, detectable_if_seen
from lm_eval_leakage.results.formatting import (
    BOUND_OF_PVALUE,
    COUNT,
    INTERVAL,
    NUMBER,
    PVALUE,
    RATIO,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    Kind,
)
from lm_eval_leakage.results.measured import COMPUTED, Measured, value_by
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion, Row
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_TIMES
from lm_eval_leakage.stats.pooling import NAN, UNKNOWN, Estimate, share


def badge_of(word: str) -> str:
    """The style of a verdict's word as a badge."""
    return word.replace(" ", "-")


METRIC = Kind("", lambda key: Cell(key.removesuffix(",none")))
WORD = Kind("", lambda word: Cell(word, order=WORDS.index(word), badge=badge_of(word)))  # the most suspicious last


def _of_row(key: str, heading: str, kind: Kind, meaning: str) -> Column[Row]:
    """A field of the row."""
    return Column(heading, kind, attrgetter(key), meaning, key)


OF_RUN: Sequence[Column[Row]] = (
    MODEL := _of_row("model", "model", TEXT, "with its revision where one was asked for"),
    TASK := _of_row("task", "task", TEXT, "a group, a task, or a subject of a task as task/subject"),
    _of_row("level", "", TEXT, "“group”, “task”, or “subject” of a task"),
    _of_row("group", "", TEXT, "the outermost group that the task or group is in"),
    _of_row("metric", "metric", METRIC, "as the harness names it, with the filter where there is one"),
    _of_row("n_shot", "shots", TEXT, "number of examples before each question"),
    _of_row("n", "n", COUNT, "questions of the run"),
    ACCURACY := _of_row("accuracy", "accuracy", WITH_ERROR, "in the run, as the harness gave it, ± standard error"),
)
OF_AUDITS: Sequence[Column[Row]] = (
    _of_row("n_joined", "", COUNT, "questions of the run that were matched to an audit, without copies"),
    _of_row("n_copies", "", COUNT, "copies of questions, which only `n` and the accuracy count"),
    N_TESTED := _of_row("n_tested", "tested", COUNT, "questions of the run that the main detector tested"),
)

# ---------------------------------------------------------------------- of the verdict

OF_VERDICT: list[Column[Row]] = []


def _pvalue_cell(row: Row, value: float) -> Cell:
    return (BOUND_OF_PVALUE if row.verdict.tested.is_bound else PVALUE).cell(value)


def _of_verdict(heading: str, kind: Kind, harness: str = "") -> Callable[[Callable[[DataVerdict], Any]], Column[Row]]:
    """A column whose key is the function's name and whose meaning its docstring."""

    def register(of: Callable[[DataVerdict], Any]) -> Column[Row]:
        meaning = " ".join((of.__doc__ or "").split())
        shown = (lambda row: _pvalue_cell(row, of(row.verdict))) if kind is PVALUE else None
        key = of.__name__
        column = Column[Row](heading, kind, lambda row: of(row.verdict), meaning, key, shown, harness=harness)
        OF_VERDICT.append(column)
        return column

    return register


@_of_verdict("verdict", WORD)
def verdict(found: DataVerdict) -> str:
    """on the data set, from all option orders: strong evidence, evidence, none found, or cannot be told"""
    return found.word


@_of_verdict("p", PVALUE, harness="evidence_pvalue")
def evidence_pvalue(found: DataVerdict) -> float:
    """probability, without leakage, of such a preference for the published orders; none where no null hypothesis
    holds"""
    return found.pvalue


@_of_verdict("p adjusted", PVALUE)
def evidence_pvalue_adjusted(found: DataVerdict) -> float:
    """the same, adjusted for the verdicts shown together (Holm): on the benchmarks of all models, on the tasks of a
    group, or on the subjects of a task; and, in `check`, for its look; it decides the word"""
    return found.adjusted


@_of_verdict("order ratio", RATIO, harness="order_ratio")
def order_ratio(found: DataVerdict) -> Estimate:
    """how many times as often as by chance the published order is the most likely one, among questions without a
    guard, with a one-sided 95 % bound"""
    ratio = found.ratio
    return UNKNOWN if math.isnan(ratio.value) else Estimate(ratio.value, NAN, ratio.low, math.inf)


@_of_verdict("", TEXT)
def verdict_sentence(found: DataVerdict) -> str:
    """the verdict with its reasons"""
    return found.sentence


@_of_verdict("", TEXT)
def verdict_basis(found: DataVerdict) -> str:
    """what it is computed from: “orders”, “control”, “reference”, or “ratio” without a p-value"""
    return found.basis


@_of_verdict("", TEXT)
def published_orders(found: DataVerdict) -> str:
    """“drawn”, “sealed”, “written”, “consistent with random” or “too few to say”: whether the published orders were
    drawn at random"""
    return found.orders


@_of_verdict("", COUNT)
def n_verdict(found: DataVerdict) -> int:
    """questions that its p-value covers"""
    return found.n


@_of_verdict("", NUMBER)
def log_evalue(found: DataVerdict) -> float:
    """logarithm of the e-value; those of later audits of other questions may be added to it"""
    return found.tested.log_evalue


def _detectable(count: int) -> Column[Row]:
    meaning = f"smallest share of questions, seen {count} time(s), that is found with probability {FOUND_WITH}"
    return Column("", NUMBER, lambda row: detectable_if_seen(row.verdict, count), meaning, f"detectable_seen_{count}")


OF_VERDICT += map(_detectable, SEEN_TIMES)
VERDICT = OF_VERDICT[0]

# ---------------------------------------------------------------------- computed from the row's questions

_BY_KEY = {column.key: column for column in COMPUTED}
FLAGGED, FLAGGED_UNGUARDED = _BY_KEY["flagged_rate"], _BY_KEY["flagged_rate_unguarded"]
NULL_RATE = _BY_KEY["null_rate"]
PVALUE_ALL, PVALUE_UNGUARDED = _BY_KEY["pvalue"], _BY_KEY["pvalue_unguarded"]
CALIBRATED, PREVALENCE = _BY_KEY["calibrated_rate"], _BY_KEY["prevalence"]
CONFUSION = _BY_KEY["confusion_delta"]
ACCURACY_FLAGGED, ACCURACY_UNFLAGGED = _BY_KEY["accuracy_flagged"], _BY_KEY["accuracy_unflagged"]
GAP, GAP_ADJUSTED, GAP_PVALUE = _BY_KEY["gap"], _BY_KEY["gap_adjusted"], _BY_KEY["gap_pvalue"]
STRONG = _BY_KEY["strong_rate"]

ARMS_IN_WORDS = {
    "original": "as published",
    "shuffled": "shuffled",
    "replaced": "options replaced",
    "generalized": "replaced and shuffled",
}


def _arm(name: str) -> Column[Row]:
    key, meaning = f"accuracy_{name}", f"accuracy in the choice-confusion audit, {ARMS_IN_WORDS[name]}"
    of, compute = value_by(key, INTERVAL), lambda measured: share(measured.arm(name))
    meaning += "; left out without that audit"
    return Column("", INTERVAL, of, meaning, key, compute=compute, is_optional=True)


ARM_COLUMNS = {name: _arm(name) for name in ARMS}


def displayed() -> list[Column[Row]]:
    """Columns with a heading, in the order of tables and pages: accuracies come together."""
    by_flag = (ACCURACY_UNFLAGGED, ACCURACY_FLAGGED)
    found = dict.fromkeys((*OF_RUN, *OF_VERDICT, *by_flag, *OF_AUDITS, *COMPUTED))
    return [column for column in found if column.heading]


def recorded() -> list[Column[Row]]:
    """All columns in the order of JSON and CSV: texts, counts, estimates, other numbers, each in the order of the
    sections."""
    sorts = (str, int, Estimate, float)
    return sorted(_every(), key=lambda column: sorts.index(type(column.kind.undefined)))


def in_harness() -> list[Column[Row]]:
    """Columns that the harness's results have, in that order."""
    return [column for column in _every() if column.harness]


def _every() -> list[Column[Row]]:
    return [*OF_RUN, *OF_VERDICT, *OF_AUDITS, *COMPUTED, *ARM_COLUMNS.values()]


def values_of(measured: Measured) -> dict[str, Any]:
    """Values, by key, of the columns that are computed from a row's questions."""
    return {column.key: column.compute(measured) for column in recorded() if column.compute is not None}


# ---------------------------------------------------------------------- of a question


def _of_question(key: str, meaning: str, of: Callable[[Any], Any] | None = None) -> Column[Any]:
    """In annotated samples and `load_run`."""
    return Column("", TEXT, of or attrgetter(key), meaning, key)


def _of_arm(name: str) -> Column[AuditedQuestion]:
    meaning = f"whether choice confusion's arm `{name}` was answered correctly"
    return _of_question(f"right_{name}", meaning, lambda one: one.arms and bool(getattr(one.arms, name)))


# In the files the run's metrics come before IS_AUDITED, and the values of other detectors last.
RUN_COLUMNS: Sequence[Column[AnnotatedQuestion]] = (
    _of_question("task", "as the harness names it"),
    _of_question("n_shot", "number of examples before the question"),
    _of_question("doc_id", "number of the row in the task"),
    _of_question("doc_hash", "hash of the row, by which audits are joined"),
    _of_question("subject", "as the benchmark files the question"),
)
IS_AUDITED = _of_question(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[Column[AuditedQuestion]] = (
    _of_question("flagged", "by the main detector; null where it was not tested"),
    _of_question("pvalue", "of the main detector on this question alone"),
    _of_question("null_rate", "probability of a flag under its null hypothesis"),
    _of_question("score", "what the main detector ranks questions by"),
    _of_question("margin", "published order minus the best other order, nats"),
    _of_question("n_orders", "number of orders that were scored"),
    _of_question("reason", "why it was not tested"),
    _of_question("guards", "natural orders of its options", lambda one: ",".join(one.guards)),
    _of_question("outlier_flagged", "by the outlier test", attrgetter("outlier")),
    _of_question("calibrated_flagged", "by the calibration"),
    *map(_of_arm, ARMS),
)
