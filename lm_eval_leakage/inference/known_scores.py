"""Scores of questions that a model is known to have seen or not, as the measure of others.

Null hypothesis of a calibrated p-value: the question is exchangeable with the known-unseen ones of its class. Limits:
it holds for the model, the benchmark and the probe that they are of; other models have other scores. Source:
conformal p-values (Vovk et al., 2005), by class as in Mondrian conformal prediction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import write_whole
from lm_eval_leakage.inference.combined import CombinedScore
from lm_eval_leakage.inference.conformal import conformal_pvalues

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

    def unmatched(self, run: Iterable[str], detector: str | None = None) -> str | None:
        """Why these scores say nothing about a run, as a sentence; None where they do.

        run: the names of its detectors, with the value that ranks or without
        detector: the one of these that is asked for; by default any of them
        """
        names = dict.fromkeys(run)
        own = [name for name in self.detectors if name != COMBINED] if detector is None else [detector]
        if any(name in names or name.rpartition("/")[0] in names for name in own):
            return None
        return (
            f"the calibration of {self.model!r} has scores of {', '.join(own) or 'no detector'}, and what was run is "
            f"{', '.join(names) or 'nothing'}: the same probe and statistic with the same parameters are needed, so "
            "run the audit as the calibration was made, or make a calibration of this one"
        )

    def save(self, file: Path) -> None:
        write_whole(file, json.dumps({"calibration": VERSION, **asdict(self)}))


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
        if version == VERSION:
            return _calibration(**found)
    except OSError as error:
        raise ValueError(f"calibration is {file!r}, which cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"calibration is {file!r}, which is no calibration file ({error!r}); make one with "
            "`lm-eval-leakage simulate`"
        ) from error
    raise ValueError(f"calibration is {file!r}, of version {version!r}; this package reads {VERSION}: make it again")


def _calibration(model: Any, benchmark: Any, origin: Any, detectors: Any, combined: Any) -> Calibration:
    """From what JSON keeps of it. Raises TypeError or ValueError for what no calibration holds."""
    for name, value in (("model", model), ("benchmark", benchmark), ("origin", origin)):
        _check(isinstance(value, str), f"its {name} is {value!r}, which is no text")
    known = {name: _known_scores(name, **scores) for name, scores in detectors.items()}
    _check(COMBINED not in known or combined is not None, "it has combined scores and not how they are made")
    return Calibration(model, benchmark, origin, known, None if combined is None else _combined(combined))


def _known_scores(name: str, unseen: Any, seen: Any) -> KnownScores:
    _check(EVERY_CLASS in unseen, f"{name} has no scores of {EVERY_CLASS!r} unseen questions")
    for own in (seen, *unseen.values()):
        _check(_are_numbers(own), f"{name} has scores that are no finite numbers")
    return KnownScores(unseen, seen)


def _combined(stored: Any) -> CombinedScore:
    together = CombinedScore.of(stored)
    _check(all(isinstance(name, str) for name in together.detectors), "a detector of the combined score is no name")
    _check(len(together.weights) == len(together.detectors), "the combined score has not one weight per detector")
    for name in together.detectors:
        _check(len(together.unseen[name]) > 0, f"the combined score has no unseen questions of {name}")
    numbers = [together.weights, [together.intercept], *together.unseen.values()]
    _check(all(map(_are_numbers, numbers)), "the combined score holds what is no finite number")
    return together


def _are_numbers(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


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
