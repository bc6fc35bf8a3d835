"""The first sentences of a page: the finding for each task, with its uncertainty and its reservations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lm_eval_leakage.results.column_registry import (
    ACCURACY_UNFLAGGED,
    FLAGGED,
    FLAGGED_UNGUARDED,
    GAP_ADJUSTED,
    GAP_PVALUE,
    NULL_RATE,
    PVALUE_ALL,
    PVALUE_UNGUARDED,
)
from lm_eval_leakage.results.formatting import count, counted, number, plus_minus, pvalue_equation
from lm_eval_leakage.results.result_types import Annotation, Row

N_HEADLINES = 4  # benchmarks of one model that are described in sentences; the table has all


Say = Callable[[Row, str], str]


def headlines(annotation: Annotation, say: Say) -> tuple[str, ...]:
    """One text for each of the model's benchmarks.

    say: `headline`, or `in_short` if there are several
    """
    rows = benchmarks(annotation.rows)
    if not rows:
        return (f"No task of {annotation.model} could be read.",)
    texts = [say(row, annotation.detector) for row in rows[:N_HEADLINES]]
    left = len(rows) - N_HEADLINES
    return (
        (*texts, f"{counted(left, 'more benchmark')} of {annotation.model} in the table.") if left > 0 else (*texts,)
    )


def benchmarks(rows: Sequence[Row]) -> list[Row]:
    """The first row (that of the first metric) of each task or group that is in no other group."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.level != "subject" and not row.group:
            found.setdefault((row.task, row.n_shot), row)
    return list(found.values())


def headline(row: Row, detector: str) -> str:
    parts = (_accuracy(row), _flags(row, detector), _reservation(row), _gap(row))
    return " ".join(part for part in parts if part)


def in_short(row: Row, detector: str) -> str:
    """The same in one sentence."""
    found = f"{row.model} on {row.name} (n = {count(row.n)})"
    if row.accuracy:
        found += f": accuracy {plus_minus(row.accuracy)}"
        if ACCURACY_UNFLAGGED.of(row) and n_flagged(row):
            n_unflagged = counted(row.n_tested - n_flagged(row))
            found += f", {plus_minus(ACCURACY_UNFLAGGED.of(row))} on the {n_unflagged} not flagged"
    if not FLAGGED.of(row):
        return f"{found}. {_untested(row, detector)}"
    unguarded = PVALUE_UNGUARDED.of(row)
    without = "" if math.isnan(unguarded) else f"; {pvalue_equation(unguarded)} without natural orders"
    p = "" if math.isnan(PVALUE_ALL.of(row)) else f" ({pvalue_equation(PVALUE_ALL.of(row))}{without})"
    return f"{found}; {count(n_flagged(row))} flagged{_chance(row)}{p}."


def n_flagged(row: Row) -> int:
    return round(FLAGGED.of(row).value * row.n_tested) if FLAGGED.of(row) else 0


def _accuracy(row: Row) -> str:
    if not row.accuracy:
        return f"On {row.name} (n = {count(row.n)}), {row.model} was audited, but no run reports its accuracy."
    metric = row.metric.partition(",")[0]
    name = "accuracy" if metric in {"acc", ""} else f"accuracy ({metric})"
    start = f"On {row.name} (n = {count(row.n)}), {row.model}'s {name} is {plus_minus(row.accuracy)}"
    n_unflagged = row.n_tested - n_flagged(row)
    if not ACCURACY_UNFLAGGED.of(row) or not n_flagged(row):
        return f"{start}."
    are = "is" if n_unflagged == 1 else "are"
    unflagged = plus_minus(ACCURACY_UNFLAGGED.of(row))
    return f"{start}; on the {counted(n_unflagged)} that {are} not flagged it is {unflagged}."


def _flags(row: Row, detector: str) -> str:
    if not FLAGGED.of(row):
        return _untested(row, detector)
    n = n_flagged(row)
    of = "" if row.n_tested == row.n else f" of {count(row.n_tested)} tested"
    who = f"{count(n)}{of} question{'s' if of or n != 1 else ''}" if n else f"None{of or ' of the'} questions"
    are = "are" if n > 1 else "is"
    return f"{who} {are} flagged{_chance(row)}{_in_brackets(PVALUE_ALL.of(row))}."


def _chance(row: Row) -> str:
    rate = NULL_RATE.of(row)
    return "" if math.isnan(rate) else f" where chance gives {number(rate * row.n_tested, 1)}"


def _untested(row: Row, detector: str) -> str:
    """With two options, no single question can be flagged, but all together have a p-value."""
    if math.isnan(PVALUE_ALL.of(row)):
        return f"None of its questions was tested by {detector or 'an audit'}."
    p = pvalue_equation(PVALUE_ALL.of(row))
    return f"No single question can be flagged; over all of them, the published order is preferred with {p}."


def _reservation(row: Row) -> str:
    """The flags that no recognised natural order explains."""
    if not FLAGGED_UNGUARDED.of(row) or not n_flagged(row):
        return ""
    share, chance = plus_minus(FLAGGED_UNGUARDED.of(row)), number(NULL_RATE.of(row))
    return (
        f"Of the questions whose options have no recognised natural order, the share flagged is {share}"
        f"{'' if math.isnan(NULL_RATE.of(row)) else f' (by chance {chance})'}{_in_brackets(PVALUE_UNGUARDED.of(row))}."
    ).replace(") (p", "; p")


def _gap(row: Row) -> str:
    if not GAP_ADJUSTED.of(row):
        return ""
    size = plus_minus(GAP_ADJUSTED.of(row)).removeprefix("−")
    way = "lower" if GAP_ADJUSTED.of(row).value < 0 else "higher"
    p = _in_brackets(GAP_PVALUE.of(row))
    return f"Among questions of similar difficulty, the accuracy on flagged ones is {way} by {size}{p}."


def _in_brackets(pvalue: float) -> str:
    return "" if math.isnan(pvalue) else f" ({pvalue_equation(pvalue)})"
