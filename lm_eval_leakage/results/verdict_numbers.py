"""The registry of the numbers of a verdict: each is declared here once, with its names in the outputs that have it.

Made from this list: the columns of `annotate` and of the pages, `verdicts.json`, the section `leakage_details` of
lm_eval's results, the exports, the rows of lm_eval's table, and the tables in docs/annotate/columns.md and
docs/verdicts.md.
To add a number, add a function here, with its names in the outputs; its docstring is the meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.records import DeclaredRow, InWords
from lm_eval_leakage.results.data_verdict import verdict_on
from lm_eval_leakage.results.formatting import count
from lm_eval_leakage.results.tabulating import COUNT, NUMBER, PVALUE, RATIO, TEXT, WITH_ERROR, Cell, Kind, flat_value
from lm_eval_leakage.results.verdict import DataVerdict, VerdictWord
from lm_eval_leakage.results.verdict_words import TIMES, ratio_parts, reason_of, sentence_of
from lm_eval_leakage.stats.order_power import SEEN_TIMES
from lm_eval_leakage.stats.pooling import NAN, UNKNOWN, Estimate, Verdicts

PROBABILITY, SHARE, QUESTIONS, DEVIATIONS = "probability", "share", "questions", "standard deviations"
NO_TEST = "without a test"
NO_CONTROL = "without a positive control that was tested"


def badge_of(word: str) -> str:
    """Return the style of a verdict's word as a badge."""
    return word.replace(" ", "-")


WORD = Kind("", lambda word: Cell(word, order=VerdictWord(word).place, badge=badge_of(word)))


@dataclass(frozen=True)
class VerdictNumber:
    """One number or text of a verdict, and its name in each output that has it; empty in the others.

    of: computes it; kind: its type and format; meaning: a sentence for docs and pages, without its full stop
    unit: of a number; undefined: when it has no value, which is null in JSON and empty in CSV
    heading: in tables and on pages
    column: in JSON and CSV of `annotate` and in `--fail-on`
    record: in `verdicts.json` and in Python
    detail: in `leakage_details` of lm_eval's results and, after `leakage_`, in exports
    row: in lm_eval's table; in_row: its value there, if it is another one; higher_is_better: as lm_eval prints it
    """

    of: Callable[[DataVerdict], Any]
    kind: Kind
    meaning: str
    unit: str = ""
    undefined: str = ""
    heading: str = ""
    column: str = ""
    record: str = ""
    detail: str = ""
    row: str = ""
    in_row: Callable[[DataVerdict], float] | None = None
    higher_is_better: bool | None = None

    @property
    def as_row(self) -> DeclaredRow:
        """Return its row of lm_eval's table."""
        value = self.in_row or self.of
        return DeclaredRow(
            self.row,
            f"{self.meaning}.",
            lambda verdicts: _value_of(value, verdicts),
            higher_is_better=self.higher_is_better,
            questions="orders",
        )


def _value_of(value: Callable[[DataVerdict], float], verdicts: Verdicts) -> float:
    verdict = verdict_on(verdicts)
    return value(verdict) if verdict.basis else math.nan


NUMBERS: list[VerdictNumber] = []  # in the order of their definition, which is that of all outputs


def documented_number(of: Callable[[Any], Any]) -> tuple[str, str]:
    """Return the name of a function and its docstring, as a sentence without its full stop."""
    return of.__name__, " ".join((of.__doc__ or "").split()).removesuffix(".")


def _number(kind: Kind, **names: Any) -> Callable[[Callable[[DataVerdict], Any]], None]:
    """Declare a number whose meaning is the docstring of the decorated function; `names` as of `VerdictNumber`."""

    def register(of: Callable[[DataVerdict], Any]) -> None:
        _, meaning = documented_number(of)
        NUMBERS.append(VerdictNumber(of, kind, meaning, **names))

    return register


def _place_of_word(verdict: DataVerdict) -> float:
    """Return the place of the word among all words, shown as the word."""
    return InWords(VerdictWord(verdict.word).place, verdict.word)


def _deciding_ratio(verdict: DataVerdict) -> float:
    """Return the ratio where no p-value decides, since a table shows first what decides."""
    ratio = verdict.ratio
    if not math.isnan(verdict.pvalue) or math.isnan(ratio.value):
        return math.nan
    return InWords(ratio.value, ", ".join(ratio_parts(ratio)))


@_number(
    WORD,
    heading="verdict",
    column="verdict",
    record="verdict",
    detail="word",
    row="evidence",
    in_row=_place_of_word,
    higher_is_better=False,
)
def word(verdict: DataVerdict) -> str:
    """The verdict on the data set, by option orders: strong evidence, evidence, inconclusive, none found, or no
    verdict."""
    return verdict.word


