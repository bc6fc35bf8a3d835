"""How well each detector separates trained from held-out questions (AUROC, TPR at fixed FPR), as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lm_eval_leakage.inference.combined import FOLDS, cross_validated
from lm_eval_leakage.inference.detection_quality import (
    FEWEST_FOR_INTERVAL,
    Confusion,
    Interval,
    auroc,
    auroc_interval,
    tpr_interval,
)
from lm_eval_leakage.inference.pooling import Estimate, rate_and_stderr
from lm_eval_leakage.lab.detection import Detector
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.results.formatting import DASH, number, plus_minus, value_in_interval

FPRS = (0.01, 0.05)
COMBINED_HEADING = "combined (cross-validated)"


@dataclass(frozen=True)
class Quality:
    """The quality of one detector after one number of exposures.

    rule: quality of the published rule's decisions; None if there is no rule
    tpr: true-positive rate at each false-positive rate in FPRS
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
    """The quality of every detector, and of all combined, after every number of exposures."""
    for exposures, detectors in sorted(outcome.detectors.items()):
        together = combined(detectors, outcome.trained, outcome.held_out)
        for detector in detectors if together is None else [*detectors, together]:
            yield quality(detector, exposures, outcome.trained, outcome.held_out)


def combined(detectors: Sequence[Detector], trained: Sequence[str], held_out: Sequence[str]) -> Detector | None:
    """The cross-validated combined score of all detectors of single questions; None if there is only one, or too few
    questions for cross-validation."""
    scores, labels = scores_of_all(detectors, trained, held_out)
    if len(scores) < 2 or min(len(trained), len(held_out)) < FOLDS:
        return None
    try:
        probabilities = cross_validated(scores, labels)
    except ValueError:  # too few questions have a score
        return None
    costs = {detector.audit: (detector.n_tokens, detector.seconds) for detector in detectors}
    return Detector(
        COMBINED_HEADING,
        "",
        dict(zip((*trained, *held_out), probabilities.tolist(), strict=True)),
        None,
        None,
        {},
        sum(n_tokens for n_tokens, _ in costs.values()),
        sum(seconds for _, seconds in costs.values()),
    )


def scores_of_all(
    detectors: Sequence[Detector], trained: Sequence[str], held_out: Sequence[str]
) -> tuple[dict[str, list[float]], list[bool]]:
    """Scores by detector, in the given order of the questions, and which of these were trained on. NaN if a question
    could not be tested; tests of question order, which have no score per question, are left out."""
    names = (*trained, *held_out)
    scores = {
        detector.name: [detector.scores.get(name, math.nan) for name in names]
        for detector in detectors
        if len(detector.scores) + len(detector.skipped) == len(names)
    }
    return scores, [True] * len(trained) + [False] * len(held_out)


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
        auroc_interval(own, others),
        {fpr: tpr_interval(own, others, fpr, rng=rng) for fpr in FPRS},
        detector.n_tokens,
        detector.seconds,
    )


TOO_FEW = (
    f"A dash instead of an AUROC or TPR means that fewer than {FEWEST_FOR_INTERVAL} questions of either half have a "
    "score; draw more."
)
HEAD = (
    "| method | n | skipped | flagged, trained | flagged, held out | null rate | AUROC | TPR at 5 % FPR | "
    "tokens per question | seconds per question |\n|---|---|---|---|---|---|---|---|---|---|"
)


def methods_table(found: Sequence[Quality]) -> str:
    """One row per method: rates flagged by the published rule in both halves, how scores rank them, and the cost."""
    return "\n".join([HEAD, *map(_row, found)])


def shown(found: Interval) -> str:
    """`0.90 [0.80, 0.95]`; a dash without an interval, since the value alone would say too much."""
    return DASH if math.isnan(found.low) else value_in_interval(found)


def _row(found: Quality) -> str:
    rule = found.rule
    trained, held_out = DASH, DASH
    if rule is not None:
        trained = _rate(rule.true_positives, rule.false_negatives)
        held_out = _rate(rule.false_positives, rule.true_negatives)
    null = number(found.null_rate, 2)
    n_questions = f"{found.n_trained} + {found.n_held_out}"
    power = f"{shown(found.auroc)} | {shown(found.tpr[0.05])}"
    return (
        f"| `{found.detector}` | {n_questions} | {found.n_skipped} | {trained} | {held_out} | {null} "
        f"| {power} | {found.n_tokens:,.0f} | {found.seconds:.2f} |"
    )


def _rate(flagged: int, others: int) -> str:
    rate, error = rate_and_stderr([True] * flagged + [False] * others)
    return plus_minus(Estimate(rate, error), 2)


def sweep(scores: Mapping[str, float], outcome: Outcome) -> Iterator[dict[str, float]]:
    """TPR and FPR of flagging scores at or above each threshold, from the highest to the lowest."""
    own, others = halves(scores, outcome)
    for threshold in np.unique(np.concatenate([own, others]))[::-1].tolist():
        yield {
            "threshold": threshold,
            "tpr": float((own >= threshold).mean()) if len(own) else math.nan,
            "fpr": float((others >= threshold).mean()) if len(others) else math.nan,
        }


def halves(scores: Mapping[str, float], outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the trained and of the held-out questions."""
    own, others = ([scores[n] for n in names if n in scores] for names in (outcome.trained, outcome.held_out))
    return np.array(own), np.array(others)


def best(outcome: Outcome, exposures: int, count: int) -> list[str]:
    """The `count` detectors with the highest AUROC."""
    found = {d.name: auroc(*halves(d.scores, outcome)) for d in outcome.detectors[exposures]}
    return sorted(found, key=lambda name: -found[name])[:count]
