"""Known scores out of a simulation, as a file that audits accept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from lm_eval_leakage.lab.detection import SHARED, Audits
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.statistics.combined import CombinedScore, fit
from lm_eval_leakage.statistics.known_scores import Calibration, KnownScores, by_class, class_of


def from_held_out(outcome: Outcome, exposures: int) -> Calibration:
    """Known-unseen are the held-out questions, asked of the copy after so many exposures to the others."""
    return known_scores(
        outcome.audits[exposures],
        outcome,
        outcome.held_out,
        outcome.trained,
        f"held-out questions after {exposures} exposures to {len(outcome.trained)} others",
    )


def from_control(audits: Audits, outcome: Outcome) -> Calibration:
    """Known-unseen are questions that nobody has published, such as `fresh`, asked of the model itself."""
    names = [question.id for question in audits.questions]
    return known_scores(audits, outcome, names, (), f"{len(names)} questions that were never published")


def known_scores(
    audits: Audits, outcome: Outcome, unseen: Iterable[str], seen: Iterable[str], origin: str
) -> Calibration:
    settings = outcome.settings
    unseen, seen = set(unseen), set(seen)
    n_options = {question.id: len(question.options) for question in audits.questions}
    detectors: dict[str, KnownScores] = {}
    scores_of: dict[str, dict[str, float]] = {}
    for suffix in settings.detectors:
        if suffix == SHARED:
            continue  # its units are shards of these questions and no others
        lines = audits.audit(suffix)["lines"]
        for detector in dict.fromkeys(line["detector"] for line in lines):
            own = [line for line in lines if line["detector"] == detector and not line["reason"]]
            classes = {line["id"]: class_of(n_options[line["id"]], bool(line["guards"])) for line in own}
            for key in _keys(own):
                scores = {line["id"]: float(line[key]) for line in own}
                known = by_class({name: score for name, score in scores.items() if name in unseen}, classes)
                of_seen = [score for name, score in scores.items() if name in seen]
                detectors[f"{detector}/{key}"] = KnownScores(known, of_seen)
                scores_of[f"{detector}/{key}"] = scores
    return Calibration(settings.pretrained, settings.benchmark, origin, detectors, _together(scores_of, unseen, seen))


def _together(scores: Mapping[str, Mapping[str, float]], unseen: set[str], seen: set[str]) -> CombinedScore | None:
    if len(seen) < 2 or len(unseen) < 2 or not scores:
        return None
    names = [*sorted(seen), *sorted(unseen)]
    rows = {detector: [own.get(name, math.nan) for name in names] for detector, own in scores.items()}
    return fit(rows, [name in seen for name in names])


def _keys(lines: Sequence[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(key for line in lines for key in line["ranks_by"].split(",") if key))
