"""The registry of results columns: key, heading, meaning, computation and format of each in one entry.

Text tables, Markdown, LaTeX, CSV, JSON, the pages, the harness's results and `--fail-on` read this module. To add a
column, add one entry to one of its sections, or a property of `Measured` that is marked `computed` if it is computed
from a row's questions (its name is the key, its docstring the meaning), and its line to docs/annotate.md (a failing
test prints that line).

This is the only place that computes how many questions a detector flags and how likely that is by chance. Null
hypothesis: without leakage, each question is flagged at its own null rate, independently of the others. A natural
order of the options (a guard) violates it; hence two p-values: one of all tested questions, one of those without a
guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from lm_eval_leakage.detectors.choice_confusion import difference
from lm_eval_leakage.questions.families import each_once, families
from lm_eval_leakage.records import ARMS
from lm_eval_leakage.results.formatting import (
    BOUND_OF_PVALUE,
    COUNT,
    INTERVAL,
    NUMBER,
    PVALUE,
    RATIO,
    TEXT,
    WITH_ERROR,
    Cell,
    Column,
    Kind,
)
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion, Row
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict_words import WORDS, DataVerdict
from lm_eval_leakage.stats.accuracy_gap import Gap, accuracy_gap
from lm_eval_leakage.stats.inflation import AnsweredTwice, by_shuffling, by_unseen, without
from lm_eval_leakage.stats.order_power import SEEN_TIMES
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


def badge_of(word: str) -> str:
    """The style of a verdict's word as a badge."""
    return word.replace(" ", "-")


METRIC = Kind("", lambda key: Cell(key.removesuffix(",none")))
WORD = Kind("", lambda word: Cell(word, order=WORDS.index(word), badge=badge_of(word)))  # the most suspicious last


def _of_row(key: str, heading: str, kind: Kind, meaning: str, *, is_optional: bool = False) -> Column[Row]:
    """A field of the row."""
    return Column(heading, kind, attrgetter(key), meaning, key, is_optional=is_optional)


UNCOUNTED = "too long, or without a valid answer; left out if there are none"
TOO_LONG = "they are longer than the model's window; left out if there are none"
OF_RUN: Sequence[Column[Row]] = (
    MODEL := _of_row("model", "model", TEXT, "with its revision where one was asked for"),
    TASK := _of_row("task", "task", TEXT, "a group, a task, or a subject of a task as task/subject"),
    _of_row("level", "", TEXT, "“group”, “task”, or “subject” of a task"),
    _of_row("group", "", TEXT, "the outermost group that the task or group is in"),
    _of_row("metric", "metric", METRIC, "as the harness names it, with the filter where there is one"),
    _of_row("n_shot", "shots", TEXT, "number of examples before each question"),
    _of_row("n", "n", COUNT, "questions of the run"),
    ACCURACY := _of_row("accuracy", "accuracy", WITH_ERROR, "in the run, as the harness gave it, ± standard error"),
)
OF_AUDITS: Sequence[Column[Row]] = (
    _of_row("n_joined", "", COUNT, "questions of the run that were matched to an audit, without copies"),
    _of_row("n_copies", "", COUNT, "copies of questions, which only `n` and the accuracy count"),
    _of_row("n_left_out", "", COUNT, f"questions that the accuracy does not count: {UNCOUNTED}", is_optional=True),
    _of_row("n_too_long", "", COUNT, f"questions that were not asked, since {TOO_LONG}", is_optional=True),
    N_TESTED := _of_row("n_tested", "tested", COUNT, "questions of the run that the main detector tested"),
)

# ---------------------------------------------------------------------- of the verdict

OF_VERDICT: list[Column[Row]] = []


def _pvalue_cell(row: Row, value: float) -> Cell:
    return (BOUND_OF_PVALUE if row.verdict.is_bound else PVALUE).cell(value)


def _documented(of: Callable[[Any], Any]) -> tuple[str, str]:
    """The key and the meaning of a column: the function's name and its docstring."""
    return of.__name__, " ".join((of.__doc__ or "").split())


