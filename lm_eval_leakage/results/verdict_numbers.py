"""The registry of the numbers of a verdict: each is declared here once, with its names in the outputs that have it.

Made from this list: the columns of `annotate` and of the pages, `verdicts.json`, the section `leakage_details` of
lm_eval's results, the exports, the rows of lm_eval's table, and the tables in docs/annotate.md and docs/verdicts.md.
To add a number, add a function here: its name is the key, its docstring the meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.logs.audit_line import Scalar
from lm_eval_leakage.records import DeclaredRow, InWords
from lm_eval_leakage.results.data_verdict import verdict_on
from lm_eval_leakage.results.formatting import (
    COUNT,
    NUMBER,
    PVALUE,
    RATIO,
    TEXT,
    WITH_ERROR,
    Cell,
    Kind,
    flat_value,
    number,
)
from lm_eval_leakage.results.verdict_words import DataVerdict, VerdictWord
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

    of: computes it; kind: its type and format; meaning: a sentence for docs and pages
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
            f"{self.meaning[:1].upper()}{self.meaning[1:]}.",
            lambda verdicts: _value_of(value, verdicts),
            higher_is_better=self.higher_is_better,
            questions="orders",
        )


def _value_of(value: Callable[[DataVerdict], float], verdicts: Verdicts) -> float:
    verdict = verdict_on(verdicts)
    return value(verdict) if verdict.basis else math.nan


NUMBERS: list[VerdictNumber] = []  # in the order of their definition, which is that of all outputs


def documented(of: Callable[[Any], Any]) -> tuple[str, str]:
    """Return the key and the meaning of a number: the function's name and its docstring."""
    return of.__name__, " ".join((of.__doc__ or "").split())


def _number(kind: Kind, *, in_annotate: bool = False, **names: Any) -> Callable[[Callable[[DataVerdict], Any]], None]:
    """Declare a number; `names` as of `VerdictNumber`.

    in_annotate: whether `annotate` has it, by the function's name
    """

    def register(of: Callable[[DataVerdict], Any]) -> None:
        key, meaning = documented(of)
        NUMBERS.append(VerdictNumber(of, kind, meaning, column=key if in_annotate else "", **names))

    return register


def _place_of_word(verdict: DataVerdict) -> float:
    """Return the place of the word among all words, shown as the word."""
    return InWords(VerdictWord(verdict.word).place, verdict.word)


def _deciding_ratio(verdict: DataVerdict) -> float:
    """Return the ratio where no p-value decides, since a table shows first what decides."""
    ratio = verdict.ratio
    if not math.isnan(verdict.pvalue) or math.isnan(ratio.value):
        return math.nan
    return InWords(ratio.value, f"{number(ratio.value, 2)}, at least {number(ratio.low, 2)}")


@_number(
    WORD,
    in_annotate=True,
    heading="verdict",
    record="verdict",
    detail="word",
    row="evidence",
    in_row=_place_of_word,
    higher_is_better=False,
)
def verdict(found: DataVerdict) -> str:
    """on the data set, by option orders: strong evidence, evidence, inconclusive, none found, or no verdict"""
    return found.word


@_number(TEXT, in_annotate=True, record="sentence", detail="sentence")
def verdict_sentence(found: DataVerdict) -> str:
    """the verdict with its reasons"""
    return found.sentence


@_number(TEXT, record="reason")
def reason(found: DataVerdict) -> str:
    """the reasons without the word"""
    return found.reason


@_number(TEXT, record="remedy")
def remedy(found: DataVerdict) -> str:
    """what may change a verdict that is inconclusive, or a benchmark without a verdict"""
    return found.remedy


@_number(TEXT, in_annotate=True, record="basis", detail="basis")
def verdict_basis(found: DataVerdict) -> str:
    """what it is computed from: “orders”, “control”, “reference”, or “ratio” without a p-value"""
    return found.basis


@_number(TEXT, in_annotate=True, record="published_orders", detail="published_orders")
def published_orders(found: DataVerdict) -> str:
    """“drawn”, “sealed”, “written”, “consistent with random” or “too few to say”: whether the published orders were
    drawn at random"""
    return found.orders


@_number(COUNT, in_annotate=True, detail="n", unit=QUESTIONS)
def n_verdict(found: DataVerdict) -> int:
    """questions that its p-value covers"""
    return found.n


@_number(COUNT, detail="n_families", unit="families")
def n_families(found: DataVerdict) -> int:
    """families of questions, or blocks of rows, that are independent of each other"""
    return found.tested.n_units


@_number(COUNT, detail="n_asked", unit=QUESTIONS)
def n_asked(found: DataVerdict) -> int:
    """questions whose option orders, or rows whose names, were asked"""
    return found.n_asked


@_number(
    PVALUE,
    in_annotate=True,
    heading="p",
    record="pvalue",
    detail="pvalue",
    row="evidence_pvalue",
    higher_is_better=True,
    unit=PROBABILITY,
    undefined="where no null hypothesis holds, or for fewer than 20 questions",
)
def evidence_pvalue(found: DataVerdict) -> float:
    """probability, without leakage, of such a preference for the published orders; none where no null hypothesis
    holds"""
    return found.pvalue


@_number(
    PVALUE,
    in_annotate=True,
    heading="p adjusted",
    record="pvalue_adjusted",
    unit=PROBABILITY,
    undefined="without a p-value",
)
def evidence_pvalue_adjusted(found: DataVerdict) -> float:
    """the same, adjusted for the verdicts shown together (Holm): on the benchmarks of all models, on the tasks of a
    group, or on the subjects of a task; and, in `check`, for its look; it decides the word"""
    return found.deciding_pvalue


