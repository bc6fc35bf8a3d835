"""A run's answers: chooses which of several runs of a task to read, and reads its samples log.

The metrics of a run that was done in shards, as the harness would have computed them without shards.

The harness computes most metrics as the mean of the questions' values, with the standard error of a mean, and those of
a group as means over its tasks. Whether a metric is such a mean is not taken on trust: it is one if each shard's own
value is, to twelve digits. Other metrics, such as F1 of all questions together, are withheld.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from lm_eval_leakage.logs.audit_line import content_of
from lm_eval_leakage.logs.audits import audit_logs_of
from lm_eval_leakage.logs.run import NOT_AS_WRITTEN, Problem, Run, ShardSet, n_told
from lm_eval_leakage.questions.families import question_key
from lm_eval_leakage.questions.fields import subject_of
from lm_eval_leakage.results.result_types import AnnotatedQuestion, grouped
from lm_eval_leakage.stats.pooling import NAN, UNKNOWN, Estimate, Floats, mean_and_stderr, normal


@dataclass(frozen=True)
class TaskRun:
    """A task in a run.

    log: None if the run kept no samples, and that of the first shard if it was done in shards
    questions: as they were joined; none before, and if the run kept no samples
    pooled: its metrics if it was done in shards, once they are known
    """

    task: str
    n_shot: str
    run: Run
    log: Path | None
    n_questions: int
    questions: Sequence[AnnotatedQuestion] = ()
    pooled: Mapping[str, Estimate] | None = None

    @property
    def shards(self) -> ShardSet | None:
        return self.run.shards.get(self.task)

    def answers(self, problems: list[Problem]) -> list[AnnotatedQuestion]:
        """Those in its logs; those of shards in the order that they have in the log of a whole run."""
        logs = self.run.logs_of(self.task)
        found = [answer for log in logs for answer in answers(self.run.read_log(log, problems), problems, log)]
        return found if len(logs) < 2 else sorted(found, key=lambda answer: answer.doc_id)


def chosen_runs(runs: Sequence[Run], problems: list[Problem]) -> Iterator[TaskRun]:
    """For each task that is not an audit, and each number of examples: the run with the most questions, the newest of
    equals. The others are reported as problems."""
    candidates = (one for run in runs for one in _tasks(run))
    for found in grouped(candidates, lambda one: (one.task, one.n_shot)).values():
        *others, best = sorted(found, key=lambda one: (one.log is not None, one.n_questions, one.run.time))
        for other in others:
            problems.append(
                Problem(
                    f"{other.task} of {other.run.time} ({other.n_questions} questions) is ignored for the run of "
                    f"{best.run.time} ({best.n_questions} questions)",
                    other.run.results_file or other.log,
                )
            )
        if best.log is None:
            what = f"{best.task} has no samples log, so that nothing can be joined; run it with --log_samples"
            problems.append(Problem(what, best.run.results_file))
        yield best


def _above(name: str, subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """The groups that contain a task or group, the innermost first."""
    inner = next((group for group, members in subtasks.items() if name in members and group != name), "")
    return [inner, *_above(inner, subtasks)] if inner else []


def outer_first(subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """All groups, each before the groups within it, in whatever order the harness wrote them."""
    return sorted(subtasks, key=lambda name: len(_above(name, subtasks)))


def outermost(name: str, subtasks: Mapping[str, Sequence[str]]) -> str:
    """The outermost group that contains a task or group; empty if none does."""
    return ["", *_above(name, subtasks)][-1]


def _tasks(run: Run) -> Iterator[TaskRun]:
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    audits = audit_logs_of(run)
    for task in dict.fromkeys([*run.results.get("results", {}), *run.logs]):
        if task in groups or task in audits:
            continue
        n_shot = (run.results.get("n-shot") or {}).get(task, "")
        log = run.logs.get(task)
        n = n_told(run, task)
        if n is None:
            n = 0 if log is None else _n_lines(log)
        yield TaskRun(task, str(n_shot), run, log, n)


def _n_lines(log: Path) -> int:
    with log.open("rb") as lines:
        return sum(1 for _ in lines)


# ---------------------------------------------------------------------- of one question

ACCURACIES = ("acc", "acc_norm", "exact_match")


def answers(
    lines: Iterable[tuple[int, Mapping[str, Any]]], problems: list[Problem], file: Path | None = None
) -> list[AnnotatedQuestion]:
    """The answers in one task's numbered samples. The harness writes a line per filter, which are merged here; a
    question that is in the log twice (one run may append to the log of another) counts once."""
    found: dict[tuple[int, str], AnnotatedQuestion] = {}
    for number, sample in lines:
        try:
            key = int(sample["doc_id"]), str(sample["doc_hash"])
            one = found.get(key) or _unanswered(*key, sample, file)
            filters = one.filters | {str(sample.get("filter", "none"))}
            found[key] = replace(one, scores={**one.scores, **dict(_scores(sample))}, filters=filters)
        except NOT_AS_WRITTEN as error:
            problems.append(Problem(f"left out: not a line of a samples log ({error!r})", file, number))
    return list(found.values())


def _unanswered(doc_id: int, doc_hash: str, sample: Mapping[str, Any], file: Path | None) -> AnnotatedQuestion:
    doc = sample["doc"]
    read, content = content_of(doc)
    length = sum(map(len, _texts(doc)))
    one = AnnotatedQuestion("", doc_id, doc_hash, content, subject_of(doc), length, {}, log=str(file or ""))
    return replace(one, key=question_key(read) if read else "", question=None if doc_hash else read)


def _scores(sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numeric metrics of a line."""
    for name in sample["metrics"]:
        value = sample.get(name)
        if isinstance(value, (int, float)):
            yield f"{name},{sample.get('filter', 'none')}", float(value)


