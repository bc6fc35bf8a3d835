"""Annotates the runs of models: joins them with their audits, and computes the rows and verdicts of the results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from lm_eval_leakage.logs.audit_line import benchmark_of, window_needed
from lm_eval_leakage.logs.audits import benchmarks_of_groups, lines_of_audits, with_audits
from lm_eval_leakage.logs.contents import RunPart, name_apart, separated_by_rows
from lm_eval_leakage.logs.file_search import check_of, files_below
from lm_eval_leakage.logs.model_settings import named_by_content, separated_by_settings
from lm_eval_leakage.logs.run import PLAN, REFERENCE, RESULTS, UNSEEN, Problem, Run, same_model, sanitized
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.data_verdict import at_its_level
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.joining import NO_AUDIT, AuditCommand, Joining
from lm_eval_leakage.results.provenance import NOT_RECORDED, provenances
from lm_eval_leakage.results.references import Reference, ease_of_questions, references_of, with_references
from lm_eval_leakage.results.reported_metrics import with_checked_metrics
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion, Row, merged
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, adjusted_rows, audit_rows, task_of
from lm_eval_leakage.results.task_runs import TaskRun, choose_runs
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict import Basis
from lm_eval_leakage.results.verdict_record import VERDICTS, CheckedTask, as_checked, verdicts_in
from lm_eval_leakage.results.verdicts import audited_questions


def annotate(
    runs: Sequence[Path],
    audits: Sequence[Path] = (),
    *,
    detector: str | None = None,
    references: Sequence[Path] = (),
    aliases: Mapping[str, str] | None = None,
    audit_command: AuditCommand | None = None,
) -> list[Annotation]:
    """Return one annotation per model, of all runs and audits in the folders.

    audits: folders of audits, unless they are among those of the runs
    detector: id of the one whose flags the columns show; by default max_order where it was run
    references: folders of other models' runs and audits: their answers show how hard a question is, and their scores
        of option orders how natural the published one is; a model is no reference for itself
    aliases: other names of models and the name to use, if a model was run and audited under two names
    audit_command: returns the command that audits the questions of a task in a results file with a number of examples;
        empty if it is not known

    Verdicts on runs in the folder of a check are on the terms of that check (`as_checked`), and compared with its
    reference unless others are named, so that all commands report the same numbers. Where a check used more than these
    files, a problem says so.

    Raises ValueError if a folder holds no run, or if no audit has the chosen detector.
    """
    problems: list[Problem] = []
    names = {sanitized(name): model for name, model in (aliases or {}).items()}

    def with_aliases(unnamed: Iterable[Run]) -> list[Run]:
        return [replace(run, model=names.get(run.key, run.model)) for run in unnamed]

    by_content = named_by_content(with_aliases(find_runs([*runs, *audits], problems)))
    runs_and_audits = with_aliases(separated_by_settings(by_content, problems))
    by_model = grouped(separated_by_rows(runs_and_audits, problems), lambda part: part.run.key)

    @cache
    def references_in(*places: Path) -> list[Reference]:
        return references_of(with_aliases(find_runs(places, problems)), problems) if places else []

    annotations = []
    for model_parts in by_model.values():
        of_checks = [check / REFERENCE for check in _checks_of(model_parts) if _has_reference(check)]
        others = [
            reference
            for reference in references_in(*(references or of_checks))
            if not any(same_model(reference.runs[0], part.run) for part in model_parts)
        ]
        annotations.append(annotation_of_model(model_parts, others, detector, audit_command))
    if detector and not any(annotation.detector for annotation in annotations):
        reasons = "; ".join(str(problem) for annotation in annotations for problem in annotation.problems)
        raise ValueError(f"no audit of any model has the detector {detector!r}: {reasons}")
    checks = _checks_of([part for parts in by_model.values() for part in parts])
    checked = {folder.absolute(): verdicts_in(folder) for folder in (*runs, *audits, *checks)}
    rows_of_all = [row for annotation in annotations for row in annotation.rows]
    problems += [problem for folder in checked for problem in _unused(folder, checked[folder], rows_of_all)]
    every = [verdict for verdicts in checked.values() for verdict in verdicts]
    judged = adjusted_rows(as_checked(rows_of_all, every))
    rows = iter(replace(row, verdict=at_its_level(row.verdict)) if row.verdict.look else row for row in judged)
    first, *rest = [replace(annotation, rows=tuple(islice(rows, len(annotation.rows)))) for annotation in annotations]
    return [replace(first, problems=(*problems, *first.problems)), *rest]  # problems of files that name no model


def _checks_of(parts: Iterable[RunPart]) -> list[Path]:
    """Return the folders of the checks that made these runs."""
    files = [part.run.results_file or next(iter(part.run.logs.values()), None) for part in parts]
    return [*dict.fromkeys(check for file in files if file and (check := check_of(file)))]


def _has_reference(check: Path) -> bool:
    """Return whether the last check in the folder compared with a reference whose audits it holds."""
    try:
        plan = yaml.safe_load((check / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return False
    return isinstance(plan, dict) and bool(plan.get("reference")) and _has_results(check / REFERENCE)


def _has_results(folder: Path) -> bool:
    """Return whether a results file is anywhere in the folder."""
    return any(RESULTS.fullmatch(file.name) for file in files_below(folder))


def _unused(check: Path, verdicts: Sequence[CheckedTask], rows: Iterable[Row]) -> Iterator[Problem]:
    """Yield a problem for what a check compared with and its runs do not hold: unseen questions, or the files of a
    reference that are elsewhere."""
    if verdicts and _has_results(check / UNSEEN):
        yield Problem(f"its unseen questions are not read here; verdicts that rest on them are in {VERDICTS}", check)
    bases = {key: verdict.basis for verdict in reversed(verdicts) for key in verdict.keys}
    for row in rows:
        basis = bases.get((row.model, row.name), row.verdict.basis)
        if row.verdict.basis and basis == Basis.REFERENCE != row.verdict.basis:
            what = f"its verdict on {row.name} rests on a reference, which is elsewhere"
            yield Problem(f"{what}; name the folder of the reference's audits with --reference", check)


def annotation_of_model(
    parts: Sequence[RunPart],
    references: Sequence[Reference] = (),
    detector: str | None = None,
    audit_command: AuditCommand | None = None,
) -> Annotation:
    """Return the annotation of one model. Benchmarks that have the same name but other rows are joined apart, each
    with its own audits."""
    model = next((part.run.model for part in reversed(parts) if part.run.results_file), parts[-1].run.model)
    by_label = grouped(parts, lambda part: part.label)
    annotations = []
    for label, labelled in by_label.items():
        runs = [replace(part.run, model=model) for part in labelled]
        annotations.append(_named_apart(annotation_of(runs, references, detector, audit_command=audit_command), label))
    return merged(annotations)


def _named_apart(annotation: Annotation, label: str) -> Annotation:
    """Return the annotation with the label in the names of its benchmarks, which separates them from others of their
    names.

    If the model has no audit of these rows, the missing audit becomes a problem that makes the results incomplete.
    """
    if not label:
        return annotation

    def audited(question: AuditedQuestion) -> AuditedQuestion:
        subject = "" if benchmark_of(question.subject) == question.benchmark else question.subject
        return replace(question, benchmark=name_apart(question.benchmark, label), subject=subject)

    def answered(question: AnnotatedQuestion) -> AnnotatedQuestion:
        return replace(
            question,
            task=name_apart(question.task, label),
            audited=None if question.audited is None else audited(question.audited),
        )

    def row(entry: Row) -> Row:
        return replace(entry, task=name_apart(entry.task, label), group=name_apart(entry.group, label))

    problems = annotation.problems
    if not annotation.audited_questions:
        names = ", ".join(dict.fromkeys(row(entry).task for entry in annotation.rows if not entry.group))
        what = f"no audit of this model has the rows of {names}"
        problems = tuple(
            Problem(what, incomplete=True) if problem.what == NO_AUDIT else problem for problem in problems
        )
    return replace(
        annotation,
        rows=tuple(map(row, annotation.rows)),
        questions=tuple(map(answered, annotation.questions)),
        audited_questions=tuple(map(audited, annotation.audited_questions)),
        groups={
            name_apart(name, label): [name_apart(member, label) for member in members]
            for name, members in annotation.groups.items()
        },
        problems=problems,
        names={name_apart(entry.task, label): entry.task for entry in annotation.rows if entry.level != SUBJECT_LEVEL},
    )


def annotation_of(
    runs: Sequence[Run],
    references: Sequence[Reference] = (),
    detector: str | None = None,
    unseen: UnseenQuestions | None = None,
    audit_command: AuditCommand | None = None,
) -> Annotation:
    """Return the annotation of one model, in whose runs and audits a name stands for one benchmark."""
    problems: list[Problem] = []
    model = next((run.model for run in reversed(runs) if run.results_file), runs[-1].model)
    audited = audited_questions(lines_of_audits(runs, problems), problems, detector)
    audited_and_referenced = tuple(with_references(question, references) for question in audited.questions)
    joining = Joining(audited_and_referenced)
    groups = {group: members for run in with_audits(runs) for group, members in benchmarks_of_groups(run).items()}
    task_runs = [_with_answers(task_run, joining, problems) for task_run in choose_runs(runs, problems)]
    problems += joining.problems(audit_command)
    comparable = [task_run for task_run in task_runs if not joining.has_other_questions(task_run)]
    ease = ease_of_questions(references)
    rows = audit_rows(model, comparable, joining.unanswered(), groups, unseen, ease, problems)
    questions = tuple(question for task_run in task_runs for question in task_run.questions)
    by_benchmark, benchmarks = provenances(runs), _benchmarks_by_task(questions)
    groups_of_runs = [task_run.run.results.get("group_subtasks") or {} for task_run in task_runs]
    return Annotation(
        model,
        audited.detector,
        tuple(
            replace(row, provenance=by_benchmark.get(benchmarks.get(row.task, row.task), NOT_RECORDED)) for row in rows
        ),
        questions,
        audited_and_referenced,
        {name: members for subtasks in groups_of_runs for name, members in subtasks.items() if members},
        tuple(sorted(problems, key=lambda problem: not problem.incomplete)),
        _origins(runs, task_runs),
    )


def _benchmarks_by_task(questions: Iterable[AnnotatedQuestion]) -> dict[str, str]:
    """Return the benchmark of each task whose run records no data rows, so that its name may be another one.

    Tasks with audited questions of several benchmarks, or of none, are left out.
    """
    benchmarks: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        if not question.doc_hash and question.audited is not None:
            benchmarks[question.task].add(question.audited.benchmark)
    return {task: names.pop() for task, names in benchmarks.items() if len(names) == 1}


def named_as_benchmarks(annotation: Annotation) -> Annotation:
    """Return the annotation with each task that records no data rows named as its benchmark.

    Of several tasks of one benchmark only the first is renamed.
    """
    names: dict[str, str] = {}
    taken = {row.task for row in annotation.rows}
    for task, benchmark in _benchmarks_by_task(annotation.questions).items():
        if benchmark not in taken:
            names[task] = benchmark
            taken.add(benchmark)

    def renamed(row: Row) -> Row:
        task = task_of(row)
        return replace(row, task=names.get(task, task) + row.task.removeprefix(task))

    rows = tuple(map(renamed, annotation.rows))
    questions = tuple(
        replace(question, task=names.get(question.task, question.task)) for question in annotation.questions
    )
    return replace(annotation, rows=rows, questions=questions) if names else annotation


def _origins(runs: Sequence[Run], task_runs: Sequence[TaskRun]) -> dict[str, Any]:
    """Return the files that an annotation is made from, and the versions of lm_eval that wrote them."""
    files = [task_run.run.results_file or task_run.log for task_run in task_runs]
    return {
        "runs": list(dict.fromkeys(map(str, files))),
        "audits": [str(file) for run in with_audits(runs) for file in run.logs.values()],
        "lm_eval": sorted({str(run.results.get("lm_eval_version") or "unknown") for run in runs}),
    }


def _with_answers(task_run: TaskRun, joining: Joining, problems: list[Problem]) -> TaskRun:
    """Return the task with its answers, joined with the audits, and with its checked metrics.

    What its log lacks, and metrics that cannot be right, are added to the problems.
    """
    if task_run.log is None:
        return with_checked_metrics(task_run, problems)
    answers = task_run.read_answers(problems)
    n_by_filter = Counter(name for answer in answers for name in answer.filters) or {"none": 0}
    for name, n in n_by_filter.items():
        by = f" by filter {name}" if len(n_by_filter) > 1 else ""
        if n < task_run.n_questions:
            what = f"holds {n} of the {task_run.n_questions} questions of {task_run.task}{by}"
            problems.append(Problem(f"{what}; the accuracy is of all of them", task_run.log, incomplete=True))
    problems += _left_out(task_run, answers)
    return with_checked_metrics(replace(task_run, questions=joining.join(task_run, answers)), problems)


def _left_out(task_run: TaskRun, answers: Sequence[AnnotatedQuestion]) -> Iterator[Problem]:
    """Yield a problem if the run says that it left questions out of the accuracy."""
    reasons = [answer.left_out for answer in answers if answer.left_out]
    if reasons:
        longest = max(reasons, key=window_needed)
        why = f"of the longest, {longest}" if window_needed(longest) else Counter(reasons).most_common(1)[0][0]
        what = f"the accuracy of {task_run.task} leaves out {len(reasons)} of {len(answers)} questions: {why}"
        yield Problem(what, task_run.log)
