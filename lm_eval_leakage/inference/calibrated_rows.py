"""Rows of an audit with a calibration, whatever its statistic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lm_eval_leakage.inference.conformal import FEWEST_TO_NAME, from_pvalues
from lm_eval_leakage.inference.known_scores import NOT_CALIBRATED, Calibrated
from lm_eval_leakage.inference.pooling import Verdicts, rate_and_stderr, row_with_error
from lm_eval_leakage.inference.prevalence import FEWEST_FOR_SHARE, Prevalence, share_of
from lm_eval_leakage.records import DeclaredRow

TARGET_FDR = 0.1  # target false discovery rate of `identified_rate`


def _calibrated(verdicts: Verdicts) -> list[Calibrated]:
    """None of them if some are withheld, since a rate over the others is not that of the group."""
    return [] if NOT_CALIBRATED in verdicts else [verdict for verdict in verdicts if isinstance(verdict, Calibrated)]


def _identified(verdicts: Verdicts) -> float:
    pvalues = np.array([calibrated.pvalue for calibrated in _calibrated(verdicts)])
    if len(pvalues) < FEWEST_TO_NAME:
        return math.nan
    return rate_and_stderr(from_pvalues(pvalues, TARGET_FDR).flagged)[0]


def _prevalence(verdicts: Verdicts) -> Prevalence:
    calibrated = _calibrated(verdicts)
    if not calibrated or calibrated[0].of_seen[1] < FEWEST_FOR_SHARE:  # the row is an estimate, not a lower bound
        return Prevalence(math.nan, math.nan, math.nan)
    first = calibrated[0]
    return share_of([verdict.flagged for verdict in calibrated], first.of_seen, first.of_unseen)


_ROWS = (
    row_with_error(
        "calibrated_rate",
        "Share of the tested questions above the calibrated threshold, which flags a share `fpr` of the known-unseen "
        "questions.",
        lambda verdicts: rate_and_stderr([calibrated.flagged for calibrated in _calibrated(verdicts)]),
        per_question=lambda verdict: float(verdict.flagged) if isinstance(verdict, Calibrated) else None,
    ),
    DeclaredRow(
        "identified_rate",
        "Share of the tested questions in a set with a target false discovery rate of 10 % (conformal).",
        _identified,
    ),
    DeclaredRow(
        "prevalence",
        "Estimated share of the benchmark that was seen, from how often known-seen and known-unseen questions are "
        "flagged.",
        lambda verdicts: _prevalence(verdicts).share,
    ),
    DeclaredRow("prevalence_low", "Lower end of its 95 % interval.", lambda verdicts: _prevalence(verdicts).low),
    DeclaredRow("prevalence_high", "Upper end of its 95 % interval.", lambda verdicts: _prevalence(verdicts).high),
)
CALIBRATED_ROWS = tuple(replace(row, questions="calibrated") for row in _ROWS)