@_number(TEXT, column="verdict_sentence", record="sentence", detail="sentence")
def sentence(verdict: DataVerdict) -> str:
    """The verdict with its reasons."""
    return sentence_of(verdict)


@_number(TEXT, record="reason")
def reason(verdict: DataVerdict) -> str:
    """The reasons without the word."""
    return reason_of(verdict)


@_number(TEXT, record="remedy")
def remedy(verdict: DataVerdict) -> str:
    """Remedy that may change an inconclusive verdict, or give one where there is none."""
    return verdict.remedy


@_number(TEXT, column="verdict_basis", record="basis", detail="basis")
def basis(verdict: DataVerdict) -> str:
    """Basis of the verdict: “orders”, “control”, “reference” or “fillers”; “ratio” without a p-value, “no
    audit” without answers."""
    return verdict.basis


@_number(TEXT, column="published_orders", record="published_orders", detail="published_orders")
def published_orders(verdict: DataVerdict) -> str:
    """Status of the published orders: “drawn”, “sealed”, “written”, “patterned”, “consistent with
    random” or “too few to say”."""
    return verdict.orders


@_number(COUNT, column="n_verdict", detail="n", unit=QUESTIONS)
def n(verdict: DataVerdict) -> int:
    """The number of questions that the p-value covers."""
    return verdict.n


@_number(COUNT, detail="n_families", unit="families")
def n_families(verdict: DataVerdict) -> int:
    """The number of families of questions, or blocks of rows, that are independent of each other."""
    return verdict.tested.n_units


@_number(COUNT, detail="n_asked", unit=QUESTIONS)
def n_asked(verdict: DataVerdict) -> int:
    """The number of questions whose option orders were scored, or of rows whose names were."""
    return verdict.n_asked


@_number(
    PVALUE,
    heading="p",
    column="evidence_pvalue",
    record="pvalue",
    detail="pvalue",
    row="evidence_pvalue",
    higher_is_better=True,
    unit=PROBABILITY,
    undefined="where no null hypothesis holds, or for fewer than 20 questions",
)
def pvalue(verdict: DataVerdict) -> float:
    """The probability, without leakage, of such a preference for the published orders; undefined where no null
    hypothesis holds."""
    return verdict.pvalue


@_number(
    PVALUE,
    heading="p adjusted",
    column="evidence_pvalue_adjusted",
    record="pvalue_adjusted",
    unit=PROBABILITY,
    undefined="without a p-value",
)
def pvalue_adjusted(verdict: DataVerdict) -> float:
    """The p-value that decides the word: adjusted for the verdicts shown together (Holm), on the benchmarks of all
    models, on the tasks of a group, or on the subjects of a task; and, in `check`, for its look."""
    return verdict.deciding_pvalue


@_number(COUNT, record="n_adjusted", unit="verdicts")
def n_adjusted(verdict: DataVerdict) -> int:
    """The number of verdicts that are shown together, for which the p-value is adjusted."""
    return verdict.n_together


@_number(COUNT, record="look", undefined="where no look is counted")
def look(verdict: DataVerdict) -> int | None:
    """The number of this look among those at this benchmark by this model in the folder."""
    return verdict.look or None


@_number(NUMBER, record="error_share", unit=SHARE)
def error_share(verdict: DataVerdict) -> float:
    """The share of the error of all looks that this one spends."""
    return verdict.spent


@_number(NUMBER, record="level", detail="level", unit=PROBABILITY)
def level(verdict: DataVerdict) -> float:
    """The p-value from which it would be evidence, at its look and among the verdicts shown together."""
    return verdict.level


@_number(TEXT, detail="scope")
def scope(verdict: DataVerdict) -> str:
    """Scope of the bounds and the numbers of questions: “this audit alone”, or the looks and the verdicts of a
    check, whose `verdicts.json` therefore has higher ones than the audit in its folder."""
    looks = [f"look {verdict.look} at this benchmark in its folder"] if verdict.look else []
    verdicts = [f"{count(verdict.n_together)} verdicts"] if verdict.n_together > 1 else []
    return " and ".join([*looks, *verdicts]) or "this audit alone"


@_number(NUMBER, record="detect", detail="detect", unit=SHARE)
def detect(verdict: DataVerdict) -> float:
    """The share of the questions, seen three times, that has to be excluded where nothing is found."""
    return verdict.detect


@_number(NUMBER, detail="pvalue_stderr", unit=PROBABILITY, undefined=NO_TEST)
def pvalue_stderr(verdict: DataVerdict) -> float:
    """The Monte Carlo error of the p-value; 0 if it is exact or a bound."""
    return verdict.tested.pvalue_error