def _of_verdict(heading: str, kind: Kind, harness: str = "") -> Callable[[Callable[[DataVerdict], Any]], None]:
    def register(of: Callable[[DataVerdict], Any]) -> None:
        key, meaning = _documented(of)
        shown = (lambda row: _pvalue_cell(row, of(row.verdict))) if kind is PVALUE else None
        OF_VERDICT.append(Column(heading, kind, lambda row: of(row.verdict), meaning, key, shown, harness=harness))

    return register


@_of_verdict("verdict", WORD)
def verdict(found: DataVerdict) -> str:
    """on the data set, by option orders: strong evidence, evidence, inconclusive, none found, or cannot be told"""
    return found.word


@_of_verdict("p", PVALUE, harness="evidence_pvalue")
def evidence_pvalue(found: DataVerdict) -> float:
    """probability, without leakage, of such a preference for the published orders; none where no null hypothesis
    holds"""
    return found.pvalue


@_of_verdict("p adjusted", PVALUE)
def evidence_pvalue_adjusted(found: DataVerdict) -> float:
    """the same, adjusted for the verdicts shown together (Holm): on the benchmarks of all models, on the tasks of a
    group, or on the subjects of a task; and, in `check`, for its look; it decides the word"""
    return found.adjusted


@_of_verdict("order ratio", RATIO, harness="order_ratio")
def order_ratio(found: DataVerdict) -> Estimate:
    """how many times as often as by chance the published order is the most likely one, among questions without a
    guard, with a one-sided 95 % bound"""
    ratio = found.ratio
    return UNKNOWN if math.isnan(ratio.value) else Estimate(ratio.value, NAN, ratio.low, math.inf)


@_of_verdict("", TEXT)
def verdict_sentence(found: DataVerdict) -> str:
    """the verdict with its reasons"""
    return found.sentence


@_of_verdict("", TEXT)
def verdict_basis(found: DataVerdict) -> str:
    """what it is computed from: “orders”, “control”, “reference”, or “ratio” without a p-value"""
    return found.basis


@_of_verdict("", TEXT)
def published_orders(found: DataVerdict) -> str:
    """“drawn”, “sealed”, “written”, “consistent with random” or “too few to say”: whether the published orders were
    drawn at random"""
    return found.orders


@_of_verdict("", COUNT)
def n_verdict(found: DataVerdict) -> int:
    """questions that its p-value covers"""
    return found.n


@_of_verdict("", NUMBER)
def log_evalue(found: DataVerdict) -> float:
    """logarithm of the e-value; those of later audits of other questions may be added to it"""
    return found.tested.log_evalue


def _at_most(count: int) -> Column[Row]:
    meaning = f"share of questions, seen {count} time(s), that is not exceeded, with 95 % confidence"
    return Column("", NUMBER, lambda row: dict(row.verdict.at_most).get(count, NAN), meaning, f"at_most_seen_{count}")


OF_VERDICT += map(_at_most, SEEN_TIMES)
VERDICT = OF_VERDICT[0]

# ---------------------------------------------------------------------- computed from the row's questions


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
    """One row of a benchmark.

    score: 1.0 for a correct answer, 0.0 for a wrong one; None if no run answered it
    stratum: questions in the same stratum are taken to be equally hard
    """

    audited: AuditedQuestion | None
    score: float | None = None
    stratum: Hashable = ""


COMPUTED: list[Column[Row]] = []  # in the order of their definition


def computed(heading: str, kind: Kind, **more: Any) -> Callable[[Callable[[Measured], Value]], cached_property[Value]]:
    """A property that is a column, too; `more` as of `Column`."""

    def register(compute: Callable[[Measured], Value]) -> cached_property[Value]:
        key, meaning = _documented(compute)
        COMPUTED.append(Column(heading, kind, _value_by(key, kind), meaning, key, compute=compute, **more))
        return cached_property(compute)

    return register


