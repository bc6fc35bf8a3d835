"""Identifies the questions that one or several models have probably seen: a set with a target false discovery rate,
and for every other cut of the ranking a bound on the number of unseen questions above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import audits_of_one_model
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.questions.families import described, left_out_in_words
from lm_eval_leakage.records import Described
from lm_eval_leakage.results.formatting import counted, number, percent
from lm_eval_leakage.results.result_types import AskedOnce, asked_once, grouped
from lm_eval_leakage.stats import conformal
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.known_scores import (
    COMBINED,
    EVERY_CLASS,
    FEWEST_OF_CLASS,
    Calibration,
    KnownScores,
    why_withheld,
)


def described_lines(lines: Iterable[AuditLine]) -> Described:
    """What the questions of these lines are like, each question once; those that cannot be read are left out."""
    once = {line.question: line for line in lines if line.read is not None}
    return described((line.read, line.guarded) for line in once.values() if line.read is not None)


def refuse_withheld(calibration: Calibration, lines: Sequence[AuditLine]) -> None:
    """Raises ValueError, with the remedy, if the calibration allows no statement about what was seen."""
    if others := sorted({line.benchmark for line in lines if not is_part(line.benchmark, calibration.benchmark)}):
        raise ValueError(
            f"the calibration is of the benchmark {calibration.benchmark!r}, but the run audits {', '.join(others)}; "
            "name a folder with audits of that benchmark alone, or make a calibration of this one"
        )
    if reason := why_withheld(calibration, described_lines(lines)):
        raise ValueError(reason)


def is_part(benchmark: str, whole: str) -> bool:
    """Whether it is the other benchmark or, by its name, one of its tasks."""
    return benchmark == whole or benchmark.startswith(f"{whole}_")


@dataclass(frozen=True)
class Identification:
    """questions: those on which every model was asked: of each, its rows by hash, of which copies follow the first
    found: whether each is in the set
    untested: number of rows without a score from some model
    most_unseen: for each question, at most how many of those with a p-value no higher than its own are unseen; this
        holds for all of them at once with probability CONFIDENCE
    withheld: why no set is named, as a sentence; None if one is
    """

    questions: Mapping[str, Mapping[str, Mapping[str, Any]]]
    found: conformal.Identified
    untested: int
    most_unseen: tuple[int, ...] = ()
    withheld: str | None = None

    def bound(self, chosen: Sequence[bool]) -> tuple[int, int]:
        """The size of a set that holds all questions up to some p-value, and at most how many of it are unseen."""
        return sum(chosen), max((most for most, own in zip(self.most_unseen, chosen, strict=True) if own), default=0)

    def longest(self, share: float) -> tuple[int, int]:
        """The same for the longest list of which at most this share is unseen."""
        ranks = _ranks(self.found.pvalues)
        fitting = [(n, most) for n, most in zip(ranks, self.most_unseen, strict=True) if most <= share * n + 1e-9]
        return max(fitting, default=(0, 0))


_Ranked = tuple[dict[str, float], dict[str, str], KnownScores]  # p-values, classes, and what they are compared with


def identify(
    runs: Sequence[tuple[Path, Calibration]], problems: list[Problem], detector: str = COMBINED, level: float = 0.1
) -> Identification:
    """By one detector of the calibrations, or by all of them combined.

    runs: of each model, the folder of its audits' samples logs and its calibration. Raises ValueError for one that
        says nothing about what the model has seen

    With several models a question's p-value is the lowest over the models times their number, so that the set and the
    bounds are of questions that at least one model has seen. Nothing is said of questions outside of it: a set that is
    clean for all models is chosen by `clean --target_rate`.
    """
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    models: list[_Ranked] = []
    for folder, calibration in runs:
        asked = questions_of_model(folder, calibration, problems)
        for one in asked:
            rows.setdefault(one.name, {}).update(one.docs)
        refuse_withheld(calibration, [one.first for one in asked])
        pvalues = pvalues_of(asked, calibration, detector, problems)
        models.append((pvalues, {one.name: one.first.of_class for one in asked}, calibration.detectors[detector]))
    names = [name for name in rows if all(name in pvalues for pvalues, _, _ in models)]
    together = conformal.joint([[pvalues[name] for name in names] for pvalues, _, _ in models])
    found = conformal.from_pvalues(together, level)
    most: tuple[int, ...] = ()
    too_few = None
    if len(names) < conformal.FEWEST_TO_NAME:
        found = replace(found, flagged=(False,) * len(names))
        too_few = (
            f"No set is named: {counted(len(names))} with a score from every model, fewer than the "
            f"{conformal.FEWEST_TO_NAME} that a set is chosen from; audit more questions."
        )
    else:
        most = tuple(conformal.most_false(together, [part for own in models for part in _parts(names, *own)]).tolist())
    return Identification({name: rows[name] for name in names}, found, len(rows) - len(names), most, too_few)


def _parts(
    names: Sequence[str], pvalues: Mapping[str, float], classes: Mapping[str, str], known: KnownScores
) -> Iterator[conformal.ComparedClass]:
    """One model's questions by the class of the known-unseen ones that they were compared with."""
    by_class = [known.compared_with(classes[name]) or EVERY_CLASS for name in names]
    for own, places in grouped(range(len(names)), by_class.__getitem__).items():
        compared = np.array([pvalues[names[place]] for place in places])
        yield conformal.ComparedClass(np.array(places), compared, len(known.groups[own]))


