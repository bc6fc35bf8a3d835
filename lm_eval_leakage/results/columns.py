"""The definition of a results column, and how each kind of value is shown.

The columns of the verdict on the data set, a section of the registry of results columns.

The registry of results columns: key, heading, meaning, computation and format of each in one entry.

Text tables, Markdown, LaTeX, CSV, JSON, the pages, the harness's results and `--fail-if` read this module. To add a
column, add one entry to one of its sections (that of the verdict is in `verdict_columns`) and its line to
docs/annotate.md (a failing test prints that line). What it needs from a row's questions is a property of `Measured`.

The registry of per-question columns, in annotated samples and `load_run`: key, meaning and value of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Generic, TypeVar, cast

from lm_eval_leakage.logs.audit_line import Arms, Scalar
from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.data_verdict import WORDS, DataVerdict, detectable_if_seen
from lm_eval_leakage.results.formatting import (
    EMPTY,
    Cell,
    count_cell,
    error_cell,
    interval_cell,
    number_cell,
    pvalue_cell,
    ratio_cell,
    text_cell,
)
from lm_eval_leakage.results.measured import Measured
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion, Row
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_TIMES
from lm_eval_leakage.stats.pooling import NAN, UNKNOWN, Estimate, mean_and_stderr, share

Value = TypeVar("Value", str, int, float, Estimate)


@dataclass(frozen=True)
class Kind(Generic[Value]):
    """undefined: the value for a row without data for the column; cell: formats a value for tables and pages"""

    undefined: Value
    cell: Callable[[Value], Cell]


def badge_of(word: str) -> str:
    """The style of a verdict's word as a badge."""
    return word.replace(" ", "-")


def word_cell(word: str) -> Cell:
    """A verdict's word, which sorts by how suspicious it is."""
    return Cell(word, order=WORDS.index(word), badge=badge_of(word)) if word else EMPTY


TEXT: Kind[str] = Kind("", text_cell)
METRIC: Kind[str] = Kind("", lambda key: text_cell(key.removesuffix(",none")))
WORD: Kind[str] = Kind("", word_cell)
COUNT: Kind[int] = Kind(0, count_cell)
NUMBER: Kind[float] = Kind(NAN, number_cell)
PVALUE: Kind[float] = Kind(NAN, pvalue_cell)
WITH_ERROR: Kind[Estimate] = Kind(UNKNOWN, error_cell)
INTERVAL: Kind[Estimate] = Kind(UNKNOWN, interval_cell)
RATIO: Kind[Estimate] = Kind(UNKNOWN, ratio_cell)


@dataclass(frozen=True)
class Column(Generic[Value]):
    """One column of the results.

    key: its name in JSON, CSV and `--fail-if`; an Estimate also has `_stderr`, `_low` and `_high`
    heading: its name in tables and on pages; empty if only JSON and CSV have it
    meaning: a sentence for the docs and the pages; empty if the heading says it all
    compute: the value from a row's questions; None if it is the Row's field `key`
    of_verdict: the value from the row's verdict; None if it is no part of it
    verdict_cell: formats it where that takes more of the verdict than the value; None where the kind does
    harness: its name in the harness's results, where `{metric}` is the row's metric; empty if it has none
    in_text: False if only pages show it, since text tables have less room
    is_optional: whether rows without data for it leave it out of their JSON
    """

    key: str
    heading: str
    kind: Kind[Value]
    meaning: str = ""
    compute: Callable[[Measured], Value] | None = None
    harness: str = ""
    in_text: bool = True
    is_optional: bool = False
    of_verdict: Callable[[DataVerdict], Value] | None = None
    verdict_cell: Callable[[DataVerdict], Cell] | None = None

    def of(self, row: Row) -> Value:
        """The row's value in this column."""
        if self.of_verdict is not None:
            return self.of_verdict(row.verdict)
        if self.compute is None:
            return cast(Value, getattr(row, self.key))
        return cast(Value, row.values.get(self.key, self.kind.undefined))

    def cell(self, row: Row) -> Cell:
        """The row's value, as tables and pages show it."""
        return self.kind.cell(self.of(row)) if self.verdict_cell is None else self.verdict_cell(row.verdict)


