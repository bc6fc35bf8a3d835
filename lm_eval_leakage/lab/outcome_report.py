"""Reports the outcome of a simulation as JSON, Markdown and plots: how well each detector separates trained from
held-out questions (AUROC, TPR at fixed FPR)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lm_eval_leakage.files import atomic_binary_file, atomic_write
from lm_eval_leakage.lab.detection import Audits, Detector
from lm_eval_leakage.lab.simulation import Outcome, combined_scores, from_control, from_held_out
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.calibration_file import write_calibration
from lm_eval_leakage.questions.families import described
from lm_eval_leakage.results.formatting import (
    DASH,
    Cells,
    counted,
    markdown_of,
    number,
    plus_minus,
    pvalue,
    value_in_interval,
)
from lm_eval_leakage.stats.combined import (
    FEWEST_FOR_INTERVAL,
    Confusion,
    Interval,
    auroc,
    auroc_interval,
    tpr_interval,
)
from lm_eval_leakage.stats.known_scores import exchangeability
from lm_eval_leakage.stats.pooling import Estimate, mean_and_stderr

# Okabe and Ito's colours, which colour-blind readers can distinguish
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DETECTORS_SHOWN = 6  # detectors per plot
ORDERS = "leakage_perm"


T = TypeVar("T")

FPRS = LOW_FPR, FPR_SHOWN = 0.01, 0.05
HALF = 0.5
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
        for detector in [*detectors, *combined(detectors, outcome.trained, outcome.held_out)]:
            yield quality(detector, exposures, outcome.trained, outcome.held_out)


def combined(detectors: Sequence[Detector], trained: Sequence[str], held_out: Sequence[str]) -> Iterator[Detector]:
    """The cross-validated combined score of all detectors of single questions, if there are two of them and enough
    questions. Tests of question order have no score per question."""
    n_questions = len(trained) + len(held_out)
    scores = {one.name: one.scores for one in detectors if len(one.scores) + len(one.skipped) == n_questions}
    found = combined_scores(scores, trained, held_out) if len(scores) > 1 else None
    if found is not None:
        costs = {one.audit: (one.n_tokens, one.seconds) for one in detectors}
        yield Detector(COMBINED_HEADING, "", found[1], None, None, {}, *map(sum, zip(*costs.values(), strict=True)))


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


def best(outcome: Outcome, exposures: int, count: int) -> list[Detector]:
    """The `count` detectors with the highest AUROC."""

    def quality(detector: Detector) -> float:
        return auroc(*map(np.array, halves(detector.scores, outcome.trained, outcome.held_out)))

    return sorted(outcome.detectors[exposures], key=quality, reverse=True)[:count]


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


def _kinds(outcome: Outcome, control: Audits) -> Cells:
    """Whether control questions are exchangeable with the benchmark's, in properties that leakage cannot change."""
    both = [described((question, False) for question in one.questions) for one in (control, outcome.audits[0])]
    found = exchangeability(*(one.properties for one in both), rng=np.random.default_rng(0))
    rows = [[one.name, f"{one.unseen:.3g}", f"{one.asked:.3g}", pvalue(one.adjusted)] for one in found]
    return [["property", "control", "benchmark", "p"], *rows]


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
    if outcome.control is not None:
        parts += [
            f"## Is {settings.control} similar to the benchmark?",
            "Medians (of shares: means) and permutation p-values, adjusted for the number of properties. A small one "
            "means that the control differs from the benchmark, so that `calibration_control.json` is not used.",
            markdown_of(_kinds(outcome, outcome.control)),
        ]
    for exposures in sorted(outcome.audits):
        rows = [_row(quality) for quality in found if quality.exposures == exposures]
        parts += [f"## After {counted(exposures, 'exposure')}", markdown_of([HEAD, *rows])]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------------- files


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
    write_plots(outcome, found, folder)
    return text


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


def write_plots(outcome: Outcome, found: Sequence[Quality], folder: Path) -> None:
    """Writes `auroc.png` and, for K exposures, `roc_K.png`, `scores_K.png` and, for orders, `orders_K.png`."""
    _save(_curves(outcome, found), folder / "auroc.png")
    for exposures in sorted(outcome.audits):
        _save(_roc(outcome, exposures), folder / f"roc_{exposures}.png")
        _save(_distributions(outcome, exposures), folder / f"scores_{exposures}.png")
        if ORDERS in outcome.settings.detectors:
            lines = outcome.audits[exposures].lines(ORDERS)
            _save(_orders(outcome, lines, exposures), folder / f"orders_{exposures}.png")


def _figure(columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """A figure and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * columns, 3.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False).flat


def _save(figure: Any, file: Path) -> None:
    for axes in figure.axes:
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="x-small")
    with atomic_binary_file(file) as stream:
        figure.savefig(stream, dpi=120, format="png")


def _curves(outcome: Outcome, found: Sequence[Quality]) -> Any:
    figure, (axes,) = _figure()
    for colour, detector in zip(COLOURS, best(outcome, max(outcome.audits), DETECTORS_SHOWN), strict=False):
        own = [quality for quality in found if quality.detector == detector.name]
        exposures = [quality.exposures for quality in own]
        axes.plot(exposures, [quality.auroc.value for quality in own], "o-", color=colour, label=detector.name)
        low, high = [quality.auroc.low for quality in own], [quality.auroc.high for quality in own]
        axes.fill_between(exposures, low, high, color=colour, alpha=0.12)
    axes.axhline(0.5, color="grey", linestyle=":")
    axes.set(xlabel="exposures", ylabel="AUROC", title="trained versus held-out questions")
    return figure


def _roc(outcome: Outcome, exposures: int) -> Any:
    figure, (axes,) = _figure()
    for colour, detector in zip(COLOURS, best(outcome, exposures, DETECTORS_SHOWN), strict=False):
        points = list(sweep(detector.scores, outcome))
        x, y = [0.0, *(point["fpr"] for point in points)], [0.0, *(point["tpr"] for point in points)]
        axes.step(x, y, where="post", color=colour, label=detector.name)
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.set(
        xlabel="share of held-out questions flagged",
        ylabel="share of trained questions flagged",
        title=counted(exposures, "exposure"),
    )
    return figure


def _distributions(outcome: Outcome, exposures: int) -> Any:
    detectors = best(outcome, exposures, 4)
    figure, axes = _figure(2, max(1, -(-len(detectors) // 2)))
    for place, detector in zip(axes, detectors, strict=False):
        own, others = halves(detector.scores, outcome.trained, outcome.held_out)
        place.hist([own, others], bins=20, color=COLOURS[1::-1], label=["trained", "held out"])
        place.set(title=detector.name, xlabel="score", ylabel="questions")
    return figure


def _orders(outcome: Outcome, lines: Sequence[AuditLine], exposures: int) -> Any:
    """The papers' dot-line plot: log-likelihood of every order of a question, with the published order marked."""
    orders = {line.question: line.loglikelihoods for line in lines if not line.reason}
    chosen = [next((name for name in half if name in orders), None) for half in (outcome.trained, outcome.held_out)]
    figure, axes = _figure(2)
    for place, name, half in zip(axes, chosen, ("trained", "held out"), strict=True):
        if name is None:
            continue
        published, *_ = answers = orders[name]
        place.plot(answers, "o-", color=COLOURS[0], markersize=3, linewidth=0.8)
        place.plot(0, published, "D", color=COLOURS[1], label="published order")
        place.set(title=f"{half}: {name}"[:60], xlabel="order", ylabel="log-likelihood, nats")
    figure.suptitle(counted(exposures, "exposure"))
    return figure
