"""Plots of a simulation: curves over exposures, ROC curves, distributions of scores, orders of single questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_binary_file
from lm_eval_leakage.lab.quality_table import Quality, best, halves, sweep
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.results.formatting import counted

# Okabe and Ito's colours, which colour-blind readers can distinguish
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
DETECTORS_SHOWN = 6  # detectors per plot
ORDERS = "leakage_perm"


def write(outcome: Outcome, found: Sequence[Quality], folder: Path) -> None:
    """Writes `auroc.png` and, for K exposures, `roc_K.png`, `scores_K.png` and, for orders, `orders_K.png`."""
    import matplotlib as mpl

    mpl.use("Agg")
    _save(_curves(outcome, found), folder / "auroc.png")
    for exposures in sorted(outcome.audits):
        _save(_roc(outcome, exposures), folder / f"roc_{exposures}.png")
        _save(_distributions(outcome, exposures), folder / f"scores_{exposures}.png")
        if ORDERS in outcome.settings.detectors:
            lines = outcome.audits[exposures].lines(ORDERS)
            _save(_orders(outcome, lines, exposures), folder / f"orders_{exposures}.png")


def _figure(columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=(5.5 * columns, 3.6 * rows), squeeze=False, layout="constrained"
    )
    return figure, axes


def _save(figure: Any, file: Path) -> None:
    from matplotlib import pyplot as plt

    with atomic_binary_file(file) as stream:
        figure.savefig(stream, dpi=120, format="png")
    plt.close(figure)


def _curves(outcome: Outcome, found: Sequence[Quality]) -> Any:
    figure, ((axes,),) = _figure()
    last = max(outcome.audits)
    for colour, name in zip(COLOURS, best(outcome, last, DETECTORS_SHOWN), strict=False):
        own = [quality for quality in found if quality.detector == name]
        exposures = [quality.exposures for quality in own]
        axes.plot(exposures, [quality.auroc.value for quality in own], "o-", color=colour, label=name)
        low, high = [quality.auroc.low for quality in own], [quality.auroc.high for quality in own]
        axes.fill_between(exposures, low, high, color=colour, alpha=0.12)
    axes.axhline(0.5, color="grey", linestyle=":")
    axes.set(xlabel="exposures", ylabel="AUROC", title="trained versus held-out questions")
    axes.legend(fontsize="x-small")
    return figure


def _roc(outcome: Outcome, exposures: int) -> Any:
    figure, ((axes,),) = _figure()
    scores = {detector.name: detector.scores for detector in outcome.detectors[exposures]}
    for colour, name in zip(COLOURS, best(outcome, exposures, DETECTORS_SHOWN), strict=False):
        points = list(sweep(scores[name], outcome))
        x, y = [0.0, *(point["fpr"] for point in points)], [0.0, *(point["tpr"] for point in points)]
        axes.step(x, y, where="post", color=colour, label=name)
    axes.plot([0, 1], [0, 1], ":", color="grey")
    axes.set(
        xlabel="share of held-out questions flagged",
        ylabel="share of trained questions flagged",
        title=counted(exposures, "exposure"),
    )
    axes.legend(fontsize="x-small")
    return figure


def _distributions(outcome: Outcome, exposures: int) -> Any:
    names = best(outcome, exposures, 4)
    scores = {detector.name: detector.scores for detector in outcome.detectors[exposures]}
    figure, axes = _figure(2, max(1, -(-len(names) // 2)))
    for place, name in zip(axes.flat, names, strict=False):
        own, others = halves(scores[name], outcome)
        place.hist([own, others], bins=20, color=COLOURS[1::-1], label=["trained", "held out"])
        place.set(title=name, xlabel="score", ylabel="questions")
        place.legend(fontsize="x-small")
    return figure


def _orders(outcome: Outcome, lines: Sequence[AuditLine], exposures: int) -> Any:
    """The papers' dot-line plot: log-likelihood of every order of a question, with the published order marked."""
    orders = {line.question: line.loglikelihoods for line in lines if not line.reason}
    chosen = [next((name for name in half if name in orders), None) for half in (outcome.trained, outcome.held_out)]
    figure, axes = _figure(2)
    for place, name, half in zip(axes.flat, chosen, ("trained", "held out"), strict=True):
        if name is None:
            continue
        published, *_ = answers = orders[name]
        place.plot(answers, "o-", color=COLOURS[0], markersize=3, linewidth=0.8)
        place.plot(0, published, "D", color=COLOURS[1], label="published order")
        place.set(title=f"{half}: {name}"[:60], xlabel="order", ylabel="log-likelihood, nats")
        place.legend(fontsize="x-small")
    figure.suptitle(counted(exposures, "exposure"))
    return figure
