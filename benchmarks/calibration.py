"""Do calibrated thresholds and conformal sets keep their error rates on another random draw of questions and training?

    python benchmarks/calibration.py LAB [OTHER_LAB]

LAB and OTHER_LAB are output folders of `lm-eval-leakage simulate` with the same settings except --seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from lm_eval_leakage.inference.combined import fit
from lm_eval_leakage.inference.conformal import conformal_pvalues, identify
from lm_eval_leakage.lab.detection import Detector, read_detectors
from lm_eval_leakage.lab.quality_table import COMBINED_HEADING, combined, scores_of_all

FPR, LEVEL = 0.05, 0.1

Scores = dict[str, tuple[np.ndarray, np.ndarray]]  # by detector: of the trained and of the held-out questions


def read(lab: Path, exposures: int, audits: Sequence[str]) -> tuple[list[Detector], list[str], list[str]]:
    """Scores by the detectors of single questions, with the ids of the trained and the held-out questions."""
    quality = json.loads((lab / "quality.json").read_text(encoding="utf-8"))
    files = [lab / f"audits_{exposures}" / f"{name}.json" for name in audits]
    detectors = [detector for file in files for detector in read_detectors(file.stem, _json(file))]
    single = [detector for detector in detectors if len(detector.scores) > len(quality["held_out"])]
    return single, quality["trained"], quality["held_out"]


def scores(lab: Path, exposures: int, audits: Sequence[str]) -> Scores:
    """Scores by every detector, and by all of them combined."""
    detectors, trained, held_out = read(lab, exposures, audits)
    together = combined(detectors, trained, held_out)
    return {
        detector.name: (_of(detector.scores, trained), _of(detector.scores, held_out))
        for detector in [*detectors, *([together] if together else [])]
    }


def combined_elsewhere(lab: Path, other: Path, exposures: int, audits: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The combined score of the questions of `other`, by the calibration file of `lab`."""
    together = fit(*scores_of_all(*read(lab, exposures, audits)))
    detectors, trained, held_out = read(other, exposures, audits)
    found = {
        name: together.probability({detector.name: detector.scores.get(name, np.nan) for detector in detectors})
        for name in (*trained, *held_out)
    }
    return _of(found, trained), _of(found, held_out)


def shared_audits(labs: Sequence[Path], exposures: int) -> list[str]:
    """Names of the audits that all simulations have."""
    return sorted(
        set.intersection(*({file.stem for file in (lab / f"audits_{exposures}").glob("*.json")} for lab in labs))
    )


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _of(found: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    return np.array([found[name] for name in names if name in found])


def conformal_rows(found: Scores, n_resamplings: int) -> Iterator[str]:
    """Half of the held-out questions serve as known-unseen; the others are to be separated from the trained ones."""
    for name, (trained, held_out) in found.items():
        rng = np.random.default_rng(0)
        mistakes, power = [], []
        for _ in range(n_resamplings):
            drawn = rng.permutation(held_out)
            known, others = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
            flagged = np.array(identify([*trained, *others], known, LEVEL).flagged)
            mistakes.append(flagged[len(trained) :].sum() / max(1, flagged.sum()))
            power.append(flagged[: len(trained)].mean())
        error = np.std(mistakes, ddof=1) / np.sqrt(n_resamplings)
        yield f"| `{name}` | {np.mean(mistakes):.3f} ± {error:.3f} | {np.mean(power):.2f} |"


def threshold_rows(found: Scores, others: Scores) -> Iterator[str]:
    """Thresholds from one simulation, applied to the held-out questions of another."""
    for name, (_, known) in found.items():
        trained, held_out = others[name]
        flagged = int((conformal_pvalues(held_out, known) <= FPR).sum())
        low, high = binomtest(flagged, len(held_out)).proportion_ci(0.95)
        tpr = float((conformal_pvalues(trained, known) <= FPR).mean())
        holds = "yes" if low <= FPR <= high else "no"
        yield f"| `{name}` | {flagged}/{len(held_out)} [{low:.3f}, {high:.3f}] | {holds} | {tpr:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--resamplings", type=int, default=100)
    args = parser.parse_args()
    for exposures in sorted(int(folder.name.split("_")[1]) for folder in args.lab.glob("audits_*")):
        labs = [lab for lab in (args.lab, args.other) if lab is not None]
        audits = shared_audits(labs, exposures)
        found = scores(args.lab, exposures, audits)
        print(f"## {exposures} exposures\n\nConformal sets at {LEVEL:.0%}, over {args.resamplings} resamplings:\n")
        print("| detector | false discovery rate | share of trained found |\n|---|---|---|")
        print("\n".join(conformal_rows(found, args.resamplings)) + "\n")
        if args.other is not None:
            print(f"Thresholds for {FPR:.0%} from one training, applied to another's held-out questions:\n")
            print(
                "| detector | flagged, with its 95 % interval | holds | share of trained flagged |\n|---|---|---|---|"
            )
            elsewhere = scores(args.other, exposures, audits)
            elsewhere[COMBINED_HEADING] = combined_elsewhere(args.lab, args.other, exposures, audits)
            print("\n".join(threshold_rows(found, elsewhere)) + "\n")


if __name__ == "__main__":
    main()
