"""A run's answers: chooses which of several runs of a task to read, and reads its samples log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from lm_eval_leakage.logs.audit_line import content_of
from lm_eval_leakage.logs.audits import audit_logs_of
from lm_eval_leakage.logs.run import LEFT_OUT, NOT_AS_WRITTEN, Problem, Run, n_reported
from lm_eval_leakage.questions.families import question_key
from lm_eval_leakage.questions.fields import subject_of
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import AnnotatedQuestion
from lm_eval_leakage.stats.pooling import NAN, Estimate, normal

ACCURACIES = ("acc", "acc_norm", "exact_match")


@dataclass(frozen=True)
class TaskRun:
    """A task in a run.

    log: None if the run kept no samples
    questions: as they were joined; none before, and if the run kept no samples
    metrics: what the results file reports, once it was checked against the questions
    """

    task: str
    n_shot: str
    run: Run
    log: Path | None
    n_questions: int
    questions: Sequence[AnnotatedQuestion] = ()
    metrics: Mapping[str, Estimate] = field(default_factory=dict)

    def answers(self, problems: list[Problem]) -> list[AnnotatedQuestion]:
        """Return the answers in its log; none if the run kept no samples."""
        return [] if self.log is None else answers(self.run.read_log(self.log, problems), problems, self.log)


def chosen_runs(runs: Sequence[Run], problems: list[Problem]) -> Iterator[TaskRun]:
    """Return, for each task that is not an audit and each number of examples, the run with the most questions, the
    newest of equals. The others are reported as problems."""
    candidates = (part for run in runs for part in _tasks(run))
    for alike in grouped(candidates, lambda part: (part.task, part.n_shot)).values():
        *others, best = sorted(alike, key=lambda part: (part.log is not None, part.n_questions, part.run.time))
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


def _tasks(run: Run) -> Iterator[TaskRun]:
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    audits = audit_logs_of(run)
    for task in dict.fromkeys([*run.results.get("results", {}), *run.logs]):
        if task in groups or task in audits:
            continue
        n_shot = (run.results.get("n-shot") or {}).get(task, "")
        log = run.logs.get(task)
        n = n_reported(run, task)
        if n is None:
            n = 0 if log is None else _n_lines(log)
        yield TaskRun(task, str(n_shot), run, log, n)


def _n_lines(log: Path) -> int:
    with log.open("rb") as lines:
        return sum(1 for _ in lines)


# ---------------------------------------------------------------------- of one question


def answers(
    lines: Iterable[tuple[int, Mapping[str, Any]]], problems: list[Problem], file: Path | None = None
) -> list[AnnotatedQuestion]:
    """Return the answers in one task's numbered samples. The harness writes a line per filter, which are merged here;
    a question that is in the log twice (one run may append to the log of another) counts once.

    Left out are accuracies that are not between 0 and 1, and those of a question whose lines disagree.
    """
    by_key: dict[tuple[int, str], AnnotatedQuestion] = {}
    impossible: dict[str, list[tuple[int, object]]] = {}
    disputed: dict[str, list[tuple[int, object]]] = {}
    for number, sample in lines:
        try:
            key = int(sample["doc_id"]), str(sample["doc_hash"])
            answer = by_key.get(key) or _unanswered(*key, sample)
            filters = answer.filters | {str(sample.get("filter", "none"))}
            scores, withheld = dict(answer.scores), set(answer.withheld)
            for name, value in _scores(sample):
                is_valid = name.split(",")[0] not in ACCURACIES or is_accuracy(value)
                if not is_valid:
                    impossible.setdefault(name, []).append((number, value))
                elif scores.get(name, value) != value:
                    disputed.setdefault(name, []).append((number, value))
                elif name not in withheld:
                    scores[name] = float(value)
                    continue
                scores.pop(name, None)
                withheld.add(name)
            by_key[key] = replace(answer, scores=scores, filters=filters, withheld=frozenset(withheld))
        except NOT_AS_WRITTEN as error:
            problems.append(Problem(f"left out: not a line of a samples log ({error!r})", file, number))
    for name, values in impossible.items():
        line, value = values[0]
        what = f"{name} is {value!r}, which is not between 0 and 1; left out, in {len(values)} line(s) in all"
        problems.append(Problem(what, file, line))
    for name, values in disputed.items():
        line, value = values[0]
        what = f"{name} is {value!r}, but another number in an earlier line of the same question; neither counts"
        problems.append(Problem(f"{what}, and so in {len(values)} line(s) in all", file, line))
    return list(by_key.values())


def _unanswered(doc_id: int, doc_hash: str, sample: Mapping[str, Any]) -> AnnotatedQuestion:
    doc = sample["doc"]
    read, content = content_of(doc)
    length = sum(map(len, _texts(doc)))
    left_out = str(sample.get(LEFT_OUT) or "")
    question = AnnotatedQuestion("", doc_id, doc_hash, content, subject_of(doc), length, {}, left_out=left_out)
    return replace(question, key=question_key(read) if read else "", question=None if doc_hash else read)


def _scores(sample: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the metrics of a line that are numbers, and whatever stands in the place of an accuracy."""
    for name in sample["metrics"]:
        value = sample.get(name)
        if isinstance(value, (int, float)) or (name in ACCURACIES and not isinstance(value, (list, dict))):
            yield f"{name},{sample.get('filter', 'none')}", value


def is_accuracy(value: object) -> TypeGuard[float]:
    """Return whether a value can be an accuracy: a number from 0 to 1."""
    return isinstance(value, (int, float)) and 0 <= value <= 1


def accuracy_of(scores: Iterable[str]) -> str | None:
    """Return the metric of a question that shows whether its answer is correct; None if it has none."""
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


def reported(run: Run, name: str) -> Mapping[str, Any]:
    """Return the row of a task or group in the results file, by "metric,filter" without standard errors."""
    metrics = {}
    for key, value in _row(run, name).items():
        metric, comma, _ = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            metrics[key] = value
    return metrics


def reported_stderr(run: Run, name: str, key: str) -> object:
    """Return the standard error that the results file reports of "metric,filter"."""
    metric, _, pipeline = key.partition(",")
    return _row(run, name).get(f"{metric}_stderr,{pipeline}")


def _row(run: Run, name: str) -> Mapping[str, Any]:
    return {**(run.results.get("groups") or {}).get(name, {}), **run.results.get("results", {}).get(name, {})}


def told_metrics(run: Run, name: str) -> dict[str, Estimate]:
    """Return what the harness reports of a task or group, by "metric,filter"."""
    metrics = {}
    for key, value in reported(run, name).items():
        if _is_number(value):
            stderr = reported_stderr(run, name, key)
            metrics[key] = normal(float(value), float(stderr) if _is_number(stderr) else NAN)
    return metrics


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and abs(value) < sys.float_info.max


def shown_metrics(keys: Iterable[str]) -> list[str]:
    """Return the metrics that have rows: accuracies, else the first one."""
    every = list(keys)
    return [key for key in every if key.split(",")[0] in ACCURACIES] or every[:1]
