"""Applies `inference.withheld` to the lines of audits."""

from __future__ import annotations

from collections.abc import Iterable

from lm_eval_leakage.inference.known_scores import Calibration
from lm_eval_leakage.inference.withheld import why_withheld
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.questions.described import described
from lm_eval_leakage.records import Described


def described_lines(lines: Iterable[AuditLine]) -> Described:
    """What the questions of these lines are like, each question once; those that cannot be read are left out."""
    once = {line.question: line for line in lines if line.read is not None}
    return described((line.read, line.guarded) for line in once.values() if line.read is not None)


def refuse_withheld(calibration: Calibration, lines: Iterable[AuditLine]) -> None:
    """Raises ValueError, with the remedy, if the calibration allows no statement about what was seen."""
    if reason := why_withheld(calibration, described_lines(lines)):
        raise ValueError(reason)
