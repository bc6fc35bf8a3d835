"""Calibration: scores of questions that a model is known to have seen or not, with which other scores are compared.

Null hypothesis of a calibrated p-value: the question is exchangeable with the known-unseen ones of its class. Limits:
it holds only for the model, the benchmark and the detector that produced the known scores. Source: conformal p-values
(Vovk et al., 2005), by class as in Mondrian conformal prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lm_eval_leakage.inference.combined import CombinedScore
from lm_eval_leakage.inference.conformal import conformal_pvalues
from lm_eval_leakage.inference.natural_part import NaturalPart
from lm_eval_leakage.records import Described, Skipped

EVERY_CLASS = "all"
OWN, COPY = "own", "copy"  # whose scores a calibration holds
COMBINED = "combined"  # stands for all detectors where a detector's name is expected
FORMER_VALUE = "margin"  # the value by which max_order ranked questions in earlier versions
FEWEST_OF_CLASS = 19  # known-unseen questions of a class; with fewer, no p-value reaches 5 %


@dataclass(frozen=True)
class KnownScores:
    """Known scores by one detector, a higher one meaning more leakage.

    unseen: by class of question, and of all questions under EVERY_CLASS
    seen_classes: class of each seen question; empty if it was not recorded
    """

    unseen: Mapping[str, Sequence[float]]
    seen: Sequence[float]
    seen_classes: Sequence[str] = ()

    @cached_property
    def groups(self) -> Mapping[str, Sequence[float]]:
        """The unseen scores that questions are compared with, by class if there are enough of it; those of all smaller
        classes are one group, under EVERY_CLASS. Every unseen question is in one group alone: compared with all
        questions, more than a share `fpr` of a small class could be flagged without fewer being flagged of the others.
        """
        classes = {name: scores for name, scores in self.unseen.items() if name != EVERY_CLASS}
        if not classes:
            return self.unseen
        large = {name: scores for name, scores in classes.items() if len(scores) >= FEWEST_OF_CLASS}
        return large | {EVERY_CLASS: [score for name in classes if name not in large for score in classes[name]]}

    def compared_with(self, of_class: str) -> str | None:
        """The group of a question of this class; None if no known-unseen question is of it, but some are of others."""
        if of_class in self.groups:
            return of_class
        return EVERY_CLASS if self.unseen.get(of_class) or set(self.unseen) == {EVERY_CLASS} else None

    def pvalue(self, score: float, of_class: str) -> float:
        """Raises ValueError if there is no known-unseen question of the class."""
        group = self.compared_with(of_class)
        if group is None:
            raise ValueError(f"there is no known-unseen question of the class {of_class!r}; add some")
        (pvalue,) = conformal_pvalues([score], self.groups[group])
        return float(pvalue)

    def flagged(self, fpr: float) -> tuple[tuple[int, int], tuple[int, int]]:
        """(flagged, all) of the known-seen and of the known-unseen, by the rule that flags questions: a p-value in
        their group of at most `fpr`. (0, 0) of the known-seen if their classes matter and are not recorded."""
        groups = self.groups
        of_unseen = sum(_allowed(fpr, len(scores)) for scores in groups.values()), sum(map(len, groups.values()))
        if len(groups) > 1 and not self.seen_classes:
            return (0, 0), of_unseen
        compared: dict[str, list[float]] = {}
        for score, name in zip(self.seen, self.seen_classes or [EVERY_CLASS] * len(self.seen), strict=True):
            if (group := self.compared_with(name)) is not None:
                compared.setdefault(group, []).append(score)
        n_seen = sum(int((conformal_pvalues(own, groups[name]) <= fpr).sum()) for name, own in compared.items())
        return (n_seen, sum(map(len, compared.values()))), of_unseen


def _allowed(fpr: float, n: int) -> int:
    """How many of n known-unseen questions a share `fpr` of such questions is."""
    return math.floor(fpr * (n + 1) + 1e-9)  # 0.29 * 100 is below 29


@dataclass(frozen=True)
class Calibration:
    """Known scores of one model on one benchmark.

    model, benchmark: names, which a run must share
    whose: OWN if the model itself was asked, or COPY if a copy of it was, which had been trained on questions of the
        benchmark. Training moves the scores of other questions too, so only own scores say what the model has seen
    origin: where the known scores come from, in words
    detectors: known scores by name of score, see `detector_ids.score_names`
    combined: how a combined score is computed from those of all detectors; None if there is none
    unseen: what the known-unseen questions are like; None if it is not known, as in files of earlier versions
    natural: the preference for published orders on them; None if their orders were not asked in the control forms
    """

    model: str
    benchmark: str
    whose: str
    origin: str
    detectors: Mapping[str, KnownScores]
    combined: CombinedScore | None = None
    unseen: Described | None = None
    natural: NaturalPart | None = None

    @property
    def usual_detector(self) -> str:
        """The one that is used unless another is named: all combined, if there is such a score, else the first."""
        return next(iter(self.detectors), COMBINED) if COMBINED not in self.detectors else COMBINED

    def unmatched(self, run: Iterable[str], detector: str | None = None) -> str | None:
        """Why these scores do not apply to a run, as a sentence; None if they do.

        run: the ids of its detectors, or the names of its scores
        detector: the name that is required among them; by default any of the calibration's
        """
        names = dict.fromkeys(run)
        own = [name for name in self.detectors if name != COMBINED] if detector is None else [detector]
        if any(name in names or _is_value_of(name, names) for name in own):
            return None
        return (
            f"the calibration of {self.model!r} has scores of {', '.join(own) or 'no detector'}, but the run has "
            f"{', '.join(names) or 'no detector'}: the same probe and statistic with the same parameters are needed, "
            "so run the audit as for the calibration, or make a calibration for this audit"
        )


def _is_value_of(name: str, detectors: Iterable[str]) -> bool:
    """Whether a score is a value of one of the detectors. By its margin max_order ranked in earlier versions only."""
    detector, _, value = name.rpartition("/")
    return value != FORMER_VALUE and detector in detectors


@dataclass(frozen=True)
class Calibrated:
    """A question's calibrated verdict: flagged at a false-positive rate of `fpr` on known-unseen questions.

    of_seen, of_unseen: (flagged, all) of the known-seen and known-unseen questions at that rate
    """

    flagged: bool
    pvalue: float
    fpr: float
    of_seen: tuple[int, int] = (0, 0)
    of_unseen: tuple[int, int] = (0, 0)


# In place of a calibrated verdict; a group with such questions has no calibrated rate.
NOT_CALIBRATED = Skipped("its calibrated verdict is withheld")


def class_of(n_options: int, guarded: bool) -> str:
    """The number of options and whether the question is guarded: what changes the null distribution most."""
    return f"{n_options} options, {'guarded' if guarded else 'no guard'}"


def by_class(scores: Mapping[str, float], classes: Mapping[str, str]) -> dict[str, list[float]]:
    """Scores grouped by class of question, and all of them under EVERY_CLASS, without those that are not finite."""
    grouped: dict[str, list[float]] = {EVERY_CLASS: []}
    for name, score in scores.items():
        if math.isfinite(score):
            grouped[EVERY_CLASS].append(score)
            grouped.setdefault(classes[name], []).append(score)
    return grouped