def questions_of_model(folder: Path, calibration: Calibration, problems: list[Problem]) -> list[AskedOnce]:
    """The questions of a folder. Raises ValueError for a run of another model."""
    _, lines = audits_of_one_model(folder, problems, calibration.model)
    return asked_once(line for _, line in lines)


def pvalues_of(
    asked: Sequence[AskedOnce], calibration: Calibration, detector: str, problems: list[Problem]
) -> dict[str, float]:
    """Conformal p-value of each question that has the scores the detector needs, among the known-unseen questions of
    its class if there are enough, else among all. Questions of a class without any have none, which is a problem."""
    known = _known(calibration, detector)
    scores = {one.name: one.scores for one in asked}
    run = {part for own in scores.values() for part in own}
    if mismatch := calibration.unmatched(run, None if detector == COMBINED else detector):
        raise ValueError(mismatch)
    classes = {one.name: one.first.of_class for one in asked}
    others = Counter(of_class for of_class in classes.values() if known.compared_with(of_class) is None)
    for of_class, n in others.items():
        problems.append(
            Problem(
                f"{counted(n)} with {of_class} cannot be judged: the calibration of {calibration.model!r} has no "
                "known-unseen question of that kind; add some"
            )
        )
    scores = {name: own for name, own in scores.items() if classes[name] not in others}
    found = scores_by(detector, scores, calibration.combined)
    if detector == COMBINED and calibration.combined is not None and scores and not found:
        missing = sorted(set(calibration.combined.detectors) - run)
        raise ValueError(
            f"no question has a score of every detector; audits are missing for: {', '.join(missing) or 'none'}; "
            f"those that were run are: {', '.join(sorted(run))}"
        )
    return {name: known.pvalue(score, classes[name]) for name, score in found.items()}


def scores_by(
    detector: str, scores: Mapping[str, Mapping[str, float]], together: CombinedScore | None
) -> dict[str, float]:
    """By one detector, or by all combined, of each question that has what that needs."""
    if detector != COMBINED:
        return {name: own[detector] for name, own in scores.items() if detector in own}
    if together is None:
        return {}
    complete = {name: own for name, own in scores.items() if all(part in own for part in together.detectors)}
    return {name: together.probability(own) for name, own in complete.items()}


def _known(calibration: Calibration, detector: str) -> KnownScores:
    """The detector's known scores. Raises ValueError if there are none, or too few."""
    known = calibration.detectors.get(detector)
    if known is None:
        raise ValueError(
            f"detector is {detector!r}, of which the calibration of {calibration.model!r} has no scores; choose "
            "one of: " + ", ".join(calibration.detectors)
        )
    n_unseen = len(known.unseen[EVERY_CLASS])
    if n_unseen < FEWEST_OF_CLASS:
        raise ValueError(
            f"the calibration of {calibration.model!r} has {n_unseen} known-unseen scores of {detector!r}; with fewer "
            f"than {FEWEST_OF_CLASS} no p-value reaches 5 %, so add known-unseen questions"
        )
    return known


def _ranks(pvalues: Sequence[float]) -> list[int]:
    """How many questions have a p-value no higher, for each."""
    ranks: list[int] = np.searchsorted(np.sort(pvalues), pvalues, side="right").tolist()
    return ranks


def as_lines(identification: Identification) -> list[dict[str, Any]]:
    """One record per question, for a file of JSON lines; rank and unseen_at_most are of the list that ends with it and
    those of equal p-values. No flags or bounds if no set is named. A copy follows its question, with its values."""
    found = identification.found
    ranks, most_unseen = _ranks(found.pvalues), identification.most_unseen
    lines = []
    for place, docs in enumerate(identification.questions.values()):
        values = {
            "flagged": found.flagged[place] if most_unseen else None,
            "pvalue": found.pvalues[place],
            "rank": ranks[place],
            "unseen_at_most": most_unseen[place] if most_unseen else None,
        }
        lines += [{"doc_hash": doc_hash, **values, "doc": doc} for doc_hash, doc in docs.items()]
    return lines


def summary(identification: Identification) -> str:
    """What was found, in a sentence or two: on average, and with high probability, also of a list whose length is
    chosen after looking."""
    found, untested = identification.found, identification.untested
    left_out = f" {untested} question(s) without a score from every model are left out." if untested else ""
    if copies := left_out_in_words(sum(len(docs) - 1 for docs in identification.questions.values())):
        left_out += f" {copies}; the list has them with the values of their questions."
    if identification.withheld is not None:
        return identification.withheld + left_out
    share = percent(found.level, 0)
    text = (
        f"{sum(found.flagged)} of {len(found.flagged)} questions flagged, of which at most {share} are expected to be "
        f"unseen; estimated share of unseen questions {number(found.unseen_share, 2)}. With probability "
        f"{percent(conformal.CONFIDENCE, 0)}"
    )
    n_flagged, n_false = identification.bound(found.flagged)
    if n_flagged:
        text += f", at most {n_false} of the {n_flagged} flagged are unseen, and"
    n_longest, n_false = identification.longest(found.level)
    if not n_longest:
        return f"{text} no list, however short, is known to have at most {share} unseen questions.{left_out}"
    return (
        f"{text} the longest list that has at most {share} unseen questions is that of the "
        f"{counted(n_longest)} ranked highest (at most {n_false} unseen).{left_out}"
    )
