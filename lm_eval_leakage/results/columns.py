"""The registry of results columns: key, heading, meaning, computation and format of each in one entry.

Text tables, Markdown, LaTeX, CSV, JSON, the pages, the harness's results and `--fail-on` read this module. To add a
column, add one entry to one of its sections and its line to docs/annotate.md (a failing test prints that line). What
it needs from a row's questions is a property of `Measured`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any

from lm_eval_leakage.logs.audit_line import Arms
from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.data_verdict import WORDS, DataVerdict, detectable_if_seen
from lm_eval_leakage.results.formatting import (
    COUNT,
    EMPTY,
    INTERVAL,
    NUMBER,
    PVALUE,
    RATIO,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    Kind,
    pvalue_cell,
    text_cell,
)
from lm_eval_leakage.results.measured import Measured
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion, Row
from lm_eval_leakage.stats.order_power import FOUND_WITH, SEEN_TIMES
from lm_eval_leakage.stats.pooling import NAN, UNKNOWN, Estimate, mean_and_stderr, share


def badge_of(word: str) -> str:
    """The style of a verdict's word as a badge."""
    return word.replace(" ", "-")


def word_cell(word: str) -> Cell:
    """A verdict's word, which sorts by how suspicious it is."""
    return Cell(word, order=WORDS.index(word), badge=badge_of(word)) if word else EMPTY


METRIC = Kind("", lambda key: text_cell(key.removesuffix(",none")))
WORD = Kind("", word_cell)


def _of_row(key: str, heading: str, kind: Kind, meaning: str = "") -> Column[Row]:
    """A field of the row."""
    return Column(heading, kind, attrgetter(key), meaning, key)


def _of_verdict(
    key: str,
    heading: str,
    kind: Kind,
    meaning: str,
    of: Callable[[DataVerdict], Any],
    shown: Callable[[DataVerdict], Cell] | None = None,
    **more: Any,
) -> Column[Row]:
    by_row = None if shown is None else lambda row: shown(row.verdict)
    return Column(heading, kind, lambda row: of(row.verdict), meaning, key, by_row, **more)


def measured(
    key: str,
    heading: str,
    kind: Kind,
    meaning: str,
    compute: Callable[[Measured], Any],
    harness: str = "",
    **more: Any,
) -> Column[Row]:
    """Computed from the row's questions."""

    def of(row: Row) -> Any:
        return row.values.get(key, kind.undefined)

    return Column(heading, kind, of, meaning, key, compute=compute, harness=harness, **more)


OF_VERDICT: Sequence[Column[Row]] = (
    VERDICT := _of_verdict(
        "verdict",
        "verdict",
        WORD,
        "on the data set, from all option orders: strong evidence, evidence, none found, or cannot be told",
        lambda found: found.word,
    ),
    _of_verdict(
        "evidence_pvalue",
        "p",
        PVALUE,
        "probability, without leakage, of such a preference for the published orders; none where no null hypothesis "
        "holds",
        lambda found: found.pvalue,
        lambda found: pvalue_cell(found.pvalue, found.tested.is_bound),
        harness="evidence_pvalue",
    ),
    _of_verdict(
        "evidence_pvalue_adjusted",
        "p adjusted",
        PVALUE,
        "the same, adjusted for the verdicts shown together (Holm): on the benchmarks of all models, on the tasks "
        "of a group, or on the subjects of a task; and, in `check`, for its look; it decides the word",
        lambda found: found.adjusted,
        lambda found: pvalue_cell(found.adjusted, found.tested.is_bound),
    ),
    _of_verdict(
        "order_ratio",
        "order ratio",
        RATIO,
        "how many times as often as by chance the published order is the most likely one, among questions without a "
        "guard, with a one-sided 95 % bound",
        lambda found: (
            Estimate(found.ratio.value, NAN, found.ratio.low, math.inf)
            if not math.isnan(found.ratio.value)
            else UNKNOWN
        ),
        harness="order_ratio",
    ),
    _of_verdict("verdict_sentence", "", TEXT, "the verdict with its reasons", lambda found: found.sentence),
    _of_verdict(
        "verdict_basis",
        "",
        TEXT,
        "what it is computed from: “orders”, “control”, “reference”, or “ratio” without a p-value",
        lambda found: found.basis,
    ),
    _of_verdict(
        "published_orders",
        "",
        TEXT,
        "“drawn”, “sealed”, “written”, “consistent with random” or “too few to say”: whether the published orders "
        "were drawn at random",
        lambda found: found.orders,
    ),
    _of_verdict("n_verdict", "", COUNT, "questions that its p-value covers", lambda found: found.n),
    _of_verdict(
        "log_evalue",
        "",
        NUMBER,
        "logarithm of the e-value; those of later audits of other questions may be added to it",
        lambda found: found.tested.log_evalue,
    ),
    *(
        _of_verdict(
            f"detectable_seen_{count}",
            "",
            NUMBER,
            f"smallest share of questions, seen {count} time(s), that is found with probability {FOUND_WITH}",
            partial(detectable_if_seen, count=count),
        )
        for count in SEEN_TIMES
    ),
)


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

