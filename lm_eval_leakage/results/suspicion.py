"""The order of rows by their verdicts, the most suspicious first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval_leakage.results.data_verdict import WORDS, DataVerdict
from lm_eval_leakage.results.result_types import Row
from lm_eval_leakage.results.rows import GROUP_LEVEL, SUBJECT_LEVEL

Suspicion = tuple[int, float, float]
LEAST: Suspicion = (1, math.inf, math.inf)


def suspicion(verdict: DataVerdict) -> Suspicion:
    """Sort key, the smallest for the most suspicious verdict: by its word, its p-value, and the lower bound of the
    order ratio; rows without a verdict come last."""
    if not verdict.word:
        return LEAST
    pvalue = verdict.deciding_pvalue
    low = verdict.ratio.low
    return (
        -WORDS.index(verdict.word),
        math.inf if math.isnan(pvalue) else pvalue,
        math.inf if math.isnan(low) else -low,
    )


def benchmarks(rows: Iterable[Row]) -> list[Row]:
    """The first row (that of the first metric) of each task or group that is in no other group, with each number of
    few-shot examples; the most suspicious first."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row.level != SUBJECT_LEVEL and not row.group:
            found.setdefault((row.model, row.task, row.n_shot), row)
    return sorted(found.values(), key=lambda row: suspicion(row.verdict))


def by_suspicion(rows: Sequence[Row]) -> list[Row]:
    """Benchmarks by their verdicts, and within a group its groups, then its tasks by their verdicts, each followed by
    its subjects by theirs."""
    of_task = {(row.model, row.task): suspicion(row.verdict) for row in rows}
    first = {name: place for place, name in reversed([*enumerate((row.model, _whole(row)) for row in rows)])}

    def key(row: Row) -> Any:
        whole, task = (row.model, _whole(row)), (row.model, _task(row))
        is_group, is_subject = row.level == GROUP_LEVEL, row.level == SUBJECT_LEVEL
        own = (LEAST, "") if is_group else (of_task.get(task, LEAST), task[1])
        of_subject = (suspicion(row.verdict), row.task) if is_subject else (LEAST, "")
        return of_task.get(whole, LEAST), first[whole], not is_group, own, is_subject, of_subject

    return sorted(rows, key=key)


def _whole(row: Row) -> str:
    return row.group or _task(row)


def _task(row: Row) -> str:
    return row.task.partition("/")[0] if row.level == SUBJECT_LEVEL else row.task
