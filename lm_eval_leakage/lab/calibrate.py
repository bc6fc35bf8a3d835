"""Known scores out of a simulation, as a file that audits accept."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from lm_eval_leakage.inference.combined import FOLDS, CombinedScore, cross_validated, fit
from lm_eval_leakage.inference.known_scores import COMBINED, Calibration, KnownScores, by_class, class_of
from lm_eval_leakage.lab.detection import Audits
from lm_eval_leakage.lab.simulation import Outcome

logger = logging.getLogger(__name__)


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
    """Of every detector of single questions, and where seen questions are known too, of all of them combined."""
    unseen, seen = list(unseen), list(seen)
    scores, guarded = _answers(audits, outcome.settings.detectors)
    n_options = {question.id: len(question.options) for question in audits.questions}
    classes = {name: class_of(count, name in guarded) for name, count in n_options.items()}
    together, out_of_fold = _together(scores, seen, unseen)
    scores = scores | ({COMBINED: out_of_fold} if together is not None else {})
    detectors = {
        detector: KnownScores(
            by_class({name: own[name] for name in unseen if name in own}, classes),
            [own[name] for name in seen if name in own],
        )
        for detector, own in scores.items()
    }
    settings = outcome.settings
    return Calibration(settings.pretrained, settings.benchmark, origin, detectors, together)


def _together(
    scores: Mapping[str, Mapping[str, float]], seen: Sequence[str], unseen: Sequence[str]
) -> tuple[CombinedScore | None, dict[str, float]]:
    """The combined score, and each question's by a score that was fitted on others, so that its own label is not in
    it; None where there are too few questions with scores."""
    if min(len(unseen), len(seen)) < FOLDS:
        return None, {}
    labels = [True] * len(seen) + [False] * len(unseen)
    rows = {detector: [own.get(name, math.nan) for name in [*seen, *unseen]] for detector, own in scores.items()}
    try:
        out_of_fold = cross_validated(rows, labels).tolist()
        return fit(rows, labels), dict(zip([*seen, *unseen], out_of_fold, strict=True))
    except ValueError as error:
        logger.warning("no combined score: %s", error)
        return None, {}


def _answers(audits: Audits, suffixes: Iterable[str]) -> tuple[dict[str, dict[str, float]], set[str]]:
    """Scores by detector and question, and the questions that have a guard."""
    from lm_eval_leakage.harness.tasks.given_questions import asks_of_neighbours

    scores: dict[str, dict[str, float]] = {}
    guarded: set[str] = set()
    for suffix in suffixes:
        if asks_of_neighbours(suffix):
            continue  # its units are shards of these questions and no others
        for line in audits.lines(suffix):
            guarded |= {line.question} if line.guarded else set()
            for name, score in line.scores.items():
                scores.setdefault(name, {})[line.question] = score
    return scores, guarded