BY_FLAG: Sequence[Column[Row]] = (
    ACCURACY_UNFLAGGED := measured(
        "accuracy_unflagged",
        "accuracy, unflagged",
        INTERVAL,
        "in the run, on unflagged questions, with Wilson's 95 % interval",
        lambda of: of.accuracy_unflagged,
        harness="{metric}_unflagged",
    ),
    ACCURACY_FLAGGED := measured(
        "accuracy_flagged",
        "accuracy, flagged",
        INTERVAL,
        "in the run, on flagged questions, with Wilson's 95 % interval",
        lambda of: of.accuracy_flagged,
        harness="{metric}_flagged",
        in_text=False,
    ),
)

OF_AUDITS: Sequence[Column[Row]] = (
    _of_row("n_joined", "", COUNT, "questions of the run that were matched to an audit, without copies"),
    _of_row("n_copies", "", COUNT, "copies of questions, which only `n` and the accuracy count"),
    N_TESTED := _of_row("n_tested", "tested", COUNT, "questions of the run that the main detector tested"),
    FLAGGED := measured(
        "flagged_rate",
        "flagged",
        WITH_ERROR,
        "share of the tested questions that the main detector flags (the weak leakage of Hidayat et al. 2025)",
        lambda of: share(of.flags),
        harness="flagged_rate",
    ),
    NULL_RATE := measured(
        "null_rate",
        "by chance",
        NUMBER,
        "that share under the detector's null hypothesis, which natural orders violate",
        lambda of: mean_and_stderr(of.null_rates)[0],
        harness="null_rate",
    ),
    PVALUE_ALL := measured(
        "pvalue",
        "",
        PVALUE,
        "probability of at least as many flags among all tested questions if the detector's null hypothesis held for "
        "each (exact); on written orders it does not",
        lambda of: of.tested_flags.pvalue,
    ),
    FLAGGED_UNGUARDED := measured(
        "flagged_rate_unguarded",
        "flagged, no guard",
        WITH_ERROR,
        "share flagged among the questions whose options have no recognised natural order",
        lambda of: share([bool(one.flagged) for one in of.tested if not one.guards]),
        in_text=False,
    ),
    PVALUE_UNGUARDED := measured(
        "pvalue_unguarded",
        "",
        PVALUE,
        "the same of the questions whose options have no recognised natural order",
        lambda of: of.unguarded_flags.pvalue,
    ),
    N_PVALUE := measured("n_pvalue", "", COUNT, "questions that `pvalue` covers", lambda of: of.tested_flags.n),
    N_PVALUE_UNGUARDED := measured(
        "n_pvalue_unguarded",
        "",
        COUNT,
        "how many questions `pvalue_unguarded` covers",
        lambda of: of.unguarded_flags.n,
    ),
    OUTLIER := measured(
        "outlier_rate",
        "outlier",
        WITH_ERROR,
        "share of the questions that the outlier test flags",
        lambda of: share(of.known("outlier")),
        harness="outlier_rate",
        in_text=False,
    ),
    OUTLIER_NULL_RATE := measured(
        "outlier_null_rate",
        "outlier by chance",
        NUMBER,
        "that share under the test's null hypothesis",
        lambda of: mean_and_stderr(of.outlier_null_rates)[0],
        in_text=False,
    ),
    CALIBRATED := measured(
        "calibrated_rate",
        "calibrated",
        WITH_ERROR,
        "with --calibration: share flagged at the false-positive rate `--fpr` on questions known to be unseen",
        lambda of: share(of.known("calibrated_flagged")),
        harness="calibrated_rate",
    ),
    PREVALENCE := measured(
        "prevalence",
        "prevalence",
        INTERVAL,
        "with --calibration: estimated share of seen questions, 95 % interval",
        lambda of: of.prevalence,
        harness="prevalence",
    ),
    CONFUSION := measured(
        "confusion_delta",
        "choice confusion",
        WITH_ERROR,
        "accuracy with wrong options replaced by other questions' right ones, minus the original accuracy; "
        "a model that has not seen the benchmark gains (Yao et al. 2024)",
        lambda of: of.confusion,
        harness="confusion_delta",
    ),
)

