"""Do calibrated rates and sets keep their error rates, and whose scores may they be calibrated with?

    lm-eval-leakage simulate --model_args pretrained=HuggingFaceTB/SmolLM2-135M --tasks mmlu --n_questions 200 \
        --epochs 1,2,3,5 --audits leakage_perm,leakage_tokens --output_path LAB
    python benchmarks/calibration_transfer.py LAB [LAB ...]

The audited model is the one after each number of exposures. In every trial half of the held-out questions are
known-unseen; the others and the trained ones are asked. The known scores are either the audited model's own (`own`),
or those of another number of exposures of the same simulation, that is of a copy. Without the rule that rates and sets
come from own scores alone, each cell of a copy is what would have been printed.

Then: can a test of the scores themselves tell which copy's scores carry over? Those below the copy's median are
compared with the asked ones below it, since seen questions have high scores; a copy is accepted if p > .05.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import binom, ks_2samp

from lm_eval_leakage.lab.detection import read_lines
from lm_eval_leakage.results.formatting import markdown_of
from lm_eval_leakage.stats.conformal import conformal_pvalues, from_pvalues
from lm_eval_leakage.stats.known_scores import EVERY_CLASS, KnownScores, by_class

FPR, FDR, N_TRIALS, ACCEPTED = 0.05, 0.1, 200, 0.05
AUDITS = ("leakage_perm", "leakage_tokens")
Scores = Mapping[str, float]  # of one detector after some exposures, by question
Classes = Mapping[str, str]  # by question


@dataclass(frozen=True)
class Cell:
    """Means over trials, of one audited model and one set of known scores.

    fpr: share of the asked unseen questions that are flagged
    mistakes: share of unseen questions among those named by a set, 0 if it names none
    named: share of trials in which the set names a question
    accepted: share of trials in which the test of the scores accepts the known ones
    fpr_if_accepted: `fpr` of those
    """

    fpr: float
    mistakes: float
    named: float
    accepted: float
    fpr_if_accepted: float


def cell(audited: Scores, known: Scores, trained: list[str], held_out: list[str], classes: Classes) -> Cell:
    """trained: those that the audited model has seen; none before any training"""
    rng = np.random.default_rng(0)
    found = [
        _trial(audited, known, set(trained), rng.permutation(held_out).tolist(), classes) for _ in range(N_TRIALS)
    ]
    fpr, mistakes, named, accepted = np.array(found).T
    if_accepted = float(fpr[accepted > 0].mean()) if accepted.any() else float("nan")
    return Cell(fpr.mean(), mistakes.mean(), named.mean(), accepted.mean(), if_accepted)


def _trial(
    audited: Scores, known: Scores, seen: set[str], held_out: list[str], classes: Classes
) -> tuple[float, float, float, float]:
    known_unseen = held_out[: len(held_out) // 2]
    unseen = KnownScores(by_class({name: known[name] for name in known_unseen}, classes), ())
    left_out = {*known_unseen, *(name for name in audited if unseen.compared_with(classes[name]) is None)}
    asked = [name for name in audited if name not in left_out]
    is_unseen, scores = np.array([name not in seen for name in asked]), np.array([audited[name] for name in asked])
    groups = np.array([unseen.compared_with(classes[name]) for name in asked])
    pvalues = np.ones(len(asked))
    for name, own in unseen.groups.items():
        if (groups == name).any():
            pvalues[groups == name] = conformal_pvalues(scores[groups == name], own)
    named = np.array(from_pvalues(pvalues, FDR).flagged)
    mistakes = (named & is_unseen).sum() / max(1, named.sum())
    accepted = _is_alike(scores, np.array(unseen.unseen[EVERY_CLASS]))
    return float((pvalues <= FPR)[is_unseen].mean()), mistakes, float(named.any()), float(accepted)


def _is_alike(asked: np.ndarray, unseen: np.ndarray) -> bool:
    median = np.median(unseen)
    below, asked_below = unseen[unseen <= median], asked[asked <= median]
    return len(asked_below) > 0 and bool(ks_2samp(below, asked_below).pvalue > ACCEPTED)


def read(lab: Path) -> tuple[dict[str, dict[int, Scores]], Classes]:
    """Scores by detector and exposures, of the detectors that every number of exposures has; classes of questions."""
    folders = {int(folder.name.split("_")[1]): folder for folder in lab.glob("audits_*")}
    found: dict[str, dict[int, dict[str, float]]] = {}
    classes: dict[str, str] = {}
    for exposures, folder in sorted(folders.items()):
        for audit in AUDITS:
            for line in read_lines(folder / audit) if (folder / audit).exists() else []:
                classes[line.question] = line.of_class
                for name, score in line.scores.items():
                    found.setdefault(name, {}).setdefault(exposures, {})[line.question] = score
    return {name: own for name, own in found.items() if len(own) == len(folders)}, classes


def tables(lab: Path, detectors: list[str]) -> Iterator[str]:
    quality = json.loads((lab / "quality.json").read_text(encoding="utf-8"))
    trained, held_out = quality["trained"], quality["held_out"]
    low, high = binom.interval(0.95, len(held_out), FPR)
    bounds = f"[{low / len(held_out):.2f}, {high / len(held_out):.2f}]"
    found, classes = read(lab)
    for name, scores in found.items():
        if detectors and name not in detectors:
            continue
        cells = {
            (audited, known): cell(scores[audited], scores[known], trained if audited else [], held_out, classes)
            for audited in scores
            for known in scores
        }
        yield f"\n### `{name}`\n\nFPR for {FPR:.0%} (of {len(held_out)} questions: {bounds}):\n"
        yield _matrix(scores, cells, lambda one: f"{one.fpr:.3f}")
        yield f"\nShare of mistakes in sets with a target FDR of {FDR:.0%} (share of trials that name any):\n"
        yield _matrix(scores, cells, lambda one: f"{one.mistakes:.2f} ({one.named:.2f})")
        yield "\nShare of trials in which the test accepts the known scores, and the FPR if it does:\n"
        yield _matrix(scores, cells, lambda one: f"{one.accepted:.2f}: {one.fpr_if_accepted:.3f}")


def _matrix(scores: Mapping[int, Scores], cells: Mapping[tuple[int, int], Cell], shown) -> str:  # type: ignore[no-untyped-def]
    head = ["audited after", "own", *(f"copy, {known}" for known in scores)]
    rows = [
        [f"{audited} exposures", shown(cells[audited, audited])]
        + ["" if known == audited else shown(cells[audited, known]) for known in scores]
        for audited in scores
    ]
    return markdown_of([head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labs", type=Path, nargs="+", metavar="LAB", help="output folder of `simulate`")
    parser.add_argument("--detectors", default="", help="names of scores, separated by commas (default: all)")
    args = parser.parse_args()
    for lab in args.labs:
        print(f"\n## {lab.name}")
        for text in tables(lab, [name for name in args.detectors.split(",") if name]):
            print(text)


if __name__ == "__main__":
    main()