@_number(COUNT, record="n_adjusted", unit="verdicts")
def n_adjusted(found: DataVerdict) -> int:
    """verdicts that are shown together, for which the p-value is adjusted"""
    return found.n_together


@_number(COUNT, record="look", undefined="where no look is counted")
def look(found: DataVerdict) -> int | None:
    """its number among the looks at this benchmark by this model in the folder"""
    return found.look or None


@_number(NUMBER, record="error_share", unit=SHARE)
def error_share(found: DataVerdict) -> float:
    """share of the error of all looks that this one spends"""
    return found.spent


@_number(NUMBER, record="detect", unit=SHARE)
def detect(found: DataVerdict) -> float:
    """share of the questions, seen three times, that has to be excluded where nothing is found"""
    return found.detect


@_number(NUMBER, detail="pvalue_stderr", unit=PROBABILITY, undefined=NO_TEST)
def pvalue_stderr(found: DataVerdict) -> float:
    """Monte Carlo error of the p-value; 0 if it is exact or a bound"""
    return found.tested.pvalue_error


@_number(COUNT, detail="pvalue_is_bound")
def pvalue_is_bound(found: DataVerdict) -> bool:
    """whether the p-value is an upper bound"""
    return found.tested.is_bound


@_number(NUMBER, in_annotate=True, detail="log_evalue", unit="nats", undefined=NO_TEST)
def log_evalue(found: DataVerdict) -> float:
    """logarithm of the e-value; those of later audits of other questions may be added to it"""
    return found.tested.log_evalue


@_number(WITH_ERROR, detail="mean", unit=DEVIATIONS, undefined=NO_TEST)
def mean(found: DataVerdict) -> Estimate:
    """preference for the published orders per question, beyond what it is compared with, ± standard error"""
    tested = found.tested
    return UNKNOWN if math.isnan(tested.mean) else Estimate(tested.mean, tested.mean_error)


@_number(
    RATIO,
    in_annotate=True,
    heading="order ratio",
    record="ratio",
    detail="ratio",
    row="order_ratio",
    in_row=_deciding_ratio,
    undefined="for fewer than 20 questions without a guard; in lm_eval's table also beside a p-value",
)
def order_ratio(found: DataVerdict) -> Estimate:
    """how many times as often as by chance the published order is the most likely one, among questions without a
    guard, with a one-sided 95 % bound"""
    ratio = found.ratio
    return UNKNOWN if math.isnan(ratio.value) else Estimate(ratio.value, NAN, ratio.low, math.inf)


@_number(COUNT, detail="n_ratio", unit=QUESTIONS)
def n_ratio(found: DataVerdict) -> int:
    """questions that the order ratio covers"""
    return found.ratio.n


@_number(COUNT, detail="seen_at_least", unit=QUESTIONS)
def seen_at_least(found: DataVerdict) -> int:
    """questions that were seen at least, with 95 % confidence; 0 where the published orders were not drawn"""
    return found.seen.n_seen


def _at_most(times: int) -> VerdictNumber:
    return VerdictNumber(
        lambda found: dict(found.at_most).get(times, NAN),
        NUMBER,
        f"share of questions, seen {times} time(s), that is not exceeded, with 95 % confidence",
        unit=SHARE,
        undefined="where it may be all of them, or nothing was tested",
        column=f"at_most_seen_{times}",
        detail=f"at_most_seen_{times}",
    )


NUMBERS += map(_at_most, SEEN_TIMES)


@_number(COUNT, record="n_needed", unit=QUESTIONS, undefined="unless it is inconclusive and a number would do")
def n_needed(found: DataVerdict) -> int | None:
    """about how many questions, if asked, would find what has to be excluded, by this model's own scores"""
    return found.n_needed


def _of_test(name: str, what: str) -> VerdictNumber:
    return VerdictNumber(
        lambda found: found.pvalue_of_each.get(name, NAN),
        PVALUE,
        f"p-value of {what} alone",
        unit=PROBABILITY,
        undefined="where it was not tested, or alone unless by texts",
        record=f"pvalue_{name}",
    )


NUMBERS += [
    _of_test("orders", "option orders"),
    _of_test("texts", "whole texts"),
    _of_test("names", "exchanged names"),
]


@_number(NUMBER, record="positive_effect", unit=DEVIATIONS, undefined=NO_CONTROL)
def positive_effect(found: DataVerdict) -> float:
    """preference that the positive control showed"""
    return NAN if found.positive is None else found.positive.effect


@_number(NUMBER, record="positive_stderr", unit=DEVIATIONS, undefined=NO_CONTROL)
def positive_stderr(found: DataVerdict) -> float:
    """standard error of that preference"""
    return NAN if found.positive is None else found.positive.error


@_number(PVALUE, record="positive_pvalue", unit=PROBABILITY, undefined=NO_CONTROL)
def positive_pvalue(found: DataVerdict) -> float:
    """p-value of the positive control"""
    return NAN if found.positive is None else found.positive.pvalue


@_number(NUMBER, record="positive_at_most", unit=SHARE, undefined="unless the positive control shows memory")
def positive_at_most(found: DataVerdict) -> float:
    """share of the questions that were seen as often as those of the positive control, not exceeded with 95 %
    confidence"""
    return NAN if found.positive is None else found.positive.at_most


VERDICT_ROWS = tuple(one.as_row for one in NUMBERS if one.row)


def details(found: DataVerdict) -> Mapping[str, Scalar]:
    """Return everything about a verdict that lm_eval's results file has, by name; None where undefined."""
    values: dict[str, Scalar] = {}
    for one in NUMBERS:
        if one.detail:
            values |= flat_value(one.detail, one.kind, one.of(found))
    return values
