"""The metrics of a run that was done in shards, as the harness would have computed them without shards.

The harness computes most metrics as the mean of the questions' values, with the standard error of a mean, and those of
a group as means over its tasks. Whether a metric is such a mean is not taken on trust: it is one if each shard's own
value is, to the last digit. Other metrics, such as F1 of all questions together, are withheld.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval_leakage.inference.pooling import NAN, UNKNOWN, Estimate, normal
from lm_eval_leakage.logs.run_shard import ShardSet, TaskShard
from lm_eval_leakage.results.answered import ACCURACIES, AnsweredQuestion

Mean = Callable[[Sequence[float], Sequence[int]], float]  # of tasks' values, with their numbers of questions


@dataclass(frozen=True)
class PooledMetrics:
    """A task's metrics over the questions of all shards; UNKNOWN for those that are withheld.

    n: number of questions
    """

    told: Mapping[str, Estimate]
    n: int

    @property
    def withheld(self) -> list[str]:
        """Of those that a row shows: accuracies, else the first metric."""
        shown = [key for key in self.told if key.split(",")[0] in ACCURACIES] or list(self.told)[:1]
        return [key for key in shown if not self.told[key]]


def metrics_of_shards(task: str, shards: ShardSet, answers: Sequence[AnsweredQuestion]) -> PooledMetrics:
    """answers: of all shards, in the order of the questions"""
    by_log: dict[str, list[AnsweredQuestion]] = defaultdict(list)
    for answer in answers:
        by_log[answer.log].append(answer)
    asked = [(shard, _row(shard, task), by_log[str(shard.log)]) for shard in shards.found.values() if shard.n_asked]
    keys = dict.fromkeys(key for _, row, _ in asked for key in _metrics(row))
    whole = [(row, own) for shard, row, own in asked if len(own) == shard.n_asked]  # others say nothing about the rule
    return PooledMetrics({key: _pooled(key, answers, whole) for key in keys}, shards.n_asked)


_Answered = tuple[Mapping[str, Any], Sequence[AnsweredQuestion]]  # a task's row in the results file, and its answers


def _pooled(key: str, answers: Sequence[AnsweredQuestion], parts: Sequence[_Answered]) -> Estimate:
    values = _values(key, answers)
    told = [(row, own) for row, answered in parts if (own := _values(key, answered))]
    if not told or any(row.get(key) != _mean(own) for row, own in told):
        return UNKNOWN
    errors = [(row.get(_stderr_of(key)), own) for row, own in told if len(own) > 1]
    is_known = len(values) > 1 and all(error == _stderr(own) for error, own in errors)
    return normal(_mean(values), _stderr(values) if is_known else NAN)


def _values(key: str, answers: Iterable[AnsweredQuestion]) -> list[float]:
    return [answer.scores[key] for answer in answers if key in answer.scores]


def metrics_of_group(
    group: str, members: Sequence[tuple[str, PooledMetrics]], shards: Mapping[str, ShardSet]
) -> dict[str, Estimate]:
    """Of a group whose members were done in shards: means over the tasks, weighted by their numbers of questions or
    not, as in each shard."""
    tasks = [task for task, _ in members]
    found = {id(one.results): one for task in tasks for one in shards[task].found.values()}
    rows = [_GroupRow(one, group, tasks) for one in found.values() if _row(one, group)]
    keys = dict.fromkeys(key for row in rows for key in _metrics(row.own))
    return {key: _of_members(key, [own for _, own in members], rows) for key in keys}


@dataclass(frozen=True)
class _GroupRow:
    """A group in the results file of one shard."""

    shard: TaskShard
    group: str
    tasks: Sequence[str]

    @property
    def own(self) -> Mapping[str, Any]:
        return _row(self.shard, self.group)

    def agrees(self, key: str, mean: Mean) -> bool:
        """Whether the group's value, if it has one, is this mean of its tasks' values."""
        rows = [(_row(self.shard, task).get(key), _n(self.shard, task)) for task in self.tasks]
        values = [(value, n) for value, n in rows if isinstance(value, (int, float))]
        told = self.own.get(key)
        return not (isinstance(told, (int, float)) and values) or told == mean(*zip(*values, strict=True))


def _of_members(key: str, members: Sequence[PooledMetrics], rows: Sequence[_GroupRow]) -> Estimate:
    found = [(own.told[key], own.n) for own in members if key in own.told]
    if not found or not all(one for one, _ in found):
        return UNKNOWN
    values, errors, sizes = [one.value for one, _ in found], [one.stderr for one, _ in found], [n for _, n in found]
    fitting = [(mean, error) for mean, error in MEANS if all(row.agrees(key, mean) for row in rows)]
    for mean, error in fitting:
        if all(row.agrees(_stderr_of(key), error) for row in rows):
            return normal(mean(values, sizes), error(errors, sizes))
    return normal(fitting[0][0](values, sizes), NAN) if fitting else UNKNOWN


# ---------------------------------------------------------------------- in the harness's order of operations


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _stderr(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum([(value - mean) ** 2 for value in values]) / (len(values) - 1)) / math.sqrt(len(values))


def _weighted_mean(values: Sequence[float], sizes: Sequence[int]) -> float:
    return sum([value * size for value, size in zip(values, sizes, strict=True)]) / sum(sizes)


def _weighted_error(errors: Sequence[float], sizes: Sequence[int]) -> float:
    if any(map(math.isnan, errors)):
        return NAN
    squares = sum([(size - 1) * error**2 * size for size, error in zip(sizes, errors, strict=True)])
    return math.sqrt(squares / (sum(sizes) - len(sizes)) / sum(sizes))


def _plain_mean(values: Sequence[float], sizes: Sequence[int]) -> float:
    return sum(values) / len(values)


def _plain_error(errors: Sequence[float], sizes: Sequence[int]) -> float:
    return math.sqrt(sum(error**2 for error in errors)) / len(errors)


MEANS: tuple[tuple[Mean, Mean], ...] = ((_weighted_mean, _weighted_error), (_plain_mean, _plain_error))


# ---------------------------------------------------------------------- in a results file


def _row(shard: TaskShard, name: str) -> Mapping[str, Any]:
    found = shard.results["results"].get(name, {})
    return found if isinstance(found, Mapping) else {}


def _n(shard: TaskShard, task: str) -> int:
    counts = (shard.results.get("n-samples") or {}).get(task)
    found = counts.get("effective") if isinstance(counts, Mapping) else None
    return found if isinstance(found, int) else 0


def _metrics(row: Mapping[str, Any]) -> Iterator[str]:
    """The names of metrics, each with its filter, that have a number."""
    for key, value in row.items():
        name, comma, _ = key.partition(",")
        if comma and not name.endswith("_stderr") and isinstance(value, (int, float)):
            yield key


def _stderr_of(key: str) -> str:
    name, _, pipeline = key.partition(",")
    return f"{name}_stderr,{pipeline}"