GAPS: Sequence[Column[Row]] = (
    GAP := measured(
        "gap",
        "gap",
        INTERVAL,
        "accuracy on flagged minus accuracy on unflagged questions",
        lambda of: of.gap,
        harness="{metric}_gap",
        in_text=False,
    ),
    GAP_ADJUSTED := measured(
        "gap_adjusted",
        "gap within strata",
        INTERVAL,
        "the gap within strata of similar difficulty, 95 % interval",
        lambda of: of.gap_within_strata,
        harness="{metric}_gap_adjusted",
        in_text=False,
    ),
    GAP_PVALUE := measured(
        "gap_pvalue",
        "p of gap",
        PVALUE,
        "of the gap within strata, one-sided and exact if flagged questions are no easier within their stratum",
        lambda of: of.within_strata.pvalue if of.within_strata else NAN,
        in_text=False,
    ),
    STRONG := measured(
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


def _arm(name: str) -> Column[Row]:
    meaning = f"accuracy in the choice-confusion audit, {ARMS_IN_WORDS[name]}; left out without that audit"
    return measured(f"accuracy_{name}", "", INTERVAL, meaning, lambda of: share(of.arm(name)), is_optional=True)


ARM_COLUMNS = {field.name: _arm(field.name) for field in fields(Arms)}


def displayed() -> list[Column[Row]]:
    """Columns with a heading, in the order of tables and pages."""
    return [column for column in (*OF_RUN, *OF_VERDICT, *BY_FLAG, *OF_AUDITS, *GAPS) if column.heading]


def recorded() -> list[Column[Row]]:
    """All columns in the order of JSON and CSV: texts, counts, estimates, other numbers, each in the order of the
    sections."""
    sorts = (str, int, Estimate, float)
    return sorted(_every(), key=lambda column: sorts.index(type(column.kind.undefined)))


def in_harness() -> list[Column[Row]]:
    """Columns that the harness's results have, in that order."""
    return [column for column in _every() if column.harness]


def _every() -> list[Column[Row]]:
    return [*OF_RUN, *OF_VERDICT, *OF_AUDITS, *BY_FLAG, *GAPS, *ARM_COLUMNS.values()]


def values_of(measured: Measured) -> dict[str, Any]:
    """Values, by key, of the columns that are computed from a row's questions."""
    return {column.key: column.compute(measured) for column in recorded() if column.compute is not None}


def _of_question(key: str, meaning: str, of: Callable[[Any], Any] | None = None) -> Column[Any]:
    """Of one question, in annotated samples and `load_run`."""
    return Column("", TEXT, of or attrgetter(key), meaning, key)


def _right(arm: str, one: AuditedQuestion) -> bool | None:
    return None if one.arms is None else bool(getattr(one.arms, arm))


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
    *(
        _of_question(
            f"right_{name}",
            f"whether choice confusion's arm `{name}` was answered correctly",
            partial(_right, name),
        )
        for name in ARMS
    ),
)


def question_columns() -> list[Column[Any]]:
    """All of them in the order of the files, where the run's metrics come before IS_AUDITED and the values of other
    detectors last."""
    return [*RUN_COLUMNS, IS_AUDITED, *AUDIT_COLUMNS]
