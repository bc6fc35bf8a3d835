"""Checks the numbers that a results file reports: against what an accuracy can be, and against the run's own samples.

A number that cannot be right is left out, and the reason becomes a problem: neither it nor a number in its place is
used silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lm_eval_leakage.logs.run import Problem, Run, leaves, n_reported
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.results.task_runs import (
    ACCURACIES,
    TaskRun,
    is_accuracy,
    reported_estimates,
    reported_stderr,
    reported_values,
)
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate

ROUNDED = 1e-4  # tools round accuracies; OpenCompass to two decimals of a percentage
LARGEST_STDERR = 0.5  # of a mean of two or more values from 0 to 1


def with_checked_metrics(part: TaskRun, problems: list[Problem]) -> TaskRun:
    """Return the task with its metrics, and without the scores of a metric that contradicts its samples."""
    metrics = dict(reported_estimates(part.run, part.task))
    contradicted = []
    for key, value in _accuracies(part.run, part.task):
        mean = _mean_of_samples(part, key)
        reason = _no_accuracy(key, value)
        if not reason and any(key in question.withheld for question in part.questions):
            reason = f"some values of {key} in its samples are left out"
        if not reason and mean is not None and abs(value - mean) > ROUNDED:
            reason = f"the results file says that {key} is {value:.4g}, but its samples have {mean:.4g} on average"
            contradicted.append(key)
        metrics[key] = _estimate(part.run, part.task, key, value, reason, problems)
    questions = [_without(question, contradicted) for question in part.questions] if contradicted else part.questions
    return replace(part, metrics=metrics, questions=questions)


def group_metrics(
    run: Run, group: str, parts: Mapping[str, TaskRun], problems: list[Problem]
) -> Mapping[str, Estimate]:
    """Return what a results file reports of a group, where it follows from its members.

    parts: the tasks that were read, with their metrics, by name; those of another run are not compared
    """
    subtasks = run.results.get("group_subtasks") or {}
    tasks = leaves(group, subtasks)
    of_this_run = [name for name in tasks if name in parts and parts[name].run is run]
    metrics = dict(reported_estimates(run, group))
    for key, value in _accuracies(run, group):
        reason = _no_accuracy(key, value)
        withheld = [name for name in of_this_run if _is_withheld(parts[name], key)]
        missing = [name for name in tasks if not run.results["results"].get(name)]
        if not reason and missing:
            reason = f"{key} counts {', '.join(missing)}, of which the results file says nothing"
        if not reason and withheld:
            reason = f"{key} counts {', '.join(withheld)}, whose own is left out"
        if not reason and not _follows(key, value, run, tasks, subtasks.get(group) or ()):
            reason = f"the results file says that {key} is {value:.4g}, which is no mean of those of its tasks"
        metrics[key] = _estimate(run, group, key, value, reason, problems)
    return metrics


def _accuracies(run: Run, name: str) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in reported_values(run, name).items() if key.split(",")[0] in ACCURACIES]


def _no_accuracy(key: str, value: object) -> str:
    """Return why a value cannot be an accuracy; empty if it can."""
    return "" if is_accuracy(value) else f"the results file says that {key} is {value!r}, which is not between 0 and 1"


def _estimate(run: Run, name: str, key: str, value: float, reason: str, problems: list[Problem]) -> Estimate:
    if reason:
        problems.append(Problem(f"{name}: {reason}; the accuracy is left out", run.results_file))
        return UNKNOWN
    stderr = reported_stderr(run, name, key)
    is_nan = stderr != stderr  # unlike `math.isnan`, for integers of any size
    if isinstance(stderr, (int, float)) and not is_nan and not 0 <= stderr <= LARGEST_STDERR:
        what = f"{name}: the results file says that the standard error of {key} is {stderr!r}"
        problems.append(
            Problem(f"{what}, which is not between 0 and {LARGEST_STDERR}; it is left out", run.results_file)
        )
        return Estimate(float(value))
    return reported_estimates(run, name)[key]


def _mean_of_samples(part: TaskRun, key: str) -> float | None:
    """Return the mean of a metric over all questions of a task; None if its log is not complete, or if the harness
    computes the metric in another way."""
    scores = [question.scores[key] for question in part.questions if key in question.scores]
    n_expected = n_reported(part.run, part.task)
    if not scores or len(scores) < len(part.questions) or len(scores) < (n_expected or 0) or not _is_mean(part, key):
        return None
    return float(np.mean(scores))


def _is_mean(part: TaskRun, key: str) -> bool:
    config: Mapping[str, Any] = (part.run.results.get("configs") or {}).get(part.task) or {}
    metrics: Iterable[Any] = config.get("metric_list") or ()
    for metric in metrics:
        is_this = isinstance(metric, Mapping) and metric.get("metric") == key.split(",")[0]
        if is_this and metric.get("aggregation") not in (None, "mean"):
            return False
    return True


def _without(question: AnnotatedQuestion, keys: Sequence[str]) -> AnnotatedQuestion:
    return replace(question, scores={key: score for key, score in question.scores.items() if key not in keys})


def _is_withheld(part: TaskRun, key: str) -> bool:
    return key in part.metrics and not part.metrics[key]


def _follows(key: str, value: float, run: Run, tasks: Sequence[str], members: Sequence[str]) -> bool:
    """Return whether a group's value is a mean over its tasks or its members, each counted once or by its questions.
    It may be any other number if these have no such metric."""
    for names in (tasks, members):
        estimates = [(reported_estimates(run, name).get(key), _size(run, name)) for name in names]
        defined = [(estimate.value, size) for estimate, size in estimates if estimate is not None]
        if len(defined) < len(names):
            return True
        values, sizes = np.array(defined).T
        means = [values.mean(), *([np.average(values, weights=sizes)] if sizes.sum() else [])]
        if any(abs(mean - value) <= ROUNDED for mean in means):
            return True
    return False


def _size(run: Run, name: str) -> int:
    return sum(n_reported(run, task) or 0 for task in leaves(name, run.results.get("group_subtasks") or {}))
