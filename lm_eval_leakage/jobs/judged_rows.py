"""Rows of a task's findings, with the reason where there is no verdict, and with the positive control."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from lm_eval_leakage.logs.audit_line import window_needed
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.rows import SUBJECT_LEVEL
from lm_eval_leakage.results.tables import benchmarks
from lm_eval_leakage.results.verdict import Basis, not_judged
from lm_eval_leakage.stats.positive_control import PositiveControl, ratio_at_most


def with_positive(row: Row, audit: Annotation, task: str, control: str) -> Row:
    """Return the row of the task itself with the result of the audit of the positive control.

    control: what it is, in words
    """
    verdict = next((control_row.verdict for control_row in benchmarks(audit.rows) if control_row.task == task), None)
    if verdict is None or row.task != task or row.level == SUBJECT_LEVEL:
        return row
    if verdict.beside is not None and verdict.basis != row.verdict.basis:
        verdict = verdict.beside
    tested, learned = row.verdict.tested, verdict.tested
    positive = PositiveControl(control, verdict.n, learned.mean, learned.mean_error, learned.pvalue)
    if positive.shows_memory:
        bound = ratio_at_most(tested.mean, tested.mean_error, learned.mean, learned.mean_error)
        positive = replace(positive, at_most=bound)
    return replace(row, verdict=replace(row.verdict, positive=positive))


def without_positive(row: Row, why: str, control: str) -> Row:
    """Return the row with the reason why there is no positive control."""
    if not row.verdict.basis or row.level == SUBJECT_LEVEL:
        return row
    return replace(row, verdict=replace(row.verdict, positive=PositiveControl(control, 0, reason=why)))


def with_orders_prevented(row: Row, why: str) -> Row:
    """Return the row with the reason why option orders were not asked, where names were."""
    verdict = row.verdict
    if verdict.basis != Basis.FILLERS or verdict.beside is not None:
        return row
    return replace(row, verdict=replace(verdict, beside=not_judged(why)))


def judged_row(row: Row, why: str, remedy: str, lacking: str, detect: float) -> Row:
    """Return the row with the reason, and what may change it, where there is no verdict.

    An audit whose log has lost questions has none: what is left may be any part. Any other verdict has the share that
    it should be able to find.
    """
    if not row.verdict.basis:  # texts are tested without any orders
        is_part = row.level == SUBJECT_LEVEL or row.group
        return row if is_part else replace(row, verdict=replace(not_judged(why, remedy), texts=row.verdict.texts))
    if lacking:
        return replace(row, verdict=not_judged(lacking))
    return replace(row, verdict=replace(row.verdict, detect=detect)) if row.verdict.basis else row


def why_skipped(annotation: Annotation) -> str:
    """Return why no question has option orders, where the audits say so; empty if one has."""
    questions = annotation.audited_questions
    reasons = [question.reason for question in questions if question.reason]
    if not reasons or any(question.orders or question.fillers for question in questions):
        return ""
    longest = max(reasons, key=window_needed)
    of_longest = f", the longest since {longest}"
    why = of_longest if window_needed(longest) else f": {Counter(reasons).most_common(1)[0][0]}"
    return f"all {counted(len(questions))} were skipped{why}"