OF_VERDICT: Sequence[Column[Any]] = (
    VERDICT := Column(
        "verdict",
        "verdict",
        WORD,
        "on the data set, from all option orders: strong evidence, evidence, none found, or cannot be told",
        of_verdict=lambda found: found.word,
    ),
    Column(
        "evidence_pvalue",
        "p",
        PVALUE,
        "probability, without leakage, of such a preference for the published orders; none where no null hypothesis "
        "holds",
        of_verdict=lambda found: found.pvalue,
        harness="evidence_pvalue",
        verdict_cell=lambda found: pvalue_cell(found.pvalue, found.tested.is_bound),
    ),
    Column(
        "evidence_pvalue_adjusted",
        "p adjusted",
        PVALUE,
        "the same, adjusted for the verdicts shown together (Holm): on the benchmarks of all models, on the tasks "
        "of a group, or on the subjects of a task; and, in `check`, for its look; it decides the word",
        of_verdict=lambda found: found.adjusted,
        verdict_cell=lambda found: pvalue_cell(found.adjusted, found.tested.is_bound),
    ),
    Column(
        "order_ratio",
        "order ratio",
        RATIO,
        "how many times as often as by chance the published order is the most likely one, among questions without a "
        "guard, with a one-sided 95 % bound",
        of_verdict=lambda found: (
            Estimate(found.ratio.value, NAN, found.ratio.low, math.inf)
            if not math.isnan(found.ratio.value)
            else UNKNOWN
        ),
        harness="order_ratio",
    ),
    Column("verdict_sentence", "", TEXT, "the verdict with its reasons", of_verdict=lambda found: found.sentence),
    Column(
        "verdict_basis",
        "",
        TEXT,
        "what it is computed from: “orders”, “control”, “reference”, or “ratio” without a p-value",
        of_verdict=lambda found: found.basis,
    ),
    Column(
        "published_orders",
        "",
        TEXT,
        "“drawn”, “sealed”, “written”, “consistent with random” or “too few to say”: whether the published orders "
        "were drawn at random",
        of_verdict=lambda found: found.orders,
    ),
    Column("n_verdict", "", COUNT, "questions that its p-value covers", of_verdict=lambda found: found.n),
    Column(
        "log_evalue",
        "",
        NUMBER,
        "logarithm of the e-value; those of later audits of other questions may be added to it",
        of_verdict=lambda found: found.tested.log_evalue,
    ),
    *(
        Column(
            f"detectable_seen_{count}",
            "",
            NUMBER,
            f"smallest share of questions, seen {count} time(s), that is found with probability {FOUND_WITH}",
            of_verdict=partial(detectable_if_seen, count=count),
        )
        for count in SEEN_TIMES
    ),
)


OF_RUN: Sequence[Column[Any]] = (
    MODEL := Column("model", "model", TEXT, "with its revision where one was asked for"),
    TASK := Column("task", "task", TEXT, "a group, a task, or a subject of a task as task/subject"),
    Column("level", "", TEXT, "“group”, “task”, or “subject” of a task"),
    Column("group", "", TEXT, "the outermost group that the task or group is in"),
    Column("metric", "metric", METRIC, "as the harness names it, with the filter where there is one"),
    Column("n_shot", "shots", TEXT, "number of examples before each question"),
    Column("n", "n", COUNT, "questions of the run"),
    ACCURACY := Column("accuracy", "accuracy", WITH_ERROR, "in the run, as the harness gave it, ± standard error"),
)

BY_FLAG: Sequence[Column[Any]] = (
    ACCURACY_UNFLAGGED := Column(
        "accuracy_unflagged",
        "accuracy, unflagged",
        INTERVAL,
        "in the run, on unflagged questions, with Wilson's 95 % interval",
        lambda of: of.accuracy_unflagged,
        harness="{metric}_unflagged",
    ),
    ACCURACY_FLAGGED := Column(
        "accuracy_flagged",
        "accuracy, flagged",
        INTERVAL,
        "in the run, on flagged questions, with Wilson's 95 % interval",
        lambda of: of.accuracy_flagged,
        harness="{metric}_flagged",
        in_text=False,
    ),
)

