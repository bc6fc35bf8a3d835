"""Estimates which share of each subject a model has seen, and which subjects have more flags than chance explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import TypeVar

from lm_eval_leakage.logs.audits import audits_of_one_model
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.questions.families import each_once, left_out_in_words
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.formatting import (
    DASH,
    PVALUE,
    TEXT,
    Column,
    Table,
    markdown_of,
    percent,
    value_in_interval,
)
from lm_eval_leakage.results.identify import pvalues_of, questions_of_model, refuse_withheld
from lm_eval_leakage.results.published_orders import EXACT
from lm_eval_leakage.results.result_types import AuditedQuestion, grouped
from lm_eval_leakage.results.verdict_words import NO_VERDICT, DataVerdict
from lm_eval_leakage.results.verdicts import audited_questions
from lm_eval_leakage.stats.known_scores import Calibration
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate
from lm_eval_leakage.stats.prevalence import (
    FEWEST_FOR_SHARE,
    adjusted_by_subject,
    calibrated_pvalue,
    exact_lower_bound,
    share_of,
)
from lm_eval_leakage.texts import visible

ALL_SUBJECTS = "(all)"
NO_FLAGS = columns.Flags((), ())
T = TypeVar("T")


@dataclass(frozen=True)
class SubjectShare:
    """One subject, or ALL_SUBJECTS together, by the flags of one detector.

    flags, pvalue: of all tested questions; with a calibration, by it. Without one, the p-value is NaN unless the
        published orders were drawn at random
    share: estimated share of seen questions; without a calibration, a lower bound where the orders were drawn
    unguarded: of the questions whose options have no natural order; empty with a calibration
    adjusted: the p-value for the number of subjects (Benjamini-Hochberg); NaN for ALL_SUBJECTS
    verdict: on its questions together; empty with a calibration
    n_copies: copies of questions that were left out
    """

    detector: str
    subject: str
    flags: columns.Flags
    pvalue: float
    share: Estimate
    unguarded: columns.Flags = NO_FLAGS
    adjusted: float = math.nan
    is_calibrated: bool = False
    verdict: DataVerdict = NO_VERDICT
    n_copies: int = 0


def by_null(folder: Path, problems: list[Problem]) -> list[SubjectShare]:
    """By every statistic with a null hypothesis, where it holds: where the published orders were drawn. Its power is
    unknown, so that the share has only a lower bound."""
    _, found = audits_of_one_model(folder, problems)
    lines = list(found)
    known = (line.detector for _, line in lines if line.flagged is not None and line.null_rate is not None)
    detectors = list(dict.fromkeys(known))
    if not detectors:
        raise ValueError(
            f"{folder} holds no verdict of a statistic with a null hypothesis; run leakage_perm, or give a calibration"
        )
    return [row for name in detectors for row in _of_detector(name, audited_questions(lines, [], name).found)]


def _of_detector(detector: str, found: Sequence[AuditedQuestion]) -> list[SubjectShare]:
    rows = []
    for subject, own in _with_all([one for one in found if one.null_rate is not None], lambda one: one.subject):
        once = each_once(own, lambda one: one.key, lambda one: one.benchmark)
        n_copies = sum(one.n_rows for one in own) - len(once)
        verdict = data_verdict(one.orders for one in once if one.orders is not None)
        flags, unguarded = columns.flags_of(once), columns.flags_of(once, unguarded=True)
        pvalue, share = flags.pvalue if verdict.orders in EXACT else math.nan, UNKNOWN
        if verdict.orders in EXACT and unguarded.n >= FEWEST_FOR_SHARE:
            share = exact_lower_bound(unguarded.n_flagged, unguarded.n, unguarded.null_rate)
        row = SubjectShare(detector, subject, flags, pvalue, share, unguarded, verdict=verdict, n_copies=n_copies)
        rows.append(row)
    return _adjusted(rows)


def _with_all(found: Sequence[T], subject_of: Callable[[T], str]) -> Iterator[tuple[str, Sequence[T]]]:
    """All together, and those of each subject."""
    subjects = grouped(found, subject_of)
    yield ALL_SUBJECTS, list(chain.from_iterable(subjects.values()))
    yield from subjects.items()


def _adjusted(rows: Sequence[SubjectShare]) -> list[SubjectShare]:
    alone = {row.subject: row.pvalue for row in rows if row.subject != ALL_SUBJECTS and not math.isnan(row.pvalue)}
    adjusted = adjusted_by_subject(alone)
    return [replace(row, adjusted=adjusted.get(row.subject, math.nan)) for row in rows]


def by_calibration(
    folder: Path, calibration: Calibration, detector: str, fpr: float, problems: list[Problem]
) -> list[SubjectShare]:
    """By one detector of a calibration, at the threshold that flags `fpr` of the known-unseen questions."""
    asked = questions_of_model(folder, calibration, problems)
    refuse_withheld(calibration, [one.first for one in asked])
    pvalues = pvalues_of(asked, calibration, detector, problems)
    tpr, observed_fpr = calibration.detectors[detector].flagged(fpr)
    subjects = {one.name: one.first.subject for one in asked}
    rows = []
    for subject, names in _with_all([*pvalues], subjects.__getitem__):
        flags = columns.Flags([pvalues[name] <= fpr for name in names], [fpr] * len(names))
        pvalue, share = calibrated_pvalue(flags.flags, observed_fpr), share_of(flags.flags, tpr, observed_fpr)
        n_copies = sum(one.n_copies for one in asked if subject in (ALL_SUBJECTS, subjects[one.name]))
        rows.append(SubjectShare(detector, subject, flags, pvalue, share, is_calibrated=True, n_copies=n_copies))
    return _adjusted(rows)


def _counted(flags: columns.Flags) -> str:
    return f"{flags.n_flagged} of {flags.n} ({percent(flags.n_flagged / flags.n)})" if flags.n else DASH


def _columns(is_calibrated: bool) -> list[Column[SubjectShare]]:
    heading, p = (
        (columns.CALIBRATED.heading, "p by calibration") if is_calibrated else (columns.FLAGGED.heading, "p of flags")
    )
    shown: list[Column[SubjectShare]] = [
        Column("subject", TEXT, lambda row: row.subject),
        Column(f"n, {columns.ALL_TESTED}", TEXT, lambda row: str(row.flags.n)),
        Column(f"{heading}, {columns.ALL_TESTED}", TEXT, lambda row: _counted(row.flags)),
        Column(columns.NULL_RATE.heading, TEXT, lambda row: percent(row.flags.null_rate)),
        Column(p, PVALUE, lambda row: row.pvalue),
        Column(f"{p}, adjusted", PVALUE, lambda row: row.adjusted),
    ]
    if is_calibrated:
        return [*shown, Column(f"{columns.PREVALENCE.heading}, 95 %", TEXT, lambda row: value_in_interval(row.share))]
    shown.insert(2, Column(columns.VERDICT.heading, TEXT, lambda row: row.verdict.word))
    return [
        *shown,
        Column(columns.FLAGGED_UNGUARDED.heading, TEXT, lambda row: _counted(row.unguarded)),
        Column("seen share, no guard, 95 %", TEXT, lambda row: value_in_interval(row.share)),
    ]


def as_table(found: Sequence[SubjectShare]) -> str:
    """Markdown, a table per detector; the subjects with the lowest p-values first, after all together."""
    rows = sorted(found, key=lambda row: (row.detector, row.subject != ALL_SUBJECTS, row.pvalue))
    tables = []
    for detector, own in groupby(rows, key=lambda row: row.detector):
        lines = list(own)
        shown = _columns(lines[0].is_calibrated)
        table = Table(shown, [("", [column.cell(row) for column in shown]) for row in lines])
        tables.append(f"`{visible(detector)}`\n\n{markdown_of(table.cells)}")
    return "\n\n".join(tables)


def notes(found: Sequence[SubjectShare]) -> Iterator[str]:
    """What was left out, and why a share is missing or is no estimate, a sentence each."""
    if n_copies := max((row.n_copies for row in found), default=0):
        yield left_out_in_words(n_copies)
    written = [row for row in found if not row.is_calibrated and row.verdict.orders not in EXACT]
    if written:
        yield (
            f"{len(written)} of {len(found)} rows have no p-value of flags and no share: a flag has a known "
            "probability only if the published orders are random (`lm-eval-leakage ls TASK --orders`); read the "
            "verdict or give a --calibration of the model's own scores"
        )
    few = [row for row in found if math.isnan(row.share.low) and row not in written]
    if few:
        kind = "tested questions" if few[0].is_calibrated else "tested questions without a guard"
        where = visible(few[0].subject) if len(few) == 1 else f"{len(few)} of {len(found)} rows"
        yield (
            f"no share of seen questions is given for {where}: it takes at least {FEWEST_FOR_SHARE} {kind}; audit "
            "more questions, or read a row that has enough"
        )
    if any(row.share.high == 1 and row.share.low < 1 for row in found):
        yield "a share whose interval ends at 1 has only a lower bound: how many seen questions are missed is unknown"