def accuracy_of(scores: Iterable[str]) -> str | None:
    """The metric of a question that tells whether its answer is correct; None if it has none."""
    keys = list(scores)
    return next((key for metric in ACCURACIES for key in keys if key.split(",")[0] == metric), None)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


# ---------------------------------------------------------------------- metrics


def told_metrics(run: Run, name: str) -> dict[str, Estimate]:
    """What the harness reports of a task or group, by "metric,filter"; nothing for a run that was done in shards."""
    row = {**(run.results.get("groups") or {}).get(name, {}), **run.results.get("results", {}).get(name, {})}
    found = {}
    for key, value in row.items():
        metric, comma, pipeline = key.partition(",")
        if comma and not metric.endswith("_stderr") and _is_number(value):
            stderr = row.get(f"{metric}_stderr,{pipeline}")
            found[key] = normal(float(value), float(stderr) if _is_number(stderr) else NAN)
    return found


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and abs(value) < sys.float_info.max


def shown_metrics(keys: Iterable[str]) -> list[str]:
    """Those that have rows: accuracies, else the first one."""
    every = list(keys)
    return [key for key in every if key.split(",")[0] in ACCURACIES] or every[:1]


def metrics_of_shards(task: str, shards: ShardSet, answers: Sequence[AnnotatedQuestion]) -> dict[str, Estimate]:
    """A task's metrics over the questions of all shards; UNKNOWN for those that are withheld.

    answers: of all shards, in the order of the questions
    """
    by_log = grouped(answers, lambda answer: answer.log)
    told = [
        (told_metrics(one, task), by_log.get(str(one.logs.get(task)), []), n)
        for one in shards.found.values()
        if (n := n_told(one, task))
    ]

    def is_mean(key: str) -> bool:
        """In each shard but those that lost answers, which say nothing about the rule."""
        whole = [(metrics[key], own) for metrics, own, n in told if key in metrics and len(own) == n]
        return bool(whole) and all(_is_same(one, _mean_of(key, own)) for one, own in whole)

    keys = dict.fromkeys(key for metrics, *_ in told for key in metrics)
    return {key: _mean_of(key, answers) if is_mean(key) else UNKNOWN for key in keys}


def _mean_of(key: str, answers: Iterable[AnnotatedQuestion]) -> Estimate:
    return normal(*mean_and_stderr([answer.scores[key] for answer in answers if key in answer.scores]))


def _is_same(told: Estimate, own: Estimate) -> bool:
    """Up to the order in which the harness adds."""
    return math.isclose(told.value, own.value, rel_tol=1e-12, abs_tol=1e-12)


def metrics_of_group(
    group: str, members: Mapping[str, Mapping[str, Estimate]], shards: Mapping[str, ShardSet]
) -> dict[str, Estimate]:
    """Of a group whose members were done in shards: means over the tasks, weighted by their numbers of questions or
    not, as in each shard."""
    runs = {id(one.results): one for task in members for one in shards[task].found.values()}
    shown = [(metrics, one) for one in runs.values() if (metrics := told_metrics(one, group))]

    def agrees(key: str, rule: Rule) -> bool:
        """Whether the group's value in each shard, if it has one, follows by this rule from those of its tasks."""
        for metrics, one in shown:
            tasks = [(told_metrics(one, task).get(key, UNKNOWN), n_told(one, task) or 0) for task in members]
            known = [(estimate, n) for estimate, n in tasks if estimate]
            if key in metrics and known and not _is_same(metrics[key], _by_rule(rule, known)):
                return False
        return True

    def pooled(key: str) -> Estimate:
        own = [(metrics[key], shards[task].n_asked) for task, metrics in members.items() if key in metrics]
        fitting = [rule for rule in RULES if agrees(key, rule)]
        return _by_rule(fitting[0], own) if own and all(one for one, _ in own) and fitting else UNKNOWN

    return {key: pooled(key) for key in dict.fromkeys(key for metrics, _ in shown for key in metrics)}


Rule = Callable[[Floats, Floats, Floats], tuple[float, float]]  # of tasks' values, errors and numbers of questions


def _by_rule(rule: Rule, tasks: Sequence[tuple[Estimate, int]]) -> Estimate:
    value, error = rule(*np.array([(one.value, one.stderr, n) for one, n in tasks]).T)
    return normal(float(value), float(error))


def _by_size(values: Floats, errors: Floats, sizes: Floats) -> tuple[float, float]:
    n = sizes.sum()
    squares = ((sizes - 1) * errors**2 * sizes).sum() / (n - len(sizes) or NAN)
    return np.average(values, weights=sizes), math.sqrt(squares / n)


def _equally(values: Floats, errors: Floats, sizes: Floats) -> tuple[float, float]:
    return values.mean(), math.sqrt((errors**2).sum()) / len(errors)


RULES = (_by_size, _equally)
