"""Identifies the questions that one or several models have probably seen, at a target false discovery rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.inference.conformal import Identified, from_pvalues, joint
from lm_eval_leakage.inference.known_scores import COMBINED, EVERY_CLASS, Calibration
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import lines_of_one_model
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.formatting import number, percent
from lm_eval_leakage.results.withholding import refuse_withheld


@dataclass(frozen=True)
class Identification:
    """questions: the rows on which every model was asked, by hash
    found: whether each is in the set
    untested: number of rows without a score from some model
    """

    questions: Mapping[str, Mapping[str, Any]]
    found: Identified
    untested: int


def identify(
    runs: Sequence[tuple[Path, Calibration]], problems: list[Problem], detector: str = COMBINED, level: float = 0.1
) -> Identification:
    """By one detector of the calibrations, or by all of them combined.

    runs: of each model, the folder of its audits' samples logs and its calibration. Raises ValueError for one that
        says nothing about what the model has seen

    With several models a question's p-value is the lowest over the models times their number, so that what is not in
    the set is clean for all of them as far as the detector can tell.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    pvalues: list[dict[str, float]] = []
    for folder, calibration in runs:
        scores, lines = scores_of(folder, calibration, problems)
        refuse_withheld(calibration, lines.values())
        rows |= {name: line.doc for name, line in lines.items()}
        classes = {name: line.of_class for name, line in lines.items()}
        pvalues.append(pvalues_of(scores, classes, calibration, detector))
    asked_of_all = [name for name in rows if all(name in own for own in pvalues)]
    found = from_pvalues(joint([[own[name] for name in asked_of_all] for own in pvalues]), level)
    return Identification({name: rows[name] for name in asked_of_all}, found, len(rows) - len(asked_of_all))


def scores_of(
    folder: Path, calibration: Calibration, problems: list[Problem]
) -> tuple[dict[str, dict[str, float]], dict[str, AuditLine]]:
    """Scores of every question by detector, and one of its lines. Raises ValueError for a run of another model."""
    scores: dict[str, dict[str, float]] = {}
    lines: dict[str, AuditLine] = {}
    for _, line in lines_of_one_model(folder, problems, calibration.model):
        lines[line.question] = line
        scores.setdefault(line.question, {}).update(line.scores)
    return scores, lines


def pvalues_of(
    scores: Mapping[str, Mapping[str, float]], classes: Mapping[str, str], calibration: Calibration, detector: str
) -> dict[str, float]:
    """Conformal p-value of each question that has the scores the detector needs, among the known-unseen questions of
    its class if there are enough."""
    known = calibration.detectors.get(detector)
    if known is None:
        raise ValueError(
            f"detector is {detector!r}, of which the calibration of {calibration.model!r} has no scores; choose "
            "one of: " + ", ".join(calibration.detectors)
        )
    if not known.unseen[EVERY_CLASS]:
        raise ValueError(f"the calibration of {calibration.model!r} has no unseen questions of {detector!r}")
    run = {part for own in scores.values() for part in own}
    if mismatch := calibration.unmatched(run, None if detector == COMBINED else detector):
        raise ValueError(mismatch)
    if detector != COMBINED:
        return {name: known.pvalue(own[detector], classes[name]) for name, own in scores.items() if detector in own}
    together = calibration.combined
    assert together is not None, "a calibration with combined scores says how they are computed"
    complete = {name: own for name, own in scores.items() if all(part in own for part in together.detectors)}
    if not complete:
        missing = sorted(set(together.detectors) - run)
        raise ValueError(
            f"no question has a score of every detector; audits are missing for: {', '.join(missing) or 'none'}; "
            f"those that were run are: {', '.join(sorted(run))}"
        )
    return {name: known.pvalue(together.probability(own), classes[name]) for name, own in complete.items()}


def as_lines(identification: Identification) -> list[dict[str, Any]]:
    """One record per question, for a file of JSON lines."""
    found = identification.found
    return [
        {"doc_hash": name, "flagged": flagged, "pvalue": pvalue, "doc": doc}
        for (name, doc), flagged, pvalue in zip(
            identification.questions.items(), found.flagged, found.pvalues, strict=True
        )
    ]


def summary(identification: Identification) -> str:
    """What was found, in a sentence or two."""
    found = identification.found
    text = (
        f"{sum(found.flagged)} of {len(found.flagged)} questions flagged, of which at most {percent(found.level, 0)} "
        f"are expected to be unseen; estimated share of unseen questions {number(found.unseen_share, 2)}."
    )
    untested = identification.untested
    return text + (f" {untested} question(s) without a score from every model are left out." if untested else "")
