"""Columns that are computed from the questions of a row: shares flagged, what is expected by chance, accuracies, gaps.

This is the only place that computes how many questions a detector flags and how likely that is by chance. Null
hypothesis: without leakage, each question is flagged at its own null rate, independently of the others. A natural
order of the options (a guard) violates it; hence two p-values: one of all tested questions, one of those without a
guard.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from lm_eval_leakage.detectors.choice_confusion import accuracy_difference
from lm_eval_leakage.questions.families import each_once, families
from lm_eval_leakage.results.result_types import AuditedQuestion, Row
from lm_eval_leakage.results.tabulating import COUNT, INTERVAL, NUMBER, PVALUE, Column, Kind
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict_numbers import documented_number
from lm_eval_leakage.stats.accuracy_gap import Gap, accuracy_gap
from lm_eval_leakage.stats.inflation import AnsweredTwice, by_shuffling, by_unseen
from lm_eval_leakage.stats.pooling import (
    NAN,
    UNKNOWN,
    Estimate,
    difference_of_shares,
    mean_and_stderr,
    normal,
    poisson_binomial_tail,
    share,
)

Value = TypeVar("Value")
COMPUTED: list[Column[Row]] = []  # in the order of their definition


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
    """Return the flags of all tested questions, or of those without a guard."""
    tested = [question for question in questions if question.null_rate is not None]
    if unguarded:
        tested = [question for question in tested if not question.guards]
    return Flags([_is_flagged(question) for question in tested], [question.null_rate or 0.0 for question in tested])


def _is_flagged(question: AuditedQuestion) -> bool:
    if question.flagged is not None:
        return question.flagged
    return question.pvalue is not None and question.null_rate is not None and question.pvalue <= question.null_rate


@dataclass(frozen=True)
class Entry:
    """One row of a benchmark.

    score: 1.0 for a correct answer, 0.0 for a wrong one; None if no run answered it
    stratum: questions in the same stratum are taken to be equally hard
    """

    audited: AuditedQuestion | None
    score: float | None = None
    stratum: Hashable = ""


def computed(heading: str, kind: Kind, **more: Any) -> Callable[[Callable[[Measured], Value]], cached_property[Value]]:
    """Return a decorator of a property that is a column, too; `more` as of `Column`."""

    def register(compute: Callable[[Measured], Value]) -> cached_property[Value]:
        key, meaning = documented_number(compute)
        COMPUTED.append(Column(heading, kind, value_by(key, kind), meaning, key, compute=compute, **more))
        return cached_property(compute)

    return register


def value_by(key: str, kind: Kind) -> Callable[[Row], Any]:
    return lambda row: row.values.get(key, kind.undefined)


@dataclass(frozen=True)
class Measured:
    """The questions of a row, and the values that columns need from them. Copies count once.

    unseen: what the model's audits of unseen questions say; None if it was not asked any
    """

    entries: Sequence[Entry]
    unseen: UnseenQuestions | None = None

    @cached_property
    def _once(self) -> list[tuple[Entry, AuditedQuestion]]:
        """Return the questions that were matched to an audit, without copies."""
        matched = [(entry, entry.audited) for entry in self.entries if entry.audited is not None]
        return each_once(matched, lambda pair: pair[1].key, lambda pair: pair[1].benchmark)

    @property
    def n_copies(self) -> int:
        """Return the number of rows that were matched to an audit and left out."""
        return sum(entry.audited is not None for entry in self.entries) - len(self._once)

    @cached_property
    def joined(self) -> list[AuditedQuestion]:
        """Return the questions that were matched to an audit."""
        return [audited for _, audited in self._once]

    @cached_property
    def comparable(self) -> UnseenQuestions | None:
        """Return the unseen questions, if all of the row's are of the benchmark that they are compared with."""
        return self.unseen if self.unseen is not None and self.unseen.compares(self.joined) else None

    @cached_property
    def tested(self) -> list[AuditedQuestion]:
        """Return those that the main detector tested."""
        return [question for question in self.joined if question.flagged is not None]

    @cached_property
    def answered(self) -> list[tuple[bool, float, Hashable]]:
        """Return the flag, score and stratum of each question that was tested and answered."""
        answered = []
        for entry, audited in self._once:
            if audited.flagged is not None and entry.score is not None:
                answered.append((audited.flagged, entry.score, entry.stratum))
        return answered

    @cached_property
    def within_strata(self) -> Gap | None:
        """Return the gap within strata; None unless there are flagged and unflagged questions with scores of 0 or
        1."""
        flags = [flag for flag, _, _ in self.answered]
        if len(set(flags)) < 2 or any(score not in (0, 1) for _, score, _ in self.answered):
            return None
        right = [score == 1 for _, score, _ in self.answered]
        return accuracy_gap(flags, right, [stratum for _, _, stratum in self.answered])

    def known(self, name: str) -> list[Any]:
        """Return what is known under this name of some of the questions."""
        values = [getattr(question, name) for question in self.joined]
        return [value for value in values if value is not None]

    def arm(self, name: str) -> list[bool]:
        """Return whether each question of the choice-confusion audit was answered correctly in this arm."""
        return [getattr(arms, name) for arms in self.known("arms")]

    @computed("flagged", INTERVAL, harness="flagged_rate")
    def flagged_rate(self) -> Estimate:
        """Share of the tested questions that the main detector flags (the weak leakage of Hidayat et al. 2025)."""
        return share([bool(question.flagged) for question in self.tested])

    @computed("by chance", NUMBER, harness="null_rate")
    def null_rate(self) -> float:
        """The share flagged under the detector's null hypothesis, which natural orders violate."""
        return mean_and_stderr([question.null_rate for question in self.tested if question.null_rate is not None])[0]

    @computed("", PVALUE)
    def pvalue(self) -> float:
        """Probability of at least as many flags among all tested questions if the detector's null hypothesis held for
        each (exact); on written orders it does not."""
        return flags_of(self.joined).pvalue

    @computed("flagged, no guard", INTERVAL, in_text=False)
    def flagged_rate_unguarded(self) -> Estimate:
        """Share flagged among the questions whose options have no recognised natural order."""
        return share([bool(question.flagged) for question in self.tested if not question.guards])

    @computed("", PVALUE)
    def pvalue_unguarded(self) -> float:
        """The same of the questions whose options have no recognised natural order."""
        return flags_of(self.joined, unguarded=True).pvalue

    @computed("", COUNT)
    def n_pvalue(self) -> int:
        """Questions that `pvalue` covers."""
        return flags_of(self.joined).n

    @computed("", COUNT)
    def n_pvalue_unguarded(self) -> int:
        """Number of questions that `pvalue_unguarded` covers."""
        return flags_of(self.joined, unguarded=True).n

    @computed("outlier", INTERVAL, harness="outlier_rate", in_text=False)
    def outlier_rate(self) -> Estimate:
        """Share of the questions that the outlier test flags."""
        return share(self.known("outlier"))

    @computed("outlier by chance", NUMBER, in_text=False)
    def outlier_null_rate(self) -> float:
        """Share of the questions that the outlier test flags under its null hypothesis."""
        return mean_and_stderr(self.known("outlier_null_rate"))[0]

    @computed("choice confusion", INTERVAL, harness="confusion_delta")
    def confusion_delta(self) -> Estimate:
        """Accuracy with wrong options replaced by other questions' right ones, minus the original accuracy; a model
        that has not seen the benchmark gains (Yao et al. 2024)."""
        if not self.arm("original"):
            return UNKNOWN
        delta = accuracy_difference(self.arm("original"), self.arm("generalized"))
        return normal(delta.value, delta.stderr)

    @computed("inflation", INTERVAL, harness="inflation", record="inflation")
    def inflation(self) -> Estimate:
        """Accuracy that leakage adds in the benchmark's own prompt, 95 % interval: by unseen questions where
        some were asked (`check --unseen`), else by shuffled options, which show memory of letters; undefined where the
        options' texts are scored and no unseen questions were asked."""
        unseen = self.comparable
        if unseen is not None and unseen.by_letters == bool(self._answered_twice):
            return by_unseen(self.arm("original"), unseen.answered)
        shared = [() if question.orders is None else question.orders.shared for question, _ in self._twice]
        return by_shuffling(self._answered_twice, families(shared))

    @property
    def _answered_twice(self) -> list[AnsweredTwice]:
        return [answered for _, answered in self._twice]

    @cached_property
    def _twice(self) -> list[tuple[AuditedQuestion, AnsweredTwice]]:
        """Return the questions that were answered as published and with their options shuffled."""
        twice = []
        for question in self.joined:
            arms, answer = question.arms, question.answer
            if arms is not None and answer is not None and arms.shuffled_place is not None:
                answers = AnsweredTwice(arms.original, arms.shuffled, answer, arms.shuffled_place)
                twice.append((question, answers))
        return twice

    @computed("accuracy, unflagged", INTERVAL, harness="{metric}_unflagged")
    def accuracy_unflagged(self) -> Estimate:
        """The accuracy of the run on unflagged questions, with Wilson's 95 % interval."""
        return share([score for flag, score, _ in self.answered if not flag])

    @computed("accuracy, flagged", INTERVAL, harness="{metric}_flagged", in_text=False)
    def accuracy_flagged(self) -> Estimate:
        """The accuracy of the run on flagged questions, with Wilson's 95 % interval."""
        return share([score for flag, score, _ in self.answered if flag])

    @computed("gap", INTERVAL, harness="{metric}_gap", in_text=False)
    def gap(self) -> Estimate:
        """Accuracy on flagged minus accuracy on unflagged questions."""
        flagged, unflagged = self.accuracy_flagged, self.accuracy_unflagged
        return difference_of_shares(flagged, unflagged) if flagged and unflagged else UNKNOWN

    @computed("gap within strata", INTERVAL, harness="{metric}_gap_adjusted", in_text=False)
    def gap_adjusted(self) -> Estimate:
        """The gap within strata of similar difficulty, 95 % interval."""
        return normal(self.within_strata.value, self.within_strata.stderr) if self.within_strata else UNKNOWN

    @computed("p of gap", PVALUE, in_text=False)
    def gap_pvalue(self) -> float:
        """The p-value of the gap within strata, one-sided and exact if flagged questions are no easier within their
        stratum."""
        return self.within_strata.pvalue if self.within_strata else NAN

    @computed("flagged and right", INTERVAL, in_text=False)
    def strong_rate(self) -> Estimate:
        """Share flagged and answered correctly (the strong leakage of Hidayat et al. 2025)."""
        return share([flag and score == 1 for flag, score, _ in self.answered] if self.within_strata else [])
