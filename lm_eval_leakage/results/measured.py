"""Aggregates the questions of a task, group or subject into the values from which its columns are computed.

This is the only place that computes how many questions a detector flags and how likely that is by chance. Null
hypothesis: without leakage, each question is flagged at its own null rate, independently of the others. A natural
order of the options (a guard) violates it; hence two p-values: one of all tested questions, one of those without a
guard.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from lm_eval_leakage.detectors.choice_confusion import difference
from lm_eval_leakage.questions.families import each_once
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.results.verdicts import Calibrating
from lm_eval_leakage.stats.pooling import (
    UNKNOWN,
    Estimate,
    difference_of_shares,
    mean_and_stderr,
    normal,
    poisson_binomial_tail,
    share,
)
from lm_eval_leakage.stats.prevalence import Gap, accuracy_gap, share_of

ALL_TESTED = "all tested"  # the questions that a number covers, as named in tables


@dataclass(frozen=True)
class Flags:
    """Flags of questions that have a null rate.

    flags: whether each is flagged; with two options the sign of the margin, which is no flag by itself
    null_rates: how likely each is flagged without leakage
    """

    flags: Sequence[bool]
    null_rates: Sequence[float]

    @property
    def n(self) -> int:
        return len(self.flags)

    @property
    def n_flagged(self) -> int:
        return sum(self.flags)

    @property
    def null_rate(self) -> float:
        return mean_and_stderr(self.null_rates)[0]

    @property
    def pvalue(self) -> float:
        """Probability, by chance, of at least as many flags (exact); NaN without a question."""
        return poisson_binomial_tail(self.n_flagged, self.null_rates)


def flags_of(questions: Iterable[AuditedQuestion], unguarded: bool = False) -> Flags:
    """The flags of all tested questions, or of those without a guard."""
    tested = [one for one in questions if one.null_rate is not None and not (unguarded and one.guards)]
    return Flags([_is_flagged(one) for one in tested], [one.null_rate or 0.0 for one in tested])


def _is_flagged(one: AuditedQuestion) -> bool:
    if one.flagged is not None:
        return one.flagged
    return one.pvalue is not None and one.null_rate is not None and one.pvalue <= one.null_rate


@dataclass(frozen=True)
class Entry:
    """One question of a row.

    score: 1.0 for a correct answer, 0.0 for a wrong one; None if no run answered it
    stratum: questions in the same stratum are taken to be equally hard
    n_rows: number of rows that it stands for
    """

    audited: AuditedQuestion | None
    score: float | None = None
    stratum: Hashable = ""
    n_rows: int = 1


@dataclass(frozen=True)
class Measured:
    """The questions of a row, and the values that columns need from them. Copies count once."""

    entries: Sequence[Entry]
    calibrating: Calibrating | None = None

    @cached_property
    def _once(self) -> list[tuple[Entry, AuditedQuestion]]:
        """The questions that were matched to an audit, without copies."""
        matched = [(entry, entry.audited) for entry in self.entries if entry.audited is not None]
        return each_once(matched, lambda pair: pair[1].key, lambda pair: pair[1].benchmark)

    @property
    def n_copies(self) -> int:
        """Number of rows that were matched to an audit and left out."""
        return sum(entry.n_rows for entry in self.entries if entry.audited is not None) - len(self._once)

    @cached_property
    def joined(self) -> list[AuditedQuestion]:
        """The questions that were matched to an audit."""
        return [audited for _, audited in self._once]

    @cached_property
    def tested(self) -> list[AuditedQuestion]:
        """Those that the main detector tested."""
        return [one for one in self.joined if one.flagged is not None]

    @property
    def flags(self) -> list[bool]:
        return [bool(one.flagged) for one in self.tested]

    @property
    def null_rates(self) -> list[float]:
        return [one.null_rate for one in self.tested if one.null_rate is not None]

    def known(self, name: str) -> list[bool]:
        """What is known under this name of some of the questions."""
        return [value for one in self.joined if (value := getattr(one, name)) is not None]

    @cached_property
    def tested_flags(self) -> Flags:
        return flags_of(self.joined)

    @cached_property
    def unguarded_flags(self) -> Flags:
        return flags_of(self.joined, unguarded=True)

    @property
    def outlier_null_rates(self) -> list[float]:
        tested = [one for one in self.joined if one.outlier is not None]
        return [one.outlier_null_rate for one in tested if one.outlier_null_rate is not None]

    @property
    def prevalence(self) -> Estimate:
        flags, by = self.known("calibrated_flagged"), self.calibrating
        if by is None or not flags:
            return UNKNOWN
        return share_of(flags, *by.calibration.detectors[by.detector].flagged(by.fpr))

    def arm(self, name: str) -> list[bool]:
        """Whether each question of the choice-confusion audit was answered correctly in this arm."""
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
            (audited.flagged, entry.score, entry.stratum)
            for entry, audited in self._once
            if audited.flagged is not None and entry.score is not None
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
        """The gap within strata; None unless there are flagged and unflagged questions with scores of 0 or 1."""
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
