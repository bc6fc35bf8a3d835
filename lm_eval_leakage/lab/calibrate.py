"""Builds calibration files for audits from the scores of a simulation."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from lm_eval_leakage.lab.detection import Audits
from lm_eval_leakage.lab.simulation import Outcome
from lm_eval_leakage.questions.families import described
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.stats.combined import FOLDS, CombinedScore, cross_validated, fit
from lm_eval_leakage.stats.known_scores import COMBINED, COPY, OWN, Calibration, KnownScores, by_class, class_of

logger = logging.getLogger(__name__)


def from_held_out(outcome: Outcome, exposures: int) -> Calibration:
    """A calibration with the held-out questions as known-unseen, scored after `exposures` to the trained ones."""
    return known_scores(
        outcome.audits[exposures],
        outcome,
        outcome.held_out,
        outcome.trained,
        COPY,
        f"held-out questions after {counted(exposures, 'exposure')} to {len(outcome.trained)} others",
    )


def from_control(audits: Audits, outcome: Outcome) -> Calibration:
    """A calibration with unpublished questions, such as `fresh`, as known-unseen, scored by the model itself."""
    names = [question.id for question in audits.questions]
    return known_scores(audits, outcome, names, (), OWN, f"{len(names)} questions that were never published")


def known_scores(
    audits: Audits, outcome: Outcome, unseen: Sequence[str], seen: Sequence[str], whose: str, origin: str
) -> Calibration:
    """The known scores of every detector of single questions and, if seen questions are known, of all combined."""
    scores, guarded = _answers(audits, outcome.settings.detectors)
    classes = {one.id: class_of(len(one.options), one.id in guarded) for one in audits.questions}
    together = None
    if (found := combined_scores(scores, seen, unseen)) is not None:
        together, scores[COMBINED] = found
    detectors = {
        detector: KnownScores(
            by_class({name: own[name] for name in unseen if name in own}, classes),
            [own[name] for name in seen if name in own],
            [classes[name] for name in seen if name in own],
        )
        for detector, own in scores.items()
    }
    settings = outcome.settings
    known = set(unseen)
    kinds = described((one, one.id in guarded) for one in audits.questions if one.id in known)
    return Calibration(settings.pretrained, settings.benchmark, whose, origin, detectors, together, kinds)


def combined_scores(
    scores: Mapping[str, Mapping[str, float]], seen: Sequence[str], unseen: Sequence[str]
) -> tuple[CombinedScore, dict[str, float]] | None:
    """The combined score, and each question's combined score by cross-validation, fitted without its own label; None
    if too few questions have scores."""
    names, labels = [*seen, *unseen], [True] * len(seen) + [False] * len(unseen)
    if min(len(unseen), len(seen)) < FOLDS:
        return None
    rows = {detector: [own.get(name, math.nan) for name in names] for detector, own in scores.items()}
    try:
        out_of_fold = cross_validated(rows, labels).tolist()
        return fit(rows, labels), dict(zip(names, out_of_fold, strict=True))
    except ValueError as error:
        logger.warning("no combined score: %s", error)
        return None


def _answers(audits: Audits, suffixes: Iterable[str]) -> tuple[dict[str, dict[str, float]], set[str]]:
    """Scores by detector and question, and the ids of the questions that have a guard. Tests of question order, which
    are of shards, have none."""
    from lm_eval_leakage.harness.tasks.given_questions import audits_shards

    scores: dict[str, dict[str, float]] = {}
    guarded: set[str] = set()
    for line in [line for suffix in suffixes if not audits_shards(suffix) for line in audits.lines(suffix)]:
        guarded |= {line.question} if line.guarded else set()
        for name, score in line.scores.items():
            scores.setdefault(name, {})[line.question] = score
    return scores, guarded
