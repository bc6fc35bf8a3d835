"""Calibration: scores of questions that a model is known to have seen or not, with which its other scores are
compared; and when such a comparison says nothing.

Null hypothesis of a calibrated p-value: the question is exchangeable with the known-unseen ones of its class. Limits:
it holds only for the model, the benchmark and the detector that produced the known scores, for questions of the same
kind as those that were asked, and for enough of them; otherwise nothing is printed but the reason. Source: conformal
p-values (Vovk et al., 2005), by class as in Mondrian conformal prediction.

Are known-unseen questions of the same kind? Null hypothesis: they and the asked ones are random draws from one pool,
so that every split of them into two groups of these sizes is equally likely. Each property is tested by the
Kolmogorov-Smirnov distance between both groups, whose p-value is its rank among random splits; the p-values are
adjusted for the number of properties. Limits: with few questions a difference may go unnoticed; equal properties do
not prove that a model finds both equally difficult. Source: Holm (1979); permutation p-values as in Phipson and Smyth
(2010).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from lm_eval_leakage.records import Described
from lm_eval_leakage.stats.combined import CombinedScore
from lm_eval_leakage.stats.conformal import conformal_pvalues
from lm_eval_leakage.stats.order_sum import NaturalPart, adjusted_by_holm
from lm_eval_leakage.stats.unseen_texts import TextTest
from lm_eval_leakage.texts import brief

N_SPLITS = 999  # random splits, so that the smallest p-value is 1 / 1000


@dataclass(frozen=True)
class Likeness:
    """One property of both groups.

    pvalue: of its own test; adjusted: for the number of properties
    unseen, asked: a typical value of each group: the median, or the mean of a share
    """

    name: str
    pvalue: float
    adjusted: float
    unseen: float
    asked: float


def exchangeability(
    unseen: Mapping[str, Sequence[float]], asked: Mapping[str, Sequence[float]], *, rng: np.random.Generator
) -> list[Likeness]:
    """Every property that both groups, which must not be empty, have and that varies, the most different first."""
    shared = [name for name in unseen if name in asked]
    names = [name for name in shared if len({*unseen[name], *asked[name]}) > 1]
    pvalues = [_pvalue(unseen[name], asked[name], rng) for name in names]
    found = [
        Likeness(name, pvalue, adjusted, _typical(unseen[name]), _typical(asked[name]))
        for name, pvalue, adjusted in zip(names, pvalues, adjusted_by_holm(pvalues), strict=True)
    ]
    return sorted(found, key=lambda one: one.pvalue)


def _pvalue(unseen: Sequence[float], asked: Sequence[float], rng: np.random.Generator) -> float:
    pooled = np.array([*unseen, *asked], dtype=float)
    order = np.argsort(pooled, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(pooled[order]) > 0, True))  # the last place of each run of equal values
    labels = order < len(unseen)

    def distance(is_unseen: NDArray[np.bool_]) -> float:
        """Between the distribution functions of both groups, from labels in the order of the values."""
        below = np.cumsum(is_unseen)[ends]
        return float(np.abs(below / len(unseen) - (ends + 1 - below) / len(asked)).max())

    observed = distance(labels) - 1e-12
    return (1 + sum(distance(rng.permuted(labels)) >= observed for _ in range(N_SPLITS))) / (1 + N_SPLITS)


def _typical(values: Sequence[float]) -> float:
    return fmean(values) if all(0 <= value <= 1 for value in values) else float(median(values))


EVERY_CLASS = "all"
OWN, COPY = "own", "copy"  # whose scores a calibration holds
COMBINED = "combined"  # stands for all detectors where a detector's name is expected
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
    detectors: known scores by name of score, see `logs.audit_line.score_names`
    combined: how a combined score is computed from those of all detectors; None if there is none
    unseen: what the known-unseen questions are like; None if it is not known, as in files of earlier versions
    natural: the preference for published orders on them; None if their orders were not asked in the control forms
    answered: how many of them it answers correctly, and all, in the original arm of choice confusion
    by_letters: whether it names letters there, instead of the options' texts
    texts: how predictable the asked questions' texts are beside theirs; None where it is not known, as in files
    """

    model: str
    benchmark: str
    whose: str
    origin: str
    detectors: Mapping[str, KnownScores]
    combined: CombinedScore | None = None
    unseen: Described | None = None
    natural: NaturalPart | None = None
    answered: tuple[int, int] = (0, 0)
    by_letters: bool = False
    texts: TextTest | None = None

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
        if any(name in names or name.rpartition("/")[0] in names for name in own):
            return None
        return (
            f"the calibration of {self.model!r} has scores of {', '.join(own) or 'no detector'}, but the run has "
            f"{', '.join(names) or 'no detector'}: the same probe and statistic with the same parameters are needed, "
            "so run the audit as for the calibration, or make a calibration for this audit"
        )


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


