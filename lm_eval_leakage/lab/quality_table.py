"""How well each detector told trained questions from held-out ones, as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from lm_eval_leakage.lab.detection import Detector
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.statistics.calibration import rate_and_stderr
from lm_eval_leakage.statistics.detection_quality import Confusion, Interval, auroc, bootstrap, tpr_at_fpr

FPRS = (0.01, 0.05)


@dataclass(frozen=True)
class Quality:
    """One detector after one number of exposures.

    rule: decisions of the published rule, None where there is none
    tpr: at each FPR of FPRS
    """

    detector: str
    exposures: int
    n_trained: int
    n_held_out: int
    n_skipped: int
    rule: Confusion | None
    null_rate: float | None
    auroc: Interval
    tpr: Mapping[float, Interval]
    n_tokens: float
    seconds: float


def qualities(outcome: Outcome) -> Iterator[Quality]:
    """Of every detector after every number of exposures."""
    for exposures, detectors in sorted(outcome.detectors.items()):
        for detector in detectors:
            yield quality(detector, exposures, outcome.trained, outcome.held_out)


def quality(detector: Detector, exposures: int, trained: Sequence[str], held_out: Sequence[str]) -> Quality:
    own = [detector.scores[name] for name in trained if name in detector.scores]
    others = [detector.scores[name] for name in held_out if name in detector.scores]
    rng = np.random.default_rng(0)
    rule = None
    if detector.flags is not None:
        flags = detector.flags
        rule = Confusion.of(
            [flags[name] for name in trained if name in flags], [flags[name] for name in held_out if name in flags]
        )
    return Quality(
        detector.name,
        exposures,
        len(own),
        len(others),
        len(detector.skipped),
        rule,
        detector.null_rate,
        bootstrap(auroc, own, others, rng=rng),
        {fpr: bootstrap(partial(tpr_at_fpr, fpr=fpr), own, others, rng=rng) for fpr in FPRS},
        detector.n_tokens,
        detector.seconds,
    )


HEAD = (
    "| method | n | skipped | flagged, trained | flagged, untrained | by its null | AUROC | TPR at 5 % FPR | "
    "tokens a question | seconds a question |\n|---|---|---|---|---|---|---|---|---|---|"
)


def methods_table(found: Sequence[Quality]) -> str:
    """One row a method: what the published rule flags of both halves, how the scores rank them, and the price."""
    return "\n".join([HEAD, *map(_row, found)])


def _row(found: Quality) -> str:
    rule = found.rule
    trained, held_out = ("–", "–")
    if rule is not None:
        trained = _rate(rule.true_positives, rule.false_negatives)
        held_out = _rate(rule.false_positives, rule.true_negatives)
    null = "–" if found.null_rate is None or math.isnan(found.null_rate) else f"{found.null_rate:.2f}"
    n_questions = f"{found.n_trained} + {found.n_held_out}"
    return (
        f"| `{found.detector}` | {n_questions} | {found.n_skipped} | {trained} | {held_out} | {null} "
        f"| {found.auroc} | {found.tpr[0.05]} | {found.n_tokens:,.0f} | {found.seconds:.2f} |"
    )


def _rate(flagged: int, others: int) -> str:
    rate, error = rate_and_stderr([True] * flagged + [False] * others)
    return f"{rate:.2f} ± {error:.2f}"