OF_AUDITS: Sequence[Column[Any]] = (
    Column("n_joined", "", COUNT, "questions of the run that were matched to an audit, without copies"),
    Column("n_copies", "", COUNT, "copies of questions, which only `n` and the accuracy count"),
    N_TESTED := Column("n_tested", "tested", COUNT, "questions of the run that the main detector tested"),
    FLAGGED := Column(
        "flagged_rate",
        "flagged",
        WITH_ERROR,
        "share of the tested questions that the main detector flags (the weak leakage of Hidayat et al. 2025)",
        lambda of: share(of.flags),
        harness="flagged_rate",
    ),
    NULL_RATE := Column(
        "null_rate",
        "by chance",
        NUMBER,
        "that share under the detector's null hypothesis, which natural orders violate",
        lambda of: mean_and_stderr(of.null_rates)[0],
        harness="null_rate",
    ),
    PVALUE_ALL := Column(
        "pvalue",
        "",
        PVALUE,
        "probability of at least as many flags among all tested questions if the detector's null hypothesis held for "
        "each (exact); on written orders it does not",
        lambda of: of.tested_flags.pvalue,
    ),
    FLAGGED_UNGUARDED := Column(
        "flagged_rate_unguarded",
        "flagged, no guard",
        WITH_ERROR,
        "share flagged among the questions whose options have no recognised natural order",
        lambda of: share(of.flags_unguarded),
        in_text=False,
    ),
    PVALUE_UNGUARDED := Column(
        "pvalue_unguarded",
        "",
        PVALUE,
        "the same of the questions whose options have no recognised natural order",
        lambda of: of.unguarded_flags.pvalue,
    ),
    N_PVALUE := Column("n_pvalue", "", COUNT, "questions that `pvalue` covers", lambda of: of.tested_flags.n),
    N_PVALUE_UNGUARDED := Column(
        "n_pvalue_unguarded",
        "",
        COUNT,
        "how many questions `pvalue_unguarded` covers",
        lambda of: of.unguarded_flags.n,
    ),
    OUTLIER := Column(
        "outlier_rate",
        "outlier",
        WITH_ERROR,
        "share of the questions that the outlier test flags",
        lambda of: share(of.outliers),
        harness="outlier_rate",
        in_text=False,
    ),
    OUTLIER_NULL_RATE := Column(
        "outlier_null_rate",
        "outlier by chance",
        NUMBER,
        "that share under the test's null hypothesis",
        lambda of: mean_and_stderr(of.outlier_null_rates)[0],
        in_text=False,
    ),
    CALIBRATED := Column(
        "calibrated_rate",
        "calibrated",
        WITH_ERROR,
        "with --calibration: share flagged at the false-positive rate `--fpr` on questions known to be unseen",
        lambda of: share(of.calibrated_flags),
        harness="calibrated_rate",
    ),
    PREVALENCE := Column(
        "prevalence",
        "prevalence",
        INTERVAL,
        "with --calibration: estimated share of seen questions, 95 % interval",
        lambda of: of.prevalence,
        harness="prevalence",
    ),
    CONFUSION := Column(
        "confusion_delta",
        "choice confusion",
        WITH_ERROR,
        "accuracy with wrong options replaced by other questions' right ones, minus the original accuracy; "
        "a model that has not seen the benchmark gains (Yao et al. 2024)",
        lambda of: of.confusion,
        harness="confusion_delta",
    ),
)

GAPS: Sequence[Column[Any]] = (
    GAP := Column(
        "gap",
        "gap",
        INTERVAL,
        "accuracy on flagged minus accuracy on unflagged questions",
        lambda of: of.gap,
        harness="{metric}_gap",
        in_text=False,
    ),
    GAP_ADJUSTED := Column(
        "gap_adjusted",
        "gap within strata",
        INTERVAL,
        "the gap within strata of similar difficulty, 95 % interval",
        lambda of: of.gap_within_strata,
        harness="{metric}_gap_adjusted",
        in_text=False,
    ),
    GAP_PVALUE := Column(
        "gap_pvalue",
        "p of gap",
        PVALUE,
        "of the gap within strata, one-sided and exact if flagged questions are no easier within their stratum",
        lambda of: of.within_strata.pvalue if of.within_strata else NAN,
        in_text=False,
    ),
    STRONG := Column(
        "strong_rate",
        "flagged and right",
        WITH_ERROR,
        "share flagged and answered correctly (the strong leakage of Hidayat et al. 2025)",
        lambda of: share(of.flagged_and_right),
        in_text=False,
    ),
)

