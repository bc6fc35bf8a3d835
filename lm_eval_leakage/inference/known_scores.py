"""Calibration: scores of questions that a model is known to have seen or not, with which other scores are compared.

Null hypothesis of a calibrated p-value: the question is exchangeable with the known-unseen ones of its class. Limits:
it holds only for the model, the benchmark and the detector that produced the known scores. Source: conformal p-values
(Vovk et al., 2005), by class as in Mondrian conformal prediction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm_eval_leakage.inference.combined import CombinedScore
from lm_eval_leakage.inference.conformal import conformal_pvalues

EVERY_CLASS = "all"
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

    def compared_with(self, of_class: str) -> str | None:
        """The class whose known-unseen questions a question of this class is compared with: its own if there are
        enough, else all; None if there are classes, but not one known-unseen question of this one."""
        if len(self.unseen.get(of_class, ())) >= FEWEST_OF_CLASS:
            return of_class
        return EVERY_CLASS if self.unseen.get(of_class) or set(self.unseen) == {EVERY_CLASS} else None

    def pvalue(self, score: float, of_class: str) -> float:
        """Compared with the known-unseen questions of the class if there are enough, else with all of them."""
        (pvalue,) = conformal_pvalues([score], self.unseen[self.compared_with(of_class) or EVERY_CLASS])
        return float(pvalue)

    def flagged(self, fpr: float) -> tuple[tuple[int, int], tuple[int, int]]:
        """(flagged, all) of the known-seen and of the known-unseen, by the rule that flags questions: a p-value among
        those of the same class of at most `fpr`. (0, 0) of the known-seen if their classes matter and are not
        recorded."""
        own = {name: len(scores) for name, scores in self.unseen.items() if self.compared_with(name) == name}
        others = own.pop(EVERY_CLASS, len(self.unseen[EVERY_CLASS])) - sum(own.values())
        n_unseen = sum(_allowed(fpr, n) for n in own.values()) + self._others_flagged(fpr, own, others)
        of_unseen = n_unseen, len(self.unseen[EVERY_CLASS])
        if own and not self.seen_classes:
            return (0, 0), of_unseen
        compared: dict[str, list[float]] = {}
        for score, name in zip(self.seen, self.seen_classes or [EVERY_CLASS] * len(self.seen), strict=True):
            compared.setdefault(self.compared_with(name) or EVERY_CLASS, []).append(score)
        n_seen = sum(
            int((conformal_pvalues(scores, self.unseen[name]) <= fpr).sum()) for name, scores in compared.items()
        )
        return (n_seen, len(self.seen)), of_unseen

    def _others_flagged(self, fpr: float, own: Iterable[str], n: int) -> int:
        """How many of the n known-unseen questions outside the classes `own` are among the highest of all."""
        highest = sorted(self.unseen[EVERY_CLASS], reverse=True)[: _allowed(fpr, len(self.unseen[EVERY_CLASS]))]
        if not highest or not n:
            return 0
        least = highest[-1]
        inside = sum(score >= least for name in own for score in self.unseen[name])
        return max(0, min(n, len(highest) - inside))


def _allowed(fpr: float, n: int) -> int:
    """How many of n known-unseen questions a share `fpr` of such questions is."""
    return math.floor(fpr * (n + 1) + 1e-9)  # 0.29 * 100 is below 29


@dataclass(frozen=True)
class Calibration:
    """Known scores of one model on one benchmark.

    model, benchmark: names, which a run must share
    origin: where the known scores come from, in words
    detectors: known scores by name of score, see `detector_ids.score_names`
    combined: the combined score of all of them, fitted on the same questions; None if there is none
    """

    model: str
    benchmark: str
    origin: str
    detectors: Mapping[str, KnownScores]
    combined: CombinedScore | None = None

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