def _value_by(key: str, kind: Kind) -> Callable[[Row], Any]:
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
        """The questions that were matched to an audit, without copies."""
        matched = [(entry, entry.audited) for entry in self.entries if entry.audited is not None]
        return each_once(matched, lambda pair: pair[1].key, lambda pair: pair[1].benchmark)

    @property
    def n_copies(self) -> int:
        """Number of rows that were matched to an audit and left out."""
        return sum(entry.audited is not None for entry in self.entries) - len(self._once)

    @cached_property
    def joined(self) -> list[AuditedQuestion]:
        """The questions that were matched to an audit."""
        return [audited for _, audited in self._once]

    @cached_property
    def comparable(self) -> UnseenQuestions | None:
        """The unseen questions, if all of the row's are of the benchmark that they are compared with."""
        return self.unseen if self.unseen is not None and self.unseen.compares(self.joined) else None

    @cached_property
    def tested(self) -> list[AuditedQuestion]:
        """Those that the main detector tested."""
        return [one for one in self.joined if one.flagged is not None]

    @cached_property
    def answered(self) -> list[tuple[bool, float, Hashable]]:
        """Flag, score and stratum of each question that was tested and answered."""
        return [
            (audited.flagged, entry.score, entry.stratum)
            for entry, audited in self._once
            if audited.flagged is not None and entry.score is not None
        ]

    @cached_property
    def within_strata(self) -> Gap | None:
        """The gap within strata; None unless there are flagged and unflagged questions with scores of 0 or 1."""
        flags = [flag for flag, _, _ in self.answered]
        if len(set(flags)) < 2 or any(score not in (0, 1) for _, score, _ in self.answered):
            return None
        right = [score == 1 for _, score, _ in self.answered]
        return accuracy_gap(flags, right, [stratum for _, _, stratum in self.answered])

    def known(self, name: str) -> list[Any]:
        """What is known under this name of some of the questions."""
        return [value for one in self.joined if (value := getattr(one, name)) is not None]

    def arm(self, name: str) -> list[bool]:
        """Whether each question of the choice-confusion audit was answered correctly in this arm."""
        return [getattr(arms, name) for arms in self.known("arms")]

    @computed("flagged", WITH_ERROR, harness="flagged_rate")
    def flagged_rate(self) -> Estimate:
        """share of the tested questions that the main detector flags (the weak leakage of Hidayat et al. 2025)"""
        return share([bool(one.flagged) for one in self.tested])

    @computed("by chance", NUMBER, harness="null_rate")
    def null_rate(self) -> float:
        """that share under the detector's null hypothesis, which natural orders violate"""
        return mean_and_stderr([one.null_rate for one in self.tested if one.null_rate is not None])[0]

    @computed("", PVALUE)
    def pvalue(self) -> float:
        """probability of at least as many flags among all tested questions if the detector's null hypothesis held for
        each (exact); on written orders it does not"""
        return flags_of(self.joined).pvalue

    @computed("flagged, no guard", WITH_ERROR, in_text=False)
    def flagged_rate_unguarded(self) -> Estimate:
        """share flagged among the questions whose options have no recognised natural order"""
        return share([bool(one.flagged) for one in self.tested if not one.guards])

    @computed("", PVALUE)
    def pvalue_unguarded(self) -> float:
        """the same of the questions whose options have no recognised natural order"""
        return flags_of(self.joined, unguarded=True).pvalue

    @computed("", COUNT)
    def n_pvalue(self) -> int:
        """questions that `pvalue` covers"""
        return flags_of(self.joined).n

    @computed("", COUNT)
    def n_pvalue_unguarded(self) -> int:
        """how many questions `pvalue_unguarded` covers"""
        return flags_of(self.joined, unguarded=True).n

    @computed("outlier", WITH_ERROR, harness="outlier_rate", in_text=False)
    def outlier_rate(self) -> Estimate:
        """share of the questions that the outlier test flags"""
        return share(self.known("outlier"))

    @computed("outlier by chance", NUMBER, in_text=False)
    def outlier_null_rate(self) -> float:
        """that share under the test's null hypothesis"""
        return mean_and_stderr(self.known("outlier_null_rate"))[0]

    @computed("choice confusion", WITH_ERROR, harness="confusion_delta")
    def confusion_delta(self) -> Estimate:
        """accuracy with wrong options replaced by other questions' right ones, minus the original accuracy; a model
        that has not seen the benchmark gains (Yao et al. 2024)"""
        if not self.arm("original"):
            return UNKNOWN
        delta = difference(self.arm("original"), self.arm("generalized"))
        return normal(delta.value, delta.stderr)

    @computed("inflation", INTERVAL, harness="inflation")
    def inflation(self) -> Estimate:
        """what leakage adds to the accuracy in the benchmark's own prompt, 95 % interval: by unseen questions where
        some were asked (`check --unseen`), else by shuffled options, which show memory of letters; undefined where the
        options' texts are scored and no unseen questions were asked"""
        unseen = self.comparable
        if unseen is not None and unseen.by_letters == bool(self._answered_twice):
            return by_unseen(self.arm("original"), unseen.answered)
        shared = [() if one.orders is None else one.orders.shared for one, _ in self._twice]
        return by_shuffling(self._answered_twice, families(shared))

    @property
    def _answered_twice(self) -> list[AnsweredTwice]:
        return [answered for _, answered in self._twice]

    @cached_property
    def _twice(self) -> list[tuple[AuditedQuestion, AnsweredTwice]]:
        """The questions that were answered as published and with their options shuffled."""
        return [
            (one, AnsweredTwice(one.arms.original, one.arms.shuffled, one.answer, one.arms.shuffled_place))
            for one in self.joined
            if one.arms is not None and one.answer is not None and one.arms.shuffled_place is not None
        ]

    @computed("accuracy, unflagged", INTERVAL, harness="{metric}_unflagged")
    def accuracy_unflagged(self) -> Estimate:
        """in the run, on unflagged questions, with Wilson's 95 % interval"""
        return share([score for flag, score, _ in self.answered if not flag])

    @computed("accuracy, flagged", INTERVAL, harness="{metric}_flagged", in_text=False)
    def accuracy_flagged(self) -> Estimate:
        """in the run, on flagged questions, with Wilson's 95 % interval"""
        return share([score for flag, score, _ in self.answered if flag])

    @computed("gap", INTERVAL, harness="{metric}_gap", in_text=False)
    def gap(self) -> Estimate:
        """accuracy on flagged minus accuracy on unflagged questions"""
        flagged, unflagged = self.accuracy_flagged, self.accuracy_unflagged
        return difference_of_shares(flagged, unflagged) if flagged and unflagged else UNKNOWN

    @computed("gap within strata", INTERVAL, harness="{metric}_gap_adjusted", in_text=False)
    def gap_adjusted(self) -> Estimate:
        """the gap within strata of similar difficulty, 95 % interval"""
        return normal(self.within_strata.value, self.within_strata.stderr) if self.within_strata else UNKNOWN

    @computed("p of gap", PVALUE, in_text=False)
    def gap_pvalue(self) -> float:
        """of the gap within strata, one-sided and exact if flagged questions are no easier within their stratum"""
        return self.within_strata.pvalue if self.within_strata else NAN

    @computed("flagged and right", WITH_ERROR, in_text=False)
    def strong_rate(self) -> Estimate:
        """share flagged and answered correctly (the strong leakage of Hidayat et al. 2025)"""
        return share([flag and score == 1 for flag, score, _ in self.answered] if self.within_strata else [])