FEWEST = 20  # questions of either kind; 19 known-unseen ones are the fewest that allow a p-value of .05
DIFFERENT_AT = 0.05  # chance that questions of the same kind are taken for different ones
POWER_FPR = 0.05
MAKE = "`lm-eval-leakage calibrate RUNS --unseen FOLDER --output_path FILE`"


def why_withheld(calibration: Calibration, asked: Described) -> str | None:
    """Why this calibration allows no rate, prevalence or set of the asked questions, as a sentence with the remedy;
    None if it does.

    asked: the questions whose scores are to be judged
    """
    unseen = calibration.unseen
    if calibration.whose == COPY:
        return _of_a_copy(calibration)
    if unseen is None:
        return (
            f"the calibration of {calibration.model!r} ({calibration.origin}) does not say what its unseen questions "
            f"are like, so that they cannot be compared with those that were asked; make it again with {MAKE}"
        )
    return overlap(unseen, asked) or too_few(unseen, asked) or of_another_kind(unseen, asked)


def _of_a_copy(calibration: Calibration) -> str:
    return (
        f"the calibration holds scores of a copy of {calibration.model!r} that was trained on the benchmark "
        f"({calibration.origin}), which moves the scores of all other questions too: it says what would be found"
        f"{_power(calibration)}, not what was found; make one of the model's own scores of questions that it cannot "
        f"have seen: {MAKE}"
    )


def _power(calibration: Calibration) -> str:
    """How many trained questions of the copy would be flagged."""
    if not calibration.detectors:
        return ""
    name = calibration.usual_detector
    (n_flagged, n_seen), _ = calibration.detectors[name].flagged(POWER_FPR)
    if not n_seen:  # they are not known, or not by class
        return ""
    return f" ({n_flagged} of {n_seen} trained questions by {name}, at a false-positive rate of {POWER_FPR:.0%})"


def overlap(unseen: Described, asked: Described) -> str | None:
    """Whether known-unseen questions are among the asked ones."""
    both = [digest for digest in unseen.stems if digest in asked.stems]
    if not both:
        return None
    return (
        f"{len(both)} of the {len(unseen)} questions that the model is said not to have seen are in the benchmark, "
        f"such as {brief(asked.stems[both[0]])}; leave them out of the unseen questions, which must be private or "
        "newly written, and make the calibration again"
    )


def too_few(unseen: Described, asked: Described) -> str | None:
    for described, what in ((unseen, "unseen questions"), (asked, "asked questions")):
        if len(described) < FEWEST:
            return (
                f"{len(described)} {what} are too few to be compared with the other questions; at least {FEWEST} are "
                f"needed of either kind, so {'write' if described is unseen else 'ask'} more"
            )
    return None


def of_another_kind(unseen: Described, asked: Described) -> str | None:
    """Whether the known-unseen questions differ in a property that leakage does not change."""
    found = exchangeability(unseen.properties, asked.properties, rng=np.random.default_rng(0))
    different = [one for one in found if one.adjusted <= DIFFERENT_AT]
    if not different:
        return None
    return (
        f"the unseen questions are of another kind than those that were asked: {'; '.join(map(_shown, different))} "
        "(p-values adjusted for the number of properties); choose or write unseen questions like those of the "
        "benchmark, or ask only benchmark questions like the unseen ones"
    )


def _shown(one: Likeness) -> str:
    return f"{one.name} {_short(one.unseen)} instead of {_short(one.asked)} (p = {one.adjusted:.2g})"


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
