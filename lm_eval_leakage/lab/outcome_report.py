"""Reports the outcome of a simulation as JSON, Markdown and plots."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.inference.exchangeability import exchangeability
from lm_eval_leakage.lab import plots
from lm_eval_leakage.lab.calibrate import from_control, from_held_out
from lm_eval_leakage.lab.detection import Audits
from lm_eval_leakage.lab.quality_table import FPRS, TOO_FEW, Quality, methods_table, qualities, shown, sweep
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.logs.calibration_file import write_calibration
from lm_eval_leakage.questions.described import described
from lm_eval_leakage.results.formatting import counted, number, pvalue

HALF = 0.5
LOW_FPR, FPR_SHOWN = FPRS


def write(outcome: Outcome, folder: Path) -> str:
    """Writes `quality.json`, `report.md`, calibration files and plots to `folder`; returns the Markdown."""
    found = list(qualities(outcome))
    text = markdown(outcome, found)
    atomic_write(folder / "report.md", text)
    atomic_write(folder / "quality.json", json.dumps(as_json(outcome, found), indent=1))
    for exposures in outcome.settings.epochs:
        write_calibration(folder / f"calibration_{exposures}.json", from_held_out(outcome, exposures))
    if outcome.control is not None:
        write_calibration(folder / "calibration_control.json", from_control(outcome.control, outcome))
    plots.write(outcome, found, folder)
    return text


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
        _powers(found),
    ]
    if outcome.control is not None:
        parts += [f"## Is {settings.control} similar to the benchmark?", _kinds(outcome, outcome.control)]
    for exposures in sorted(outcome.audits):
        parts += [
            f"## After {counted(exposures, 'exposure')}",
            methods_table([q for q in found if q.exposures == exposures]),
        ]
    return "\n\n".join(parts) + "\n"


def _by_exposures(found: Sequence[Quality], shown: Callable[[Quality], str]) -> str:
    exposures = sorted({quality.exposures for quality in found})
    cells = {(quality.detector, quality.exposures): shown(quality) for quality in found}
    head = f"| detector | {' | '.join(map(str, exposures))} |\n" + "|---" * (len(exposures) + 1) + "|"
    rows = [
        f"| `{name}` | " + " | ".join(cells.get((name, count), "") for count in exposures) + " |"
        for name in dict.fromkeys(quality.detector for quality in found)
    ]
    return "\n".join([head, *rows])


def _rule(quality: Quality) -> str:
    rule = quality.rule
    assert rule is not None, "detectors without a rule have no row here"
    return " / ".join(number(x, 2) for x in (rule.precision, rule.recall, rule.f1, rule.fpr))


def powers(found: Sequence[Quality]) -> dict[str, float | None]:
    """Exposures at which the TPR at 5 % FPR reaches one half, linearly interpolated; None if it never does."""
    return {
        name: reaches_half([(q.exposures, q.tpr[FPR_SHOWN].value) for q in found if q.detector == name])
        for name in dict.fromkeys(quality.detector for quality in found)
    }


def reaches_half(curve: Sequence[tuple[int, float]]) -> float | None:
    """The first crossing of 1/2 by a curve of (exposures, TPR)."""
    before: tuple[int, float] | None = None
    for exposures, tpr in sorted(curve):
        if tpr >= HALF:
            if before is None or math.isnan(before[1]):
                return float(exposures)
            (x, y) = before
            return x + (HALF - y) / (tpr - y) * (exposures - x)
        before = (exposures, tpr)
    return None


def _kinds(outcome: Outcome, control: Audits) -> str:
    """Whether control questions are exchangeable with the benchmark's, in properties that leakage cannot change."""
    both = [described((question, False) for question in one.questions) for one in (control, outcome.audits[0])]
    found = exchangeability(*(one.properties for one in both), rng=np.random.default_rng(0))
    rows = [f"| {one.name} | {one.unseen:.3g} | {one.asked:.3g} | {pvalue(one.adjusted)} |" for one in found]
    return "\n".join(
        [
            "Medians (of shares: means) and permutation p-values, adjusted for the number of properties. A small one "
            "means that the control differs from the benchmark, so that `calibration_control.json` is not used.\n",
            "| property | control | benchmark | p |\n|---|---|---|---|",
            *rows,
        ]
    )


def _powers(found: Sequence[Quality]) -> str:
    rows = [f"| `{name}` | {'not reached' if at is None else f'{at:.1f}'} |" for name, at in powers(found).items()]
    return "\n".join(["| detector | exposures |\n|---|---|", *rows])


def as_json(outcome: Outcome, found: Sequence[Quality]) -> dict[str, object]:
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
