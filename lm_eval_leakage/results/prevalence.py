"""What share of each subject a model has probably seen, and which subjects have more flags than chance gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lm_eval_leakage.results.identify import pvalues_of, scores_of
from lm_eval_leakage.results.samples import judged
from lm_eval_leakage.statistics.known_scores import Calibration
from lm_eval_leakage.statistics.prevalence import (
    Prevalence,
    SubjectVerdict,
    by_subject,
    by_subject_calibrated,
    exact_lower_bound,
    rogan_gladen,
)

ALL = "(all)"


@dataclass(frozen=True)
class SubjectShare:
    """One subject, or ALL of them, as one detector flags it.

    expected: share flagged without leakage
    verdict: p-values of the number of flags; None for ALL, which is not one of the subjects that are compared
    share: estimate of the seen questions
    """

    detector: str
    subject: str
    n_tested: int
    n_flagged: int
    expected: float
    verdict: SubjectVerdict | None
    share: Prevalence


def by_null(folder: Path) -> list[SubjectShare]:
    """By every statistic that has a null hypothesis; its test finds an unknown part of the seen questions, so that the
    share has a lower bound only. Questions whose options have a natural order, which breaks the null, are left out."""
    lines = {
        (line.detector, line.question): line
        for line in judged(folder)
        if line.flagged is not None and line.null_rate is not None and not line.guarded
    }
    if not lines:
        raise ValueError(
            f"{folder} holds no verdict of a statistic with a null hypothesis; run leakage_perm, or give a calibration"
        )
    flags: dict[str, dict[str, list[bool]]] = {}
    rates: dict[str, dict[str, list[float]]] = {}
    for (detector, _), line in lines.items():
        for subject in (ALL, line.subject):
            flags.setdefault(detector, {}).setdefault(subject, []).append(bool(line.flagged))
            rates.setdefault(detector, {}).setdefault(subject, []).append(float(line.null_rate or 0.0))
    found = []
    for detector, own in flags.items():
        verdicts = by_subject({name: own[name] for name in own if name != ALL}, rates[detector])
        for subject, flagged in own.items():
            null = float(np.mean(rates[detector][subject]))
            share = exact_lower_bound(sum(flagged), len(flagged), null)
            found.append(
                SubjectShare(detector, subject, len(flagged), sum(flagged), null, verdicts.get(subject), share)
            )
    return found


def by_calibration(folder: Path, calibration: Calibration, detector: str, fpr: float) -> list[SubjectShare]:
    """By one detector of a calibration, at the threshold that flags `fpr` of the known-unseen questions."""
    scores, lines = scores_of(folder, calibration)
    classes = {name: line.of_class for name, line in lines.items()}
    pvalues = pvalues_of(scores, classes, calibration, detector)
    tpr, observed_fpr = calibration.detectors[detector].flagged(fpr)
    flags: dict[str, list[bool]] = {}
    for name, pvalue in pvalues.items():
        for subject in (ALL, lines[name].subject):
            flags.setdefault(subject, []).append(pvalue <= fpr)
    verdicts = by_subject_calibrated({name: own for name, own in flags.items() if name != ALL}, observed_fpr)
    return [
        SubjectShare(
            detector,
            subject,
            len(own),
            sum(own),
            fpr,
            verdicts.get(subject),
            share_of(own, tpr, observed_fpr),
        )
        for subject, own in flags.items()
    ]


def share_of(flags: Sequence[bool], tpr: tuple[int, int], fpr: tuple[int, int]) -> Prevalence:
    """By a threshold that flags so many of all known-seen and known-unseen questions."""
    if not tpr[1]:  # a control knows no seen questions, and so no TPR
        return exact_lower_bound(sum(flags), len(flags), fpr[0] / fpr[1])
    return rogan_gladen(sum(flags), len(flags), tpr, fpr, rng=np.random.default_rng(0))


def as_table(found: Sequence[SubjectShare]) -> str:
    """Markdown; the subjects with the least p-values first, after all together."""
    rows = sorted(found, key=lambda row: (row.detector, row.verdict is not None, _pvalue(row)))
    parts: Mapping[str, list[str]] = {row.detector: [] for row in rows}
    for row in rows:
        parts[row.detector].append(_line(row))
    head = "| subject | n | flagged | expected | p | p, adjusted | seen share, 95 % |\n|---|---|---|---|---|---|---|"
    return "\n\n".join("\n".join([f"`{detector}`\n", head, *lines]) for detector, lines in parts.items())


def _pvalue(row: SubjectShare) -> float:
    return 0.0 if row.verdict is None else row.verdict.pvalue


def _line(row: SubjectShare) -> str:
    tests = "– | –" if row.verdict is None else f"{row.verdict.pvalue:.2g} | {row.verdict.adjusted:.2g}"
    share = f"{row.share.share:.2f} [{row.share.low:.2f}, {row.share.high:.2f}]"
    return (
        f"| {row.subject} | {row.n_tested} | {row.n_flagged} ({row.n_flagged / row.n_tested:.1%}) | "
        f"{row.expected:.1%} | {tests} | {share} |"
    )
