"""Builds the rows of tasks, groups and subjects, with the harness's metrics and our columns.

It also returns rows and questions as flat mappings, for tables, JSON, data frames and conditions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lm_eval_leakage.logs.audit_line import Scalar, window_needed
from lm_eval_leakage.logs.run import Problem, Run, leaves, n_reported, outer_first, outermost
from lm_eval_leakage.results import columns
from lm_eval_leakage.results.data_verdict import data_verdict
from lm_eval_leakage.results.detector_values import detector_values
from lm_eval_leakage.results.formatting import defined
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.measured import Entry, Measured
from lm_eval_leakage.results.question_columns import AUDIT_COLUMNS, IS_AUDITED, RUN_COLUMNS
from lm_eval_leakage.results.reported_metrics import group_metrics
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion, Row
from lm_eval_leakage.results.task_runs import TaskRun, shown_metrics
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict import EVIDENCE_LEVEL
from lm_eval_leakage.stats.order_sum import adjusted_by_holm, holm_level
from lm_eval_leakage.stats.pooling import UNKNOWN, Estimate, accuracy_in_interval, share

GROUP_LEVEL, TASK_LEVEL, SUBJECT_LEVEL = "group", "task", "subject"


@dataclass(frozen=True)
class Unmeasured:
    """A row before its columns are computed.

    row: names and numbers of questions only
    metrics: what the harness reports of it, by "metric,filter"
    questions: those that its columns are computed from
    """

    row: Row
    metrics: Mapping[str, Estimate]
    questions: Sequence[AnnotatedQuestion]


def audit_rows(
    model: str,
    task_runs: Sequence[TaskRun],
    unanswered: Mapping[str, Sequence[AuditedQuestion]],
    groups_of_audits: Mapping[str, Sequence[str]],
    unseen: UnseenQuestions | None,
    ease: Mapping[str, float],
    problems: list[Problem],
) -> list[Row]:
    """Return the rows of one model: groups first, then each task with its subjects. The same follows for benchmarks
    that were audited but answered in no run.

    unanswered: the questions of these benchmarks
    groups_of_audits: groups of the audited benchmarks, with their members
    unseen: what the model's audits of unseen questions show; None if it was not asked any
    ease: share of reference models that answer a question correctly, by its hash or content
    problems: metrics of groups that cannot be right are added to it
    """
    unmeasured = [
        *_groups(model, task_runs, problems),
        *_tasks(model, task_runs),
        *_unanswered(model, unanswered, groups_of_audits),
    ]
    return [row for part in unmeasured for row in _measured_rows(part, unseen, ease)]


def _groups(model: str, task_runs: Sequence[TaskRun], problems: list[Problem]) -> Iterator[Unmeasured]:
    """Yield the groups of the runs, an outer one before those within it; each once per number of examples."""
    shown: set[tuple[str, str]] = set()
    for task_run in task_runs:
        run, n_shot = task_run.run, task_run.n_shot
        members = run.results.get("group_subtasks") or {}
        by_task = {other.task: other for other in task_runs if other.n_shot == n_shot}
        for group in outer_first(members):
            tasks = leaves(group, members)
            if tasks == [group] or task_run.task not in tasks or (group, n_shot) in shown:
                continue
            shown.add((group, n_shot))
            pooled = [question for task in tasks if task in by_task for question in by_task[task].questions]
            metrics = group_metrics(run, group, by_task, problems)
            n = sum(n_reported(run, task) or 0 for task in tasks)
            if not metrics:  # its members were run one by one
                n = sum(by_task[task].n_questions for task in tasks if task in by_task)
            outer = outermost(group, members)
            yield Unmeasured(_empty_row(model, group, GROUP_LEVEL, n_shot, n, outer, run), metrics, pooled)


def _tasks(model: str, task_runs: Sequence[TaskRun]) -> Iterator[Unmeasured]:
    """Yield each task, followed by its subjects."""
    for task_run in task_runs:
        task, run, n_shot = task_run.task, task_run.run, task_run.n_shot
        group = outermost(task, run.results.get("group_subtasks") or {})
        row = _empty_row(model, task, TASK_LEVEL, n_shot, n_reported(run, task) or 0, group, run)
        yield Unmeasured(row, task_run.metrics, task_run.questions)
        for subject, questions in _by_subject(task, task_run.questions):
            yield Unmeasured(_empty_row(model, subject, SUBJECT_LEVEL, n_shot, 0, group, run), {}, questions)


def _unanswered(
    model: str, unanswered: Mapping[str, Sequence[AuditedQuestion]], members: Mapping[str, Sequence[str]]
) -> Iterator[Unmeasured]:
    """Yield the groups, and the tasks with their subjects, that were audited but answered in no run."""

    def without_run(name: str, level: str, questions: Sequence[AnnotatedQuestion], group: str) -> Unmeasured:
        return Unmeasured(_empty_row(model, name, level, "", 0, group, None), {"": UNKNOWN}, questions)

    by_benchmark = {
        name: [row for question in questions for row in _without_answers(question)]
        for name, questions in unanswered.items()
    }
    for group in outer_first(members):
        tasks = [task for task in leaves(group, members) if task != group]
        pooled = [question for task in tasks for question in by_benchmark.get(task, ())]
        if pooled:
            yield without_run(group, GROUP_LEVEL, pooled, outermost(group, members))
    for benchmark, questions in by_benchmark.items():
        group = outermost(benchmark, members)
        yield without_run(benchmark, TASK_LEVEL, questions, group)
        for subject, of_subject in _by_subject(benchmark, questions):
            yield without_run(subject, SUBJECT_LEVEL, of_subject, group)


def _without_answers(question: AuditedQuestion) -> list[AnnotatedQuestion]:
    """Return the question, once for each of its rows in the audit, as one that no run answered."""
    return question.n_rows * [
        AnnotatedQuestion(
            question.benchmark, 0, question.doc_hash, question.content, question.subject, 0, {}, question
        )
    ]


def _empty_row(model: str, task: str, level: str, n_shot: str, n: int, group: str, run: Run | None) -> Row:
    """Return a row without a metric, an accuracy and values."""
    origin = "" if run is None or run.results_file is None else str(run.results_file)
    return Row(model, task, level, "", n_shot, n, UNKNOWN, 0, 0, group=group, origin=origin)


def _by_subject(task: str, questions: Sequence[AnnotatedQuestion]) -> Iterator[tuple[str, list[AnnotatedQuestion]]]:
    """Yield the name and the questions of each subject of a task; nothing if it has only one."""
    subjects = grouped(questions, lambda question: question.subject)
    for subject, of_subject in sorted(subjects.items()) if len(subjects) > 1 else ():
        yield f"{task}/{subject}", of_subject


def _measured_rows(part: Unmeasured, unseen: UnseenQuestions | None, ease: Mapping[str, float]) -> Iterator[Row]:
    """Yield a row for each accuracy, or for the first metric if there is no accuracy.

    If no question has a score, a row without a metric counts the questions that were left out, if there are any.
    """
    row, questions = _with_left_out(part.row, part.questions), part.questions
    metrics = shown_metrics(part.metrics or dict.fromkeys(key for question in questions for key in question.scores))
    for metric in metrics or ([""] if row.n_left_out else []):
        entries = _entries(questions, metric, ease)
        pooled = share([entry.score for entry in entries if entry.score is not None])
        accuracy = part.metrics.get(metric, pooled)
        if math.isnan(accuracy.stderr) and math.isclose(accuracy.value, pooled.value, abs_tol=1e-9):
            accuracy = pooled  # the harness has no error for a group with a task of a single question
        n = row.n + row.n_left_out if row.n else len(questions)  # the harness counts those with a score
        accuracy = accuracy_in_interval(accuracy, n - row.n_left_out)
        named = replace(row, metric=metric, n=n, accuracy=accuracy)
        yield _measured(named, Measured(entries, unseen))


def _with_left_out(row: Row, questions: Sequence[AnnotatedQuestion]) -> Row:
    """Return the row with the numbers of questions that the accuracy leaves out, that are longer than the model's
    window, and that no audit could test for another reason."""
    audited = [question.audited for question in questions if question.audited is not None]
    # a question with orders is tested: with two options it has a reason why it cannot be flagged, too
    reasons = (question.reason for question in audited if question.orders is None)
    needed = [_window_needed(question) for question in questions]
    return replace(
        row,
        n_left_out=sum(bool(question.left_out) for question in questions),
        n_too_long=sum(map(bool, needed)),
        window_needed=max(needed, default=0),
        untested=Counter(reason for reason in reasons if reason and not window_needed(reason)),
    )


def _window_needed(question: AnnotatedQuestion) -> int:
    """Return how many tokens a window must hold for the run and the audit to ask the question; 0 if both did."""
    of_audit = None if question.audited is None else question.audited.reason
    return max(window_needed(question.left_out), window_needed(of_audit))


def _measured(row: Row, measured: Measured) -> Row:
    """Return the row with its columns and its verdict."""
    others = [question.others for question in measured.joined if question.others]
    orders = (question.orders for question in measured.joined if question.orders is not None)
    fillers = (question.fillers for question in measured.joined if question.fillers is not None)
    unseen = measured.comparable
    natural, unseen_fillers = (None, ()) if unseen is None else (unseen.natural, unseen.fillers)
    verdict = data_verdict(orders, natural, fillers, unseen_fillers)
    # of the benchmark as a whole, not of a subject
    texts = unseen.texts if unseen is not None and row.level == TASK_LEVEL else None
    return replace(
        row,
        n_joined=len(measured.joined),
        n_tested=len(measured.tested),
        n_copies=measured.n_copies,
        values=columns.values_of(measured),
        others=detector_values(others) if others else (),
        flags={question.doc_hash: bool(question.flagged) for question in measured.tested},
        verdict=replace(verdict, n_copies=measured.n_copies if verdict.basis else 0, texts=texts),
    )


def _entries(questions: Sequence[AnnotatedQuestion], metric: str, ease: Mapping[str, float]) -> list[Entry]:
    """Return each question's audit, score by a metric, and stratum."""
    strata = strata_of(
        [f"{question.task}/{question.subject}" for question in questions],
        [question.length for question in questions],
        [ease.get(question.doc_hash, ease.get(question.content)) for question in questions],
    )
    return [
        Entry(question.audited, question.scores.get(metric), stratum)
        for question, stratum in zip(questions, strata, strict=True)
    ]