@_number(COUNT, detail="pvalue_is_bound")
def pvalue_is_bound(verdict: DataVerdict) -> bool:
    """True where the p-value is an upper bound."""
    return verdict.tested.is_bound


@_number(NUMBER, column="log_evalue", detail="log_evalue", unit="nats", undefined=NO_TEST)
def log_evalue(verdict: DataVerdict) -> float:
    """The logarithm of the e-value; those of later audits of other questions may be added to it."""
    return verdict.tested.log_evalue


@_number(WITH_ERROR, detail="mean", unit=DEVIATIONS, undefined=NO_TEST)
def mean(verdict: DataVerdict) -> Estimate:
    """The preference for the published orders per question, beyond what it is compared with, ± standard error."""
    tested = verdict.tested
    return UNKNOWN if math.isnan(tested.mean) else Estimate(tested.mean, tested.mean_error)


@_number(
    RATIO,
    heading="order ratio",
    column="order_ratio",
    record="ratio",
    detail="ratio",
    row="order_ratio",
    in_row=_deciding_ratio,
    undefined="for fewer than 20 questions without a guard; in lm_eval's table also beside a p-value",
)
def ratio(verdict: DataVerdict) -> Estimate:
    """Factor by which the published order is the most likely one more often than by chance, among questions without a
    guard, with a one-sided 95 % bound."""
    ratio = verdict.ratio
    return UNKNOWN if math.isnan(ratio.value) else Estimate(ratio.value, NAN, ratio.low, math.inf)


@_number(COUNT, detail="n_ratio", unit=QUESTIONS)
def n_ratio(verdict: DataVerdict) -> int:
    """The number of questions that the order ratio covers."""
    return verdict.ratio.n


@_number(COUNT, detail="seen_at_least", unit=QUESTIONS)
def seen_at_least(verdict: DataVerdict) -> int:
    """The number of questions that were seen at least, with 95 % confidence; 0 where the published orders were not
    drawn."""
    return verdict.seen.n_seen


def _at_most(times: int) -> VerdictNumber:
    name = f"at_most_seen_{times}"
    return VerdictNumber(
        lambda verdict: dict(verdict.at_most).get(times, NAN),
        NUMBER,
        f"The largest share of the questions that may have been seen {TIMES[times]}, with 95 % confidence",
        unit=SHARE,
        undefined="where it may be all of them, or nothing was tested",
        column=name,
        record=name,
        detail=name,
    )


NUMBERS += map(_at_most, SEEN_TIMES)


@_number(COUNT, record="n_needed", unit=QUESTIONS, undefined="unless it is inconclusive and a number would do")
def n_needed(verdict: DataVerdict) -> int | None:
    """About how many questions would find what has to be excluded, by this model's own scores."""
    return verdict.n_needed


def _pvalue_of(test: str, what: str) -> VerdictNumber:
    return VerdictNumber(
        lambda verdict: verdict.pvalue_of_each.get(test, NAN),
        PVALUE,
        f"The p-value of {what} alone",
        unit=PROBABILITY,
        undefined="where it was not tested, or alone unless by texts",
        record=f"pvalue_{test}",
    )


NUMBERS += [
    _pvalue_of("orders", "option orders"),
    _pvalue_of("texts", "whole texts"),
    _pvalue_of("names", "exchanged names"),
]


def _of_control(
    name: str, kind: Kind, unit: str, field: str, meaning: str, undefined: str = NO_CONTROL
) -> VerdictNumber:
    """Return the number that a field of the positive control is."""
    return VerdictNumber(
        lambda verdict: NAN if verdict.positive is None else getattr(verdict.positive, field),
        kind,
        meaning,
        unit=unit,
        undefined=undefined,
        record=f"positive_{name}",
    )


NUMBERS += [
    _of_control("effect", NUMBER, DEVIATIONS, "effect", "The preference that the positive control showed"),
    _of_control("stderr", NUMBER, DEVIATIONS, "error", "The standard error of that preference"),
    _of_control("pvalue", PVALUE, PROBABILITY, "pvalue", "The p-value of the positive control"),
    _of_control(
        "at_most",
        NUMBER,
        SHARE,
        "at_most",
        "The largest share of the questions that were seen as often as those of the positive control, with 95 % "
        "confidence",
        "unless the positive control shows memory",
    ),
]


VERDICT_ROWS = tuple(entry.as_row for entry in NUMBERS if entry.row)


def details(verdict: DataVerdict) -> Mapping[str, Scalar]:
    """Return everything about a verdict that lm_eval's results file has, by name; None where undefined."""
    values: dict[str, Scalar] = {}
    for entry in NUMBERS:
        if entry.detail:
            values |= flat_value(entry.detail, entry.kind, entry.of(verdict))
    return values