ARMS_IN_WORDS = {
    "original": "as published",
    "shuffled": "shuffled",
    "replaced": "options replaced",
    "generalized": "replaced and shuffled",
}


def _arm(name: str) -> Column[Estimate]:
    meaning = f"accuracy in the choice-confusion audit, {ARMS_IN_WORDS[name]}; left out without that audit"
    return Column(f"accuracy_{name}", "", INTERVAL, meaning, lambda of: share(of.arm(name)), is_optional=True)


ARM_COLUMNS = {field.name: _arm(field.name) for field in fields(Arms)}


def displayed() -> list[Column[Any]]:
    """Columns with a heading, in the order of tables and pages."""
    return [column for column in (*OF_RUN, *OF_VERDICT, *BY_FLAG, *OF_AUDITS, *GAPS) if column.heading]


def recorded() -> list[Column[Any]]:
    """All columns in the order of JSON and CSV: texts, counts, estimates, other numbers, each in the order of the
    sections."""
    sorts = (str, int, Estimate, float)
    return sorted(_every(), key=lambda column: sorts.index(type(column.kind.undefined)))


def in_harness() -> list[Column[Any]]:
    """Columns that the harness's results have, in that order."""
    return [column for column in _every() if column.harness]


def _every() -> list[Column[Any]]:
    return [*OF_RUN, *OF_VERDICT, *OF_AUDITS, *BY_FLAG, *GAPS, *ARM_COLUMNS.values()]


def values_of(measured: Measured) -> dict[str, Any]:
    """Values, by key, of the columns that are computed from a row's questions."""
    return {column.key: column.compute(measured) for column in recorded() if column.compute is not None}


@dataclass(frozen=True)
class QuestionColumn:
    """of_run: the value from the run's answer; of_audit: from the audits; exactly one of the two is given"""

    key: str
    meaning: str
    of_run: Callable[[AnnotatedQuestion], Scalar] | None = None
    of_audit: Callable[[AuditedQuestion], Scalar] | None = None


def _arm_of_question(name: str) -> QuestionColumn:
    def right(one: AuditedQuestion) -> Scalar:
        arms: Arms | None = one.arms
        return None if arms is None else bool(getattr(arms, name))

    return QuestionColumn(
        f"right_{name}", f"whether choice confusion's arm `{name}` was answered correctly", None, right
    )


RUN_COLUMNS: Sequence[QuestionColumn] = (
    QuestionColumn("task", "as the harness names it", lambda question: question.task),
    QuestionColumn("n_shot", "number of examples before the question", lambda question: question.n_shot),
    QuestionColumn("doc_id", "number of the row in the task", lambda question: question.doc_id),
    QuestionColumn("doc_hash", "hash of the row, by which audits are joined", lambda question: question.doc_hash),
    QuestionColumn("subject", "as the benchmark files the question", lambda question: question.subject),
)
IS_AUDITED = QuestionColumn(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[QuestionColumn] = (
    QuestionColumn("flagged", "by the main detector; null where it was not tested", of_audit=lambda one: one.flagged),
    QuestionColumn("pvalue", "of the main detector on this question alone", of_audit=lambda one: one.pvalue),
    QuestionColumn("null_rate", "probability of a flag under its null hypothesis", of_audit=lambda one: one.null_rate),
    QuestionColumn("score", "what the main detector ranks questions by", of_audit=lambda one: one.score),
    QuestionColumn("margin", "published order minus the best other order, nats", of_audit=lambda one: one.margin),
    QuestionColumn("n_orders", "number of orders that were scored", of_audit=lambda one: one.n_orders),
    QuestionColumn("reason", "why it was not tested", of_audit=lambda one: one.reason),
    QuestionColumn("guards", "natural orders of its options", of_audit=lambda one: ",".join(one.guards)),
    QuestionColumn("outlier_flagged", "by the outlier test", of_audit=lambda one: one.outlier),
    QuestionColumn("calibrated_flagged", "by the calibration", of_audit=lambda one: one.calibrated_flagged),
    *map(_arm_of_question, ARMS),
)


def question_columns() -> list[QuestionColumn]:
    """All of them in the order of the files, where the run's metrics come before IS_AUDITED and the values of other
    detectors last."""
    return [*RUN_COLUMNS, IS_AUDITED, *AUDIT_COLUMNS]
