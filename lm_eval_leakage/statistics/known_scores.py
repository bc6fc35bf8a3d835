"""Scores of questions that a model is known to have seen or not, as the measure of others.

Null hypothesis of a calibrated p-value: the question is exchangeable with the known-unseen ones of its class. Limits:
it holds for the model, the benchmark and the probe that they are of; other models have other scores. Source:
conformal p-values (Vovk et al., 2005), by class as in Mondrian conformal prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lm_eval_leakage.statistics.combined import CombinedScore
from lm_eval_leakage.statistics.conformal import conformal_pvalues

VERSION = 1
EVERY_CLASS = "all"
COMBINED = "combined"  # in the place of a detector's name
FEWEST = 19  # known-unseen questions of a class, below which 5 % cannot be reached


@dataclass(frozen=True)
class KnownScores:
    """Of one probe, statistic and key; by class of question, or under EVERY_CLASS.

    unseen, seen: scores, a higher one meaning more leakage
    """

    unseen: Mapping[str, Sequence[float]]
    seen: Sequence[float]

    def pvalue(self, score: float, of_class: str) -> float:
        """By the known-unseen questions of the class where there are enough, else by all of them."""
        own = self.unseen.get(of_class, ())
        (pvalue,) = conformal_pvalues([score], own if len(own) >= FEWEST else self.unseen[EVERY_CLASS])
        return float(pvalue)

    def flagged(self, fpr: float) -> tuple[tuple[int, int], tuple[int, int]]:
        """Flagged and all of the known-seen, and of the known-unseen, when a share `fpr` of the latter is flagged."""
        unseen = self.unseen[EVERY_CLASS]
        n_unseen = math.floor(fpr * (len(unseen) + 1) + 1e-9)  # 0.29 * 100 is below 29
        n_seen = int((conformal_pvalues(self.seen, unseen) <= fpr).sum()) if self.seen else 0
        return (n_seen, len(self.seen)), (n_unseen, len(unseen))


@dataclass(frozen=True)
class Calibration:
    """Known scores of one model on one benchmark.

    model, benchmark: names, which a run must have too
    origin: where the known scores come from, in words
    detectors: by `detector_name` and, after a slash, the value that ranks
    combined: the score of all of them together, fitted on the same questions; None where none was
    """

    model: str
    benchmark: str
    origin: str
    detectors: Mapping[str, KnownScores]
    combined: CombinedScore | None = None

    def save(self, file: Path) -> None:
        file.write_text(json.dumps({"calibration": VERSION, **asdict(self)}), encoding="utf-8")


@dataclass(frozen=True)
class Calibrated:
    """A question's calibrated verdict: flagged at a false-positive rate of `fpr` on known-unseen questions.

    of_seen, of_unseen: flagged and all of the known-seen and known-unseen questions at that rate
    """

    flagged: bool
    pvalue: float
    fpr: float
    of_seen: tuple[int, int] = (0, 0)
    of_unseen: tuple[int, int] = (0, 0)


def load(file: str) -> Calibration:
    """Raises ValueError, with the remedy, for a file of another kind or version."""
    try:
        found = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        version = found.pop("calibration")
        detectors = {key: KnownScores(**scores) for key, scores in found.pop("detectors").items()}
        together = found.pop("combined")
        if version == VERSION:
            return Calibration(**found, detectors=detectors, combined=together and CombinedScore.of(together))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"calibration is {file!r}, which is no calibration file ({error!r}); make one with "
            "`lm-eval-leakage simulate`"
        ) from error
    raise ValueError(f"calibration is {file!r}, of version {version!r}; this package reads {VERSION}: make it again")


def detector_name(probe: object, statistic: object, reference: str | None = None) -> str:
    """Scores are comparable where both, with their parameters, and the reference model are the same."""
    return f"{probe!r}/{statistic!r}" + (f" against {reference}" if reference is not None else "")


def class_of(n_options: int, guarded: bool) -> str:
    """The number of options and whether a guard names a natural order: what moves a null distribution most."""
    return f"{n_options} options, {'guarded' if guarded else 'no guard'}"


def by_class(scores: Mapping[str, float], classes: Mapping[str, str]) -> dict[str, list[float]]:
    """Scores by question id as scores by class, and all of them; those that are not finite are left out."""
    grouped: dict[str, list[float]] = {EVERY_CLASS: []}
    for name, score in scores.items():
        if math.isfinite(score):
            grouped[EVERY_CLASS].append(score)
            grouped.setdefault(classes[name], []).append(score)
    return grouped