def adjusted_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of all models that are shown together, with the p-values of their verdicts adjusted by Holm.

    The p-values were adjusted for looks before. They are adjusted within a family: the benchmarks of all models (tasks
    and groups that are in no group), the members of a model's group, or the subjects of a model's task.
    """
    families: dict[tuple[str, ...], dict[tuple[str, str], float]] = defaultdict(dict)
    for row in rows:
        if not math.isnan(row.verdict.pvalue):
            families[_family(row)][row.model, row.task] = row.verdict.looked_pvalue  # the same for each metric
    adjusted = {}
    for family, by_row in families.items():
        pvalues = [*by_row.values()]
        level, n = holm_level(pvalues, EVIDENCE_LEVEL), len(by_row)
        for name, pvalue in zip(by_row, adjusted_by_holm(pvalues), strict=True):
            adjusted[family, name] = pvalue, n, level
    judged = []
    for row in rows:
        terms = adjusted.get((_family(row), (row.model, row.task)))
        if terms and not math.isnan(row.verdict.pvalue):
            pvalue, n, level = terms
            verdict = replace(row.verdict, adjusted=pvalue, n_together=n, level=level * row.verdict.spent)
            row = replace(row, verdict=verdict)
        judged.append(row)
    return judged


def _family(row: Row) -> tuple[str, ...]:
    """Return a key that is equal for rows that are read side by side.

    A task that was run alone and in a group has two rows, in two families, and so has each of its subjects.
    """
    if row.level == SUBJECT_LEVEL:
        return row.model, row.group, task_of(row)
    return (row.model, row.group) if row.group else ()


def task_of(row: Row) -> str:
    """Return the task or group of a row; for a subject, the task that it is of."""
    return row.task.partition("/")[0] if row.level == SUBJECT_LEVEL else row.task


def strata_of(
    subjects: Sequence[str], lengths: Sequence[int], ease: Sequence[float | None]
) -> list[tuple[str, int, int | None]]:
    """Return the stratum of each question: its subject, the tercile of its length within the subject, and the third of
    [0, 1] in which the share of reference models that answer it correctly lies."""
    places = range(len(subjects))
    ends = {}
    for subject, alike in grouped(places, subjects.__getitem__).items():
        ordered = sorted(lengths[place] for place in alike)
        ends[subject] = [ordered[third * (len(alike) - 1) // 3] for third in (1, 2)]
    return [
        (subject, sum(length > end for end in ends[subject]), None if easy is None else min(2, int(3 * easy)))
        for subject, length, easy in zip(subjects, lengths, ease, strict=True)
    ]


def flat_row(row: Row) -> dict[str, Scalar]:
    """Return every column by its key, each estimate with `_stderr`, `_low` and `_high`; None where undefined. The
    values of other detectors follow, as `token_evidence.min_k`."""
    flat: dict[str, Scalar] = {}
    for column in columns.recorded():
        value = column.of(row)
        if column.is_optional and not value:
            continue
        flat |= _flat_estimate(column.key, value) if isinstance(value, Estimate) else {column.key: defined(value)}
    for other in row.others:
        flat[f"{other.detector}.n"] = max(other.n, int(flat.get(f"{other.detector}.n") or 0))
        flat |= _flat_estimate(other.key, other.estimate)
        if not math.isnan(other.pvalue):
            flat |= {f"{other.detector}.null_rate": other.null_rate, f"{other.detector}.pvalue": other.pvalue}
    return flat


def flat_question(question: AnnotatedQuestion) -> dict[str, Scalar]:
    """Return a question's answer and verdicts as scalars; None for what is unknown."""
    flat: dict[str, Scalar] = {column.key: column.value(question) for column in RUN_COLUMNS}
    flat |= question.scores
    flat[IS_AUDITED.key] = IS_AUDITED.value(question)
    audited = question.audited
    if audited is None:
        return flat
    flat |= {column.key: column.value(audited) for column in AUDIT_COLUMNS}
    return flat | {
        f"{detector}.{name}": value for detector, values in audited.others.items() for name, value in values.items()
    }


def same_columns(records: Sequence[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
    """Return every record with the columns that any of them has a value for, so that readers that guess types from the
    first lines (`datasets`, pandas) meet no empty column."""
    names = dict.fromkeys(name for record in records for name, value in record.items() if value is not None)
    return [{name: record.get(name) for name in names} for record in records]


def _flat_estimate(key: str, estimate: Estimate) -> dict[str, Scalar]:
    parts = {"": estimate.value, "_stderr": estimate.stderr, "_low": estimate.low, "_high": estimate.high}
    return {f"{key}{ending}": defined(value) for ending, value in parts.items()}
