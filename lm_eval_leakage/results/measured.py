"""What the questions of a task, group or subject say together: the values that its columns are computed from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from lm_eval_leakage.inference.accuracy_gap import Gap, accuracy_gap
from lm_eval_leakage.inference.pooling import NAN, UNKNOWN, Estimate, difference_of_shares, normal, share
from lm_eval_leakage.results.flags import Flags, flags_of
from lm_eval_leakage.results.result_types import Suspicion
from lm_eval_leakage.results.subject_prevalence import share_of
from lm_eval_leakage.results.verdicts import Calibrating
from lm_eval_leakage.statistics.paired_accuracy import difference


@dataclass(frozen=True)
class Entry:
    """One question of a row.

    score: 1.0 for a right answer, 0.0 for a wrong one; None where no run answered it
    stratum: questions of one stratum are taken to be as hard
    """

    suspicion: Suspicion | None
    score: float | None = None
    stratum: Hashable = ""


@dataclass(frozen=True)
class Measured:
    """What is known of the questions of a row, as the columns need it."""

    entries: Sequence[Entry]
    calibrating: Calibrating | None = None

    @cached_property
    def joined(self) -> list[Suspicion]:
        """Of the questions that were matched to an audit."""
        return [entry.suspicion for entry in self.entries if entry.suspicion is not None]

    @cached_property
    def tested(self) -> list[Suspicion]:
        """Of those that the main detector tested."""
        return [one for one in self.joined if one.flagged is not None]

    @property
    def flags(self) -> list[bool]:
        return [bool(one.flagged) for one in self.tested]

    @property
    def flags_unguarded(self) -> list[bool]:
        return [bool(one.flagged) for one in self.tested if not one.guards]

    @property
    def null_rates(self) -> list[float]:
        return [one.null_rate for one in self.tested if one.null_rate is not None]

    @cached_property
    def tested_flags(self) -> Flags:
        return flags_of(self.joined)

    @cached_property
    def unguarded_flags(self) -> Flags:
        return flags_of(self.joined, unguarded=True)

    @property
    def outliers(self) -> list[bool]:
        return [one.outlier for one in self.joined if one.outlier is not None]

    @property
    def outlier_null_rates(self) -> list[float]:
        tested = [one for one in self.joined if one.outlier is not None]
        return [one.outlier_null_rate for one in tested if one.outlier_null_rate is not None]

    @property
    def calibrated_flags(self) -> list[bool]:
        return [one.calibrated_flagged for one in self.joined if one.calibrated_flagged is not None]

    @property
    def probabilities(self) -> list[float]:
        return [one.probability for one in self.joined if one.probability is not None]

    @property
    def prevalence(self) -> Estimate:
        flags, by = self.calibrated_flags, self.calibrating
        if by is None or not flags:
            return UNKNOWN
        seen = share_of(flags, *by.calibration.detectors[by.detector].flagged(by.fpr))
        return Estimate(seen.share, NAN, seen.low, seen.high)

    def arm(self, name: str) -> list[bool]:
        """Whether each question that choice confusion asked was answered correctly in this arm."""
        return [getattr(one.arms, name) for one in self.joined if one.arms is not None]

    @property
    def confusion(self) -> Estimate:
        if not self.arm("original"):
            return UNKNOWN
        delta = difference(self.arm("original"), self.arm("generalized"))
        return normal(delta.value, delta.stderr)

    @cached_property
    def answered(self) -> list[tuple[bool, float, Hashable]]:
        """Flag, score and stratum of each question that was tested and answered."""
        return [
            (entry.suspicion.flagged, entry.score, entry.stratum)
            for entry in self.entries
            if entry.suspicion and entry.suspicion.flagged is not None and entry.score is not None
        ]

    @cached_property
    def accuracy_flagged(self) -> Estimate:
        return share([score for flag, score, _ in self.answered if flag])

    @cached_property
    def accuracy_unflagged(self) -> Estimate:
        return share([score for flag, score, _ in self.answered if not flag])

    @property
    def gap(self) -> Estimate:
        flagged, unflagged = self.accuracy_flagged, self.accuracy_unflagged
        return difference_of_shares(flagged, unflagged) if flagged and unflagged else UNKNOWN

    @cached_property
    def within_strata(self) -> Gap | None:
        """The gap among questions of one stratum; None without both flags, or with scores that are not 0 or 1."""
        flags = [flag for flag, _, _ in self.answered]
        if len(set(flags)) < 2 or any(score not in (0, 1) for _, score, _ in self.answered):
            return None
        right = [score == 1 for _, score, _ in self.answered]
        return accuracy_gap(flags, right, [stratum for _, _, stratum in self.answered])

    @property
    def gap_within_strata(self) -> Estimate:
        return normal(self.within_strata.value, self.within_strata.stderr) if self.within_strata else UNKNOWN

    @property
    def flagged_and_right(self) -> list[bool]:
        return [flag and score == 1 for flag, score, _ in self.answered] if self.within_strata else []


def strata_of(
    subjects: Sequence[str], lengths: Sequence[int], ease: Sequence[float | None]
) -> list[tuple[str, int, int | None]]:
    """Subject, third of the subject's questions by length, third of [0, 1] of what reference models answer rightly."""
    by_subject: dict[str, list[int]] = {}
    for subject, length in zip(subjects, lengths, strict=True):
        by_subject.setdefault(subject, []).append(length)
    ends = {subject: _thirds(sorted(found)) for subject, found in by_subject.items()}
    return [
        (subject, sum(length > end for end in ends[subject]), None if easy is None else min(2, int(3 * easy)))
        for subject, length, easy in zip(subjects, lengths, ease, strict=True)
    ]


def _thirds(lengths: Sequence[int]) -> tuple[int, int]:
    n = len(lengths)
    return lengths[(n - 1) // 3], lengths[2 * (n - 1) // 3]
