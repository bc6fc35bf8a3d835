"""Reports the outcome of a simulation as JSON and Markdown: how well each detector separates trained from held-out
questions (AUROC, TPR at fixed FPR)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.lab.detection import Detector
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.results.formatting import (
    DASH,
    Cells,
    counted,
    markdown_of,
    number,
    plus_minus,
    value_in_interval,
)
from lm_eval_leakage.stats.detection_quality import (
    FEWEST_FOR_INTERVAL,
    Confusion,
    Interval,
    auroc_interval,
    tpr_interval,
)
from lm_eval_leakage.stats.pooling import Estimate, mean_and_stderr
from lm_eval_leakage.texts import as_json

T = TypeVar("T")

FPRS = LOW_FPR, FPR_SHOWN = 0.01, 0.05
HALF = 0.5


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
    """The quality of every detector after every number of exposures."""
    for exposures, detectors in sorted(outcome.detectors.items()):
        for detector in detectors:
            yield quality(detector, exposures, outcome.trained, outcome.held_out)


def quality(detector: Detector, exposures: int, trained: Sequence[str], held_out: Sequence[str]) -> Quality:
    own, others = halves(detector.scores, trained, held_out)
    rng = np.random.default_rng(0)
    return Quality(
        detector.name,
        exposures,
        len(own),
        len(others),
        len(detector.skipped),
        None if detector.flags is None else Confusion.of(*halves(detector.flags, trained, held_out)),
        detector.null_rate,
        auroc_interval(own, others),
        {fpr: tpr_interval(own, others, fpr, rng=rng) for fpr in FPRS},
        detector.n_tokens,
        detector.seconds,
    )


def halves(found: Mapping[str, T], trained: Sequence[str], held_out: Sequence[str]) -> tuple[list[T], list[T]]:
    """What was found about the trained and about the held-out questions."""
    return [found[name] for name in trained if name in found], [found[name] for name in held_out if name in found]


def sweep(scores: Mapping[str, float], outcome: Outcome) -> Iterator[dict[str, float]]:
    """TPR and FPR of flagging scores at or above each threshold, from the highest to the lowest."""
    own, others = map(np.array, halves(scores, outcome.trained, outcome.held_out))
    for threshold in np.unique(np.concatenate([own, others]))[::-1].tolist():
        yield {
            "threshold": threshold,
            "tpr": float((own >= threshold).mean()) if len(own) else math.nan,
            "fpr": float((others >= threshold).mean()) if len(others) else math.nan,
        }


def powers(found: Sequence[Quality]) -> dict[str, float | None]:
    """Exposures at which the TPR at 5 % FPR reaches one half, linearly interpolated; None if it never does."""
    return {
        name: reaches_half([(q.exposures, q.tpr[FPR_SHOWN].value) for q in found if q.detector == name])
        for name in dict.fromkeys(quality.detector for quality in found)
    }


def reaches_half(curve: Sequence[tuple[int, float]]) -> float | None:
    """The first crossing of 1/2 by a curve of (exposures, TPR)."""
    x, y = math.nan, math.nan
    for exposures, tpr in sorted(curve):
        if tpr >= HALF:
            return float(exposures) if math.isnan(y) else x + (HALF - y) / (tpr - y) * (exposures - x)
        x, y = exposures, tpr
    return None


# ---------------------------------------------------------------------- tables

TOO_FEW = (
    f"A dash instead of an AUROC or TPR means that fewer than {FEWEST_FOR_INTERVAL} questions of either half have a "
    "score; draw more."
)
HEAD = [
    *("method", "n", "skipped", "flagged, trained", "flagged, held out", "null rate", "AUROC", "TPR at 5 % FPR"),
    *("tokens per question", "seconds per question"),
]


def _row(found: Quality) -> list[str]:
    """Rates flagged by the published rule in both halves, how scores rank them, and the cost."""
    rule = found.rule
    return [
        f"`{found.detector}`",
        f"{found.n_trained} + {found.n_held_out}",
        str(found.n_skipped),
        DASH if rule is None else _rate(rule.true_positives, rule.false_negatives),
        DASH if rule is None else _rate(rule.false_positives, rule.true_negatives),
        number(found.null_rate, 2),
        shown(found.auroc),
        shown(found.tpr[FPR_SHOWN]),
        f"{found.n_tokens:,.0f}",
        f"{found.seconds:.2f}",
    ]


def shown(found: Interval) -> str:
    """`0.90 [0.80, 0.95]`; a dash without an interval, since the value alone would say too much."""
    return DASH if math.isnan(found.low) else value_in_interval(found)


def _rate(flagged: int, others: int) -> str:
    return plus_minus(Estimate(*mean_and_stderr([True] * flagged + [False] * others)), 2)


def _by_exposures(found: Sequence[Quality], shown: Callable[[Quality], str]) -> str:
    exposures = sorted({quality.exposures for quality in found})
    cells = {(quality.detector, quality.exposures): shown(quality) for quality in found}
    names = dict.fromkeys(quality.detector for quality in found)
    rows = [[f"`{name}`", *(cells.get((name, count), "") for count in exposures)] for name in names]
    return markdown_of([["detector", *map(str, exposures)], *rows])


def _rule(quality: Quality) -> str:
    rule = quality.rule
    assert rule is not None, "detectors without a rule have no row here"
    return " / ".join(number(x, 2) for x in (rule.precision, rule.recall, rule.f1, rule.fpr))


def _powers(found: Sequence[Quality]) -> Cells:
    rows = [[f"`{name}`", "not reached" if at is None else f"{at:.1f}"] for name, at in powers(found).items()]
    return [["detector", "exposures"], *rows]


def markdown(outcome: Outcome, found: Sequence[Quality]) -> str:
    """The papers' tables: how well each detector works after each number of exposures."""
    settings = outcome.settings
    parts = [
        f"# How well detectors find {settings.benchmark} in a copy of {settings.model_args} trained on it",
        f"{len(outcome.trained)} questions trained on, {len(outcome.held_out)} held out, of {outcome.n_eligible} "
        f"eligible; seed {settings.seed}. Intervals are 95 % intervals over questions. {TOO_FEW}",
        "## AUROC by exposures",
        _by_exposures(found, lambda quality: shown(quality.auroc)),
        "## TPR at 5 % FPR by exposures",
        _by_exposures(found, lambda quality: shown(quality.tpr[FPR_SHOWN])),
        "## TPR at 1 % FPR by exposures",
        _by_exposures(found, lambda quality: shown(quality.tpr[LOW_FPR])),
        "## The published rules: precision / recall / F1 / FPR",
        _by_exposures([quality for quality in found if quality.rule is not None], _rule),
        "## Exposures at which half of the trained questions would be flagged at 5 % FPR",
        markdown_of(_powers(found)),
    ]
    for exposures in sorted(outcome.audits):
        rows = [_row(quality) for quality in found if quality.exposures == exposures]
        parts += [f"## After {counted(exposures, 'exposure')}", markdown_of([HEAD, *rows])]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- files


def write(outcome: Outcome, folder: Path) -> str:
    """Writes `quality.json` and `report.md` to `folder`; returns the Markdown."""
    found = list(qualities(outcome))
    text = markdown(outcome, found)
    atomic_write(folder / "report.md", text)
    atomic_write(folder / "quality.json", as_json(as_record(outcome, found), indent=1))
    return text


def as_record(outcome: Outcome, found: Sequence[Quality]) -> dict[str, object]:
    """All results, including each detector's rates at every threshold."""
    return {
        "settings": asdict(outcome.settings),
        "trained": outcome.trained,
        "held_out": outcome.held_out,
        "qualities": [asdict(quality) for quality in found],
        "exposures_at_half": powers(found),
        "thresholds": {
            str(exposures): {detector.name: list(sweep(detector.scores, outcome)) for detector in detectors}
            for exposures, detectors in outcome.detectors.items()
        },
    }