_BY_KEY = {column.key: column for column in COMPUTED}
FLAGGED, FLAGGED_UNGUARDED = _BY_KEY["flagged_rate"], _BY_KEY["flagged_rate_unguarded"]
NULL_RATE = _BY_KEY["null_rate"]
PVALUE_ALL, PVALUE_UNGUARDED = _BY_KEY["pvalue"], _BY_KEY["pvalue_unguarded"]
CONFUSION = _BY_KEY["confusion_delta"]
ACCURACY_FLAGGED, ACCURACY_UNFLAGGED = _BY_KEY["accuracy_flagged"], _BY_KEY["accuracy_unflagged"]
GAP, GAP_ADJUSTED, GAP_PVALUE = _BY_KEY["gap"], _BY_KEY["gap_adjusted"], _BY_KEY["gap_pvalue"]
STRONG = _BY_KEY["strong_rate"]
INFLATION = _BY_KEY["inflation"]


def _without_leakage(row: Row) -> Estimate:
    return without(row.accuracy, INFLATION.of(row)) if row.metric.startswith("acc") else UNKNOWN


ACCURACY_CLEAN: Column[Row] = Column(
    "accuracy, clean",
    INTERVAL,
    _without_leakage,
    "the run's accuracy minus the inflation, with its 95 % interval: an estimate without leakage",
    "accuracy_clean",
)

