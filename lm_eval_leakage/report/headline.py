"""The first sentences of a page: the verdict on each benchmark, then accuracy and flags with their reservations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lm_eval_leakage.results.column import badge_of
from lm_eval_leakage.results.column_registry import (
    ACCURACY_UNFLAGGED,
    FLAGGED,
    FLAGGED_UNGUARDED,
    GAP_ADJUSTED,
    GAP_PVALUE,
    NULL_RATE,
    PVALUE_ALL,
)
from lm_eval_leakage.results.formatting import count, counted, number, plus_minus, pvalue_equation
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.suspicion import benchmarks

N_HEADLINES = 4  # benchmarks of one model that are described first; its section has the verdicts on all


@dataclass(frozen=True)
class Headline:
    """What is found about one benchmark; word: of the verdict, empty if no option orders were asked"""

    text: str
    word: str = ""

    @property
    def badge(self) -> str:
        return badge_of(self.word)


Say = Callable[[Row, str], Headline]


def headlines(annotation: Annotation, say: Say) -> tuple[Headline, ...]:
    """One finding for each of the model's benchmarks, the most suspicious first.

    say: `headline`, or `in_short` if there are several
    """
    rows = benchmarks(annotation.rows)
    if not rows:
        return (Headline(f"No task of {annotation.model} could be read."),)
    found = [say(row, annotation.detector) for row in rows[:N_HEADLINES]]
    left = len(rows) - N_HEADLINES
    more = f"{counted(left, 'more benchmark')} of {annotation.model} in the table."
    return (*found, Headline(more)) if left > 0 else (*found,)


def other_verdicts(annotation: Annotation) -> tuple[Headline, ...]:
    """The verdicts on the benchmarks that have no headline."""
    rows = [row for row in benchmarks(annotation.rows)[N_HEADLINES:] if row.verdict.word]
    return tuple(Headline(f"{row.name} (n = {count(row.n)}): {row.verdict.reason}.", row.verdict.word) for row in rows)


def headline(row: Row, detector: str) -> Headline:
    parts = (_verdict(row), _accuracy(row), _flags(row, detector), _reservation(row), _gap(row))
    return Headline(" ".join(part for part in parts if part), row.verdict.word)


def in_short(row: Row, detector: str) -> Headline:
    """The same in one sentence."""
    facts = [row.verdict.reason] if row.verdict.word else []
    if row.accuracy:
        facts.append(f"accuracy {plus_minus(row.accuracy)}")
        if ACCURACY_UNFLAGGED.of(row) and n_flagged(row):
            n_unflagged = counted(row.n_tested - n_flagged(row))
            facts[-1] += f", {plus_minus(ACCURACY_UNFLAGGED.of(row))} on the {n_unflagged} not flagged"
    if FLAGGED.of(row):
        facts.append(f"{count(n_flagged(row))} flagged{_chance(row)}")
    found = f"{_named(row)}{': ' if facts else ''}{'; '.join(facts)}. {_untested(row, detector)}"
    return Headline(found.rstrip(), row.verdict.word)


def n_flagged(row: Row) -> int:
    return round(FLAGGED.of(row).value * row.n_tested) if FLAGGED.of(row) else 0


def _named(row: Row) -> str:
    return f"{row.model} on {row.name} (n = {count(row.n)})"


def _verdict(row: Row) -> str:
    return f"{_named(row)}: {row.verdict.reason}." if row.verdict.word else ""


def _accuracy(row: Row) -> str:
    start = f"On {row.name} (n = {count(row.n)}), {row.model}"
    if not row.accuracy:
        told = "No run" if row.verdict.word else f"{start} was audited, but no run"
        return f"{told} reports its accuracy."
    metric = row.metric.partition(",")[0]
    name = "accuracy" if metric in {"acc", ""} else f"accuracy ({metric})"
    whose = "Its" if row.verdict.word else f"{start}'s"
    told = f"{whose} {name} is {plus_minus(row.accuracy)}"
    n_unflagged = row.n_tested - n_flagged(row)
    if not ACCURACY_UNFLAGGED.of(row) or not n_flagged(row):
        return f"{told}."
    are = "is" if n_unflagged == 1 else "are"
    unflagged = plus_minus(ACCURACY_UNFLAGGED.of(row))
    return f"{told}; on the {counted(n_unflagged)} that {are} not flagged it is {unflagged}."


def _flags(row: Row, detector: str) -> str:
    if not FLAGGED.of(row):
        return _untested(row, detector)
    n = n_flagged(row)
    of = "" if row.n_tested == row.n else f" of {count(row.n_tested)} tested"
    who = f"{count(n)}{of} question{'s' if of or n != 1 else ''}" if n else f"None{of or ' of the'} questions"
    are = "are" if n > 1 else "is"
    return f"{who} {are} flagged{_chance(row)}."


def _chance(row: Row) -> str:
    rate = NULL_RATE.of(row)
    return "" if math.isnan(rate) else f" where chance gives {number(rate * row.n_tested, 1)}"


def _untested(row: Row, detector: str) -> str:
    """Empty if questions were tested, or if the verdict says more."""
    if FLAGGED.of(row) or row.verdict.word:
        return ""
    if math.isnan(PVALUE_ALL.of(row)):
        return f"None of its questions was tested by {detector or 'an audit'}."
    return "No single question of two options can be flagged."


def _reservation(row: Row) -> str:
    """The flags that no recognised natural order explains."""
    if not FLAGGED_UNGUARDED.of(row) or not n_flagged(row):
        return ""
    share, chance = plus_minus(FLAGGED_UNGUARDED.of(row)), number(NULL_RATE.of(row))
    by_chance = "" if math.isnan(NULL_RATE.of(row)) else f" (by chance {chance})"
    return f"Of the questions whose options have no recognised natural order, the share flagged is {share}{by_chance}."


def _gap(row: Row) -> str:
    if not GAP_ADJUSTED.of(row):
        return ""
    size = plus_minus(GAP_ADJUSTED.of(row)).removeprefix("−")
    way = "lower" if GAP_ADJUSTED.of(row).value < 0 else "higher"
    p = "" if math.isnan(GAP_PVALUE.of(row)) else f" ({pvalue_equation(GAP_PVALUE.of(row))})"
    return f"Among questions of similar difficulty, the accuracy on flagged ones is {way} by {size}{p}."
