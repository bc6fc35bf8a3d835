"""The rows that statistics declare, as the harness wants them: metrics, aggregations, a task's `metric_list`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm_eval_leakage.harness.patches.registries import add_metric, is_metric
from lm_eval_leakage.harness.table.aggregations import Aggregation, aggregations_of
from lm_eval_leakage.inference.calibrated_rows import CALIBRATED_ROWS
from lm_eval_leakage.inference.pooling import SKIPPED
from lm_eval_leakage.records import DeclaredRow
from lm_eval_leakage.statistics import statistics

_known: dict[str, tuple[DeclaredRow, tuple[Aggregation, ...]]] = {}


def known_rows() -> dict[str, Aggregation]:
    """Every row of every registered statistic and its error, by name; the harness knows them all afterwards."""
    declared = [row for name in statistics.names() for row in getattr(statistics.get(name), "rows", ())]
    for row in (*declared, SKIPPED, *CALIBRATED_ROWS):
        _make_known(row)
    return {made.__name__: made for _, aggregations in _known.values() for made in aggregations}


def metric_list(pipelines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a task whose `filter_list` this is. The harness prints every row of a task under every pipeline;
    those that have no value there are left out afterwards."""
    names = [entry["statistic"] for pipeline in pipelines for entry in pipeline["filter"] if "statistic" in entry]
    return entries_of([*(row for name in dict.fromkeys(names) for row in _rows_of(name)), SKIPPED])


def entries_of(rows: Sequence[DeclaredRow]) -> list[dict[str, Any]]:
    """What a `metric_list` says of these rows, each once."""
    return [
        {"metric": name, "aggregation": name, "higher_is_better": row.higher_is_better}
        for row in dict.fromkeys(rows)
        for name in names_of(row)
    ]


def names_of(row: DeclaredRow) -> tuple[str, ...]:
    return (row.name,) if row.error is None else (row.name, f"{row.name}_stderr")


OF_KNOWN_SCORES = frozenset(name for row in CALIBRATED_ROWS for name in names_of(row))


def _rows_of(statistic: str) -> tuple[DeclaredRow, ...]:
    declared: tuple[DeclaredRow, ...] = getattr(statistics.get(statistic), "rows", ())
    if not declared:
        raise ValueError(
            f"the statistic {statistic!r} declares no rows, so that nothing of it would be printed; give its class "
            "`rows`, such as EVIDENCE_ROWS of lm_eval_leakage.inference.pooling"
        )
    return declared


def _make_known(row: DeclaredRow) -> None:
    if row.name in _known:
        if _known[row.name][0] != row:
            raise ValueError(
                f"the row {row.name!r} is declared twice, with two meanings; declare it once and share it, or give "
                "one of them another name"
            )
        return
    if taken := [name for name in names_of(row) if is_metric(name)]:
        raise ValueError(f"the row {taken[0]!r} has the name of a metric of the harness; give it another one")
    made = tuple(aggregations_of(row))
    _known[row.name] = row, made
    for aggregation in made:
        add_metric(aggregation.__name__, aggregation, row.higher_is_better)