ARMS_IN_WORDS = {
    "original": "as published",
    "shuffled": "shuffled",
    "replaced": "options replaced",
    "generalized": "replaced and shuffled",
}


def _arm(name: str) -> Column[Row]:
    key, meaning = f"accuracy_{name}", f"accuracy in the choice-confusion audit, {ARMS_IN_WORDS[name]}"
    of, compute = _value_by(key, INTERVAL), lambda measured: share(measured.arm(name))
    meaning += "; left out without that audit"
    return Column("", INTERVAL, of, meaning, key, compute=compute, is_optional=True)


ARM_COLUMNS = {name: _arm(name) for name in ARMS}


def displayed() -> list[Column[Row]]:
    """Columns with a heading, in the order of tables and pages: accuracies come together."""
    by_flag = (ACCURACY_UNFLAGGED, ACCURACY_FLAGGED)
    found = dict.fromkeys((*OF_RUN, ACCURACY_CLEAN, INFLATION, *OF_VERDICT, *by_flag, *OF_AUDITS, *COMPUTED))
    return [column for column in found if column.heading]


def recorded() -> list[Column[Row]]:
    """All columns in the order of JSON and CSV: texts, counts, estimates, other numbers, each in the order of the
    sections."""
    sorts = (str, int, Estimate, float)
    return sorted(_every(), key=lambda column: sorts.index(type(column.kind.undefined)))


def in_harness() -> list[Column[Row]]:
    """Columns that the harness's results have, in that order."""
    return [column for column in _every() if column.harness]


def _every() -> list[Column[Row]]:
    return [*OF_RUN, *OF_VERDICT, *OF_AUDITS, *COMPUTED, ACCURACY_CLEAN, *ARM_COLUMNS.values()]


def values_of(measured: Measured) -> dict[str, Any]:
    """Values, by key, of the columns that are computed from a row's questions."""
    return {column.key: column.compute(measured) for column in recorded() if column.compute is not None}


# ---------------------------------------------------------------------- of a question


def _of_question(key: str, meaning: str, of: Callable[[Any], Any] | None = None) -> Column[Any]:
    """In annotated samples and `load_run`."""
    return Column("", TEXT, of or attrgetter(key), meaning, key)


def _of_arm(name: str) -> Column[AuditedQuestion]:
    meaning = f"whether choice confusion's arm `{name}` was answered correctly"
    return _of_question(f"right_{name}", meaning, lambda one: one.arms and bool(getattr(one.arms, name)))


# In the files the run's metrics come before IS_AUDITED, and the values of other detectors last.
RUN_COLUMNS: Sequence[Column[AnnotatedQuestion]] = (
    _of_question("task", "as the harness names it"),
    _of_question("n_shot", "number of examples before the question"),
    _of_question("doc_id", "number of the row in the task"),
    _of_question(
        "doc_hash",
        "hash of the row, by which audits are joined; null where the run does not record it",
        lambda question: question.doc_hash or None,
    ),
    _of_question("subject", "as the benchmark files the question"),
)
IS_AUDITED = _of_question(
    "audited", "whether an audit has the question", lambda question: question.audited is not None
)
AUDIT_COLUMNS: Sequence[Column[AuditedQuestion]] = (
    _of_question("flagged", "by the main detector; null where it was not tested"),
    _of_question("pvalue", "of the main detector on this question alone"),
    _of_question("null_rate", "probability of a flag under its null hypothesis"),
    _of_question("score", "what the main detector ranks questions by"),
    _of_question("margin", "published order minus the best other order, nats"),
    _of_question("n_orders", "number of orders that were scored"),
    _of_question("reason", "why it was not tested"),
    _of_question("guards", "natural orders of its options", lambda one: ",".join(one.guards)),
    _of_question("outlier_flagged", "by the outlier test", attrgetter("outlier")),
    *map(_of_arm, ARMS),
)
