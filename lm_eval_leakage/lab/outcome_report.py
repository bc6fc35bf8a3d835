"""Reports the outcome of a simulation as JSON and Markdown: how well each detector separates trained from held-out
questions (AUROC, TPR at a fixed FPR)."""

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
from lm_eval_leakage.results.formatting import DASH, counted, number, plus_minus, value_in_interval
from lm_eval_leakage.results.tabulating import Cells, markdown_of
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
TOO_FEW = (
    f"A dash instead of an AUROC or TPR means that fewer than {FEWEST_FOR_INTERVAL} questions of either half have a "
    "score; draw more."
)
HEAD = [
    *("method", "n", "skipped", "flagged, trained", "flagged, held out", "null rate", "AUROC", "TPR at 5 % FPR"),
    *("tokens per question", "seconds per question"),
]


@dataclass(frozen=True)
class Quality:
    """The quality of one detector after one number of exposures; counts and rates are over questions.

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
    """Yield the quality of every detector after every number of exposures."""
    for exposures, detectors in sorted(outcome.detectors.items()):
        for detector in detectors:
            yield quality(detector, exposures, outcome.trained, outcome.held_out)


def quality(detector: Detector, exposures: int, trained: Sequence[str], held_out: Sequence[str]) -> Quality:
    """Return the quality of a detector, given the ids of the trained and of the held-out questions."""
    positives, negatives = halves(detector.scores, trained, held_out)
    rng = np.random.default_rng(0)
    return Quality(
        detector.name,
        exposures,
        len(positives),
        len(negatives),
        len(detector.skipped),
        None if detector.flags is None else Confusion.of(*halves(detector.flags, trained, held_out)),
        detector.null_rate,
        auroc_interval(positives, negatives),
        {fpr: tpr_interval(positives, negatives, fpr, rng=rng) for fpr in FPRS},
        detector.n_tokens,
        detector.seconds,
    )


def halves(values: Mapping[str, T], trained: Sequence[str], held_out: Sequence[str]) -> tuple[list[T], list[T]]:
    """Return the values of the trained and of the held-out questions, where there are any."""
    return [values[name] for name in trained if name in values], [values[name] for name in held_out if name in values]


def sweep(scores: Mapping[str, float], outcome: Outcome) -> Iterator[dict[str, float]]:
    """Yield TPR and FPR of flagging scores at or above each threshold, from the highest to the lowest."""
    positives, negatives = map(np.array, halves(scores, outcome.trained, outcome.held_out))
    for threshold in np.unique(np.concatenate([positives, negatives]))[::-1].tolist():
        yield {
            "threshold": threshold,
            "tpr": float((positives >= threshold).mean()) if len(positives) else math.nan,
            "fpr": float((negatives >= threshold).mean()) if len(negatives) else math.nan,
        }


def powers(results: Sequence[Quality]) -> dict[str, float | None]:
    """Return, by detector, the number of exposures at which the TPR at 5 % FPR reaches one half, linearly
    interpolated; None if it never does."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        curves.setdefault(result.detector, []).append((result.exposures, result.tpr[FPR_SHOWN].value))
    return {name: reaches_half(curve) for name, curve in curves.items()}


def reaches_half(curve: Sequence[tuple[int, float]]) -> float | None:
    """Return the exposures at which a curve of (exposures, TPR) first crosses 1/2; None if it never does."""
    x, y = math.nan, math.nan
    for exposures, tpr in sorted(curve):
        if tpr >= HALF:
            return float(exposures) if math.isnan(y) else x + (HALF - y) / (tpr - y) * (exposures - x)
        x, y = exposures, tpr
    return None


# ---------------------------------------------------------------------- tables


def _row(result: Quality) -> list[str]:
    """Return the cells of a row: rates of the published rule in both halves, quality of the scores, and cost."""
    rule = result.rule
    return [
        f"`{result.detector}`",
        f"{result.n_trained} + {result.n_held_out}",
        str(result.n_skipped),
        DASH if rule is None else _rate(rule.true_positives, rule.false_negatives),
        DASH if rule is None else _rate(rule.false_positives, rule.true_negatives),
        number(result.null_rate, 2),
        shown(result.auroc),
        shown(result.tpr[FPR_SHOWN]),
        f"{result.n_tokens:,.0f}",
        f"{result.seconds:.2f}",
    ]


