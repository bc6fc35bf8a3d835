"""Reads how runs answered a task: chooses among several runs of it, and reads the chosen one's log and metrics."""

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

# Metrics that are 1 for a correct answer and 0 for a wrong one; the first that a question has decides.
ACCURACIES = ("acc", "acc_norm", "exact_match")


@dataclass(frozen=True)
class TaskRun:
    """One task of a run.

    n_shot: number of examples in the prompt; empty if the run does not record it
    log: the samples log; None if the run kept no samples
    n_questions: as the results file reports it, else the number of lines of the log
    questions: the answers, joined with the audits; empty before they are joined, and without a log
    metrics: what the results file reports, by "metric,filter"; empty before it is checked against the questions
    """

    task: str
    n_shot: str
    run: Run
    log: Path | None
    n_questions: int
    questions: Sequence[AnnotatedQuestion] = ()
    metrics: Mapping[str, Estimate] = field(default_factory=dict)

    def read_answers(self, problems: list[Problem]) -> list[AnnotatedQuestion]:
        """Return the answers in the log, none without one; lines that cannot be used are added to the problems."""
        if self.log is None:
            return []
        return answers_from_lines(self.run.read_log(self.log, problems), problems, self.log)


def choose_runs(runs: Sequence[Run], problems: list[Problem]) -> Iterator[TaskRun]:
    """Yield one run for each task that is not an audit, and for each number of examples.

    A run with a samples log is preferred, then the one with more questions, then the newer one. The runs that are
    ignored, and a chosen one without a log, are added to the problems.
    """
    task_runs = (task_run for run in runs for task_run in _task_runs(run))
    for candidates in grouped(task_runs, lambda task_run: (task_run.task, task_run.n_shot)).values():
        *others, best = sorted(candidates, key=_preference)
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


def _preference(task_run: TaskRun) -> tuple[bool, int, str]:
    """Return a sort key, by which the run to read is last."""
    return task_run.log is not None, task_run.n_questions, task_run.run.time


def _task_runs(run: Run) -> Iterator[TaskRun]:
    """Yield the tasks of a run, without groups and audits."""
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    audits = audit_logs_of(run)
    for task in dict.fromkeys([*run.results.get("results", {}), *run.logs]):
        if task in groups or task in audits:
            continue
        n_shot = (run.results.get("n-shot") or {}).get(task, "")
        log = run.logs.get(task)
        n_questions = n_reported(run, task)
        if n_questions is None:
            n_questions = 0 if log is None else _n_lines(log)
        yield TaskRun(task, str(n_shot), run, log, n_questions)


def _n_lines(log: Path) -> int:
    """Return the number of lines of a file."""
    with log.open("rb") as lines:
        return sum(1 for _ in lines)


# ---------------------------------------------------------------------- answers


def answers_from_lines(
    lines: Iterable[tuple[int, Mapping[str, Any]]], problems: list[Problem], file: Path | None = None
) -> list[AnnotatedQuestion]:
    """Return one answer per question from the numbered lines of a task's samples log.

    The harness writes a line per filter, and one run may append to the log of another, so several lines of a question
    are merged. A metric is withheld from a question if it is an accuracy that is not between 0 and 1, or if two lines
    have different values of it. These, and lines that cannot be read, are added to the problems.
    """
    by_key: dict[tuple[int, str], AnnotatedQuestion] = {}
    impossible: dict[str, list[tuple[int, object]]] = {}
    disputed: dict[str, list[tuple[int, object]]] = {}
    for number, sample in lines:
        try:
            key = int(sample["doc_id"]), str(sample["doc_hash"])
            answer = by_key.get(key) or _without_scores(*key, sample)
            filters = answer.filters | {str(sample.get("filter", "none"))}
            scores, withheld = dict(answer.scores), set(answer.withheld)
            for name, value in _scores(sample):
                is_valid = name.split(",")[0] not in ACCURACIES or is_accuracy(value)
                if not is_valid:
                    impossible.setdefault(name, []).append((number, value))
                elif scores.get(name, value) != value:
                    disputed.setdefault(name, []).append((number, value))
                else:
                    if name not in withheld:
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


def _without_scores(doc_id: int, doc_hash: str, sample: Mapping[str, Any]) -> AnnotatedQuestion:
    """Return the answer to a line's question with everything but its task and its scores."""
    doc = sample["doc"]
    question, content = content_of(doc)
    return AnnotatedQuestion(
        task="",  # set when it is joined
        doc_id=doc_id,
        doc_hash=doc_hash,
        content=content,
        subject=subject_of(doc),
        length=sum(map(len, _strings(doc))),
        scores={},
        left_out=str(sample.get(LEFT_OUT) or ""),
        key=question_key(question) if question else "",
        question=None if doc_hash else question,
    )


def _scores(sample: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the metrics of a line, as "metric,filter", with their values: numbers, and any scalar of an accuracy."""
    for name in sample["metrics"]:
        value = sample.get(name)
        if isinstance(value, (int, float)) or (name in ACCURACIES and not isinstance(value, (list, dict))):
            yield f"{name},{sample.get('filter', 'none')}", value


def is_accuracy(value: object) -> TypeGuard[float]:
    """Return whether a value can be an accuracy: a number from 0 to 1."""
    return isinstance(value, (int, float)) and 0 <= value <= 1


def accuracy_metric(keys: Iterable[str]) -> str | None:
    """Return the "metric,filter", among those of a question, that shows whether its answer is correct; None if none
    does."""
    names = list(keys)
    for metric in ACCURACIES:
        for name in names:
            if name.split(",")[0] == metric:
                return name
    return None


def _strings(value: object) -> Iterator[str]:
    """Yield all strings within a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _strings(part)


# ---------------------------------------------------------------------- metrics


def reported_values(run: Run, name: str) -> Mapping[str, Any]:
    """Return what the results file has for a task or group, by "metric,filter", without the standard errors.

    The values are as in the file; see `reported_estimates` for numbers with their errors.
    """
    values = {}
    for key, value in _results_row(run, name).items():
        metric, comma, _ = key.partition(",")
        if comma and not metric.endswith("_stderr"):
            values[key] = value
    return values


def reported_stderr(run: Run, name: str, key: str) -> object:
    """Return what the results file has as the standard error of "metric,filter"; None if it has none."""
    metric, _, filter_name = key.partition(",")
    return _results_row(run, name).get(f"{metric}_stderr,{filter_name}")


def reported_estimates(run: Run, name: str) -> dict[str, Estimate]:
    """Return the metrics of a task or group that are numbers in the results file, by "metric,filter"."""
    estimates = {}
    for key, value in reported_values(run, name).items():
        if _is_finite(value):
            stderr = reported_stderr(run, name, key)
            estimates[key] = normal(float(value), float(stderr) if _is_finite(stderr) else NAN)
    return estimates


def shown_metrics(keys: Iterable[str]) -> list[str]:
    """Return the metrics that get a row in the results: the accuracies, or the first metric if there are none."""
    names = list(keys)
    return [name for name in names if name.split(",")[0] in ACCURACIES] or names[:1]


def _results_row(run: Run, name: str) -> Mapping[str, Any]:
    """Return the row of a task or group in the results file; the harness lists a group in one section or in both."""
    return {**(run.results.get("groups") or {}).get(name, {}), **run.results.get("results", {}).get(name, {})}


def _is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number, and not an integer that is too large for a float."""
    return isinstance(value, (int, float)) and abs(value) < sys.float_info.max