def shown(interval: Interval) -> str:
    """Return a text such as `0.90 [0.80, 0.95]`; a dash without ends, since the value alone would say too much."""
    return DASH if math.isnan(interval.low) else value_in_interval(interval)


def _rate(flagged: int, others: int) -> str:
    return plus_minus(Estimate(*mean_and_stderr([True] * flagged + [False] * others)), 2)


def _by_exposures(results: Sequence[Quality], cell: Callable[[Quality], str]) -> str:
    """Return a Markdown table with a row per detector and a column per number of exposures."""
    exposures = sorted({result.exposures for result in results})
    cells = {(result.detector, result.exposures): cell(result) for result in results}
    names = dict.fromkeys(result.detector for result in results)
    rows = [[f"`{name}`", *(cells.get((name, count), "") for count in exposures)] for name in names]
    return markdown_of([["detector", *map(str, exposures)], *rows])


def _rule(result: Quality) -> str:
    rule = result.rule
    assert rule is not None, "detectors without a rule have no row here"
    return " / ".join(number(x, 2) for x in (rule.precision, rule.recall, rule.f1, rule.fpr))


def _powers(results: Sequence[Quality]) -> Cells:
    rows = [[f"`{name}`", "not reached" if at is None else f"{at:.1f}"] for name, at in powers(results).items()]
    return [["detector", "exposures"], *rows]


def markdown(outcome: Outcome, results: Sequence[Quality]) -> str:
    """Return the papers' tables, which show how well each detector works after each number of exposures."""
    settings = outcome.settings
    parts = [
        f"# How well detectors find {settings.benchmark} in a copy of {settings.model_args} trained on it",
        f"{len(outcome.trained)} questions trained on, {len(outcome.held_out)} held out, of {outcome.n_eligible} "
        f"eligible; seed {settings.seed}. Intervals are 95 % intervals over questions. {TOO_FEW}",
        "## AUROC by exposures",
        _by_exposures(results, lambda result: shown(result.auroc)),
        "## TPR at 5 % FPR by exposures",
        _by_exposures(results, lambda result: shown(result.tpr[FPR_SHOWN])),
        "## TPR at 1 % FPR by exposures",
        _by_exposures(results, lambda result: shown(result.tpr[LOW_FPR])),
        "## The published rules: precision / recall / F1 / FPR",
        _by_exposures([result for result in results if result.rule is not None], _rule),
        "## Exposures at which half of the trained questions would be flagged at 5 % FPR",
        markdown_of(_powers(results)),
    ]
    for exposures in sorted(outcome.audits):
        rows = [_row(result) for result in results if result.exposures == exposures]
        parts += [f"## After {counted(exposures, 'exposure')}", markdown_of([HEAD, *rows])]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- files


def write_report(outcome: Outcome, folder: Path) -> str:
    """Write `quality.json` and `report.md` to `folder`, and return the Markdown."""
    results = list(qualities(outcome))
    text = markdown(outcome, results)
    atomic_write(folder / "report.md", text)
    atomic_write(folder / "quality.json", as_json(outcome_record(outcome, results), indent=1))
    return text


def outcome_record(outcome: Outcome, results: Sequence[Quality]) -> dict[str, object]:
    """Return all results as JSON values, including each detector's rates at every threshold."""
    return {
        "settings": asdict(outcome.settings),
        "trained": outcome.trained,
        "held_out": outcome.held_out,
        "qualities": [asdict(result) for result in results],
        "exposures_at_half": powers(results),
        "thresholds": {
            str(exposures): {detector.name: list(sweep(detector.scores, outcome)) for detector in detectors}
            for exposures, detectors in outcome.detectors.items()
        },
    }
