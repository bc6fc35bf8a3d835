"""Joins a model's runs with its audits, question by question."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval_leakage.logs.audit_line import benchmark_of, window_needed
from lm_eval_leakage.logs.audits import benchmarks_of_groups, lines_of_audits, with_audits
from lm_eval_leakage.logs.contents import RunPart, name_apart, separated_by_rows
from lm_eval_leakage.logs.model_settings import named_by_content, separated_by_settings
from lm_eval_leakage.logs.run import Problem, Run, digest_of, groups_above, same_model, sanitized
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.questions.families import QuestionsInPrompts
from lm_eval_leakage.results.answered import TaskRun, accuracy_of, chosen_runs
from lm_eval_leakage.results.data_verdict import at_its_level
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.provenance import NOT_RECORDED, provenances
from lm_eval_leakage.results.reported_metrics import with_checked_metrics
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Annotation, AuditedQuestion, Row, merged
from lm_eval_leakage.results.rows import SUBJECT_LEVEL, adjusted_rows, audit_rows, task_of
from lm_eval_leakage.results.unseen_questions import UnseenQuestions
from lm_eval_leakage.results.verdict_record import as_checked, verdicts_in
from lm_eval_leakage.results.verdicts import audited_questions

AuditCommand = Callable[[Path, str, str], str]
NAMES_SHOWN = 10  # ids of questions in a message
NO_AUDIT = "no audit of this model was found; give its folder as --audit, or two names as --alias OTHER=MODEL"


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

    Verdicts in the folder of a check are on the terms of that check (`as_checked`), so that all commands report the
    same numbers.

    Raises ValueError if a folder holds no run, or if no audit has the chosen detector.
    """
    problems: list[Problem] = []
    names = {sanitized(name): model for name, model in (aliases or {}).items()}

    def named(unnamed: Iterable[Run]) -> list[Run]:
        return [replace(run, model=names.get(run.key, run.model)) for run in unnamed]

    own_runs = named(separated_by_settings(named_by_content(named(find_runs([*runs, *audits], problems))), problems))
    by_model = grouped(separated_by_rows(own_runs, problems), lambda part: part.run.key)
    all_references = references_of(named(find_runs(references, problems)), problems) if references else []
    annotations = []
    for model_parts in by_model.values():
        others = [
            reference
            for reference in all_references
            if not any(same_model(reference.runs[0], part.run) for part in model_parts)
        ]
        annotations.append(annotation_of_model(model_parts, others, detector, audit_command))
    if detector and not any(annotation.detector for annotation in annotations):
        reasons = "; ".join(str(problem) for annotation in annotations for problem in annotation.problems)
        raise ValueError(f"no audit of any model has the detector {detector!r}: {reasons}")
    checked = [verdict for folder in (*runs, *audits) for verdict in verdicts_in(folder)]
    judged = adjusted_rows(as_checked([row for annotation in annotations for row in annotation.rows], checked))
    rows = iter(replace(row, verdict=at_its_level(row.verdict)) if row.verdict.look else row for row in judged)
    first, *rest = [replace(annotation, rows=tuple(islice(rows, len(annotation.rows)))) for annotation in annotations]
    return [replace(first, problems=(*problems, *first.problems)), *rest]  # problems of files that name no model


def annotation_of_model(
    parts: Sequence[RunPart],
    references: Sequence[Reference] = (),
    detector: str | None = None,
    audit_command: AuditCommand | None = None,
) -> Annotation:
    """Join one model's runs and audits; benchmarks of one name with other rows with their own audits alone."""
    model = next((part.run.model for part in reversed(parts) if part.run.results_file), parts[-1].run.model)
    by_label = grouped(parts, lambda part: part.label)
    annotations = []
    for label, labelled in by_label.items():
        runs = [replace(part.run, model=model) for part in labelled]
        annotations.append(_named_apart(annotation_of(runs, references, detector, audit_command=audit_command), label))
    return merged(annotations)


def _named_apart(annotation: Annotation, label: str) -> Annotation:
    """Return the annotation with the label in the names of its benchmarks. Without an audit of these very rows nothing
    of it is judged."""
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
    """Join runs and audits of one model, in which a name stands for one benchmark."""
    problems: list[Problem] = []
    model = next((run.model for run in reversed(runs) if run.results_file), runs[-1].model)
    audited = audited_questions(lines_of_audits(runs, problems), problems, detector)
    with_references = tuple(
        _with_fillers(_with_orders(question, references), references) for question in audited.questions
    )
    joining = Joining(with_references)
    groups = {group: members for run in with_audits(runs) for group, members in benchmarks_of_groups(run).items()}
    parts = [_part(part, joining, problems) for part in chosen_runs(runs, problems)]
    problems += joining.problems(audit_command)
    paired = [part for part in parts if not joining.has_other_questions(part)]
    rows = audit_rows(model, paired, joining.unanswered(), groups, unseen, _ease(references), problems)
    made, questions = provenances(runs), tuple(question for part in parts for question in part.questions)
    names = _benchmarks_by_task(questions)
    own_groups = [part.run.results.get("group_subtasks") or {} for part in parts]
    return Annotation(
        model,
        audited.detector,
        tuple(replace(row, provenance=made.get(names.get(row.task, row.task), NOT_RECORDED)) for row in rows),
        questions,
        with_references,
        {name: members for subtasks in own_groups for name, members in subtasks.items() if members},
        tuple(sorted(problems, key=lambda problem: not problem.incomplete)),
        _origins(runs, parts),
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


def _origins(runs: Sequence[Run], parts: Sequence[TaskRun]) -> dict[str, Any]:
    files = [part.run.results_file or part.log for part in parts]
    return {
        "runs": list(dict.fromkeys(map(str, files))),
        "audits": [str(file) for run in with_audits(runs) for file in run.logs.values()],
        "lm_eval": sorted({str(run.results.get("lm_eval_version") or "unknown") for run in runs}),
    }


def _part(part: TaskRun, joining: Joining, problems: list[Problem]) -> TaskRun:
    """Return the task's run with its questions and metrics. What its log lacks, and what cannot be right, is added to
    the problems."""
    if part.log is None:
        return with_checked_metrics(part, problems)
    answers = part.answers(problems)
    held = Counter(name for answer in answers for name in answer.filters) or {"none": 0}
    for name, n in held.items():
        by = f" by filter {name}" if len(held) > 1 else ""
        if n < part.n_questions:
            what = f"holds {n} of the {part.n_questions} questions of {part.task}{by}; the accuracy is of all of them"
            problems.append(Problem(what, part.log, incomplete=True))
    problems += _left_out(part, answers)
    return with_checked_metrics(replace(part, questions=joining.join(part, answers)), problems)


def _left_out(part: TaskRun, questions: Sequence[AnnotatedQuestion]) -> Iterator[Problem]:
    """Report what a run says about questions that it left out of the accuracy."""
    reasons = [question.left_out for question in questions if question.left_out]
    if reasons:
        longest = max(reasons, key=window_needed)
        why = f"of the longest, {longest}" if window_needed(longest) else Counter(reasons).most_common(1)[0][0]
        what = f"the accuracy of {part.task} leaves out {len(reasons)} of {len(questions)} questions: {why}"
        yield Problem(what, part.log)


# ---------------------------------------------------------------------- references


@dataclass(frozen=True)
class Reference:
    """The answers of another model's runs.

    runs: those runs
    right: scores of its answers to a question, by the hash of the row and of its text
    orders: log-likelihoods of the orders of each question, by the hash of the row and the layouts asked
    fillers: of each row with the fillers of its block, by the hash of the row, the block and the layouts asked
    """

    runs: list[Run]
    right: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    orders: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = field(default_factory=dict)
    fillers: dict[tuple[str, str, tuple[str, ...]], tuple[tuple[float, ...], ...]] = field(default_factory=dict)


def references_of(runs: Iterable[Run], problems: list[Problem]) -> list[Reference]:
    """Return what each model among these runs says."""
    references: dict[tuple[str, str], Reference] = {}
    for run in runs:
        reference = references.setdefault((run.key, digest_of(run.identity)), Reference([]))
        reference.runs.append(run)
        for answer in (answer for part in chosen_runs([run], problems) for answer in part.answers(problems)):
            if metric := accuracy_of(answer.scores):
                for name in filter(None, (answer.doc_hash, answer.content)):
                    reference.right[name].append(answer.scores[metric])
        for _, line in lines_of_audits([run], []):  # what is missing there was reported with its runs
            if line.orders is not None:
                reference.orders[line.question, line.orders.layouts] = line.orders.loglikelihoods
            if line.fillers is not None:
                key = line.question, line.fillers.block, line.fillers.layouts
                reference.fillers[key] = line.fillers.loglikelihoods
    return [*references.values()]


def _ease(references: Sequence[Reference]) -> dict[str, float]:
    """Return the share of the reference models' answers to a question that are correct."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for reference in references:
        for name, scores in reference.right.items():
            by_name[name] += scores
    return {name: sum(scores) / len(scores) for name, scores in by_name.items()}


def _with_orders(question: AuditedQuestion, references: Sequence[Reference]) -> AuditedQuestion:
    """Return the question with the mean log-likelihoods of the references that were asked the same orders."""
    if question.orders is None or question.orders.reference:
        return question
    n_orders = len(question.orders.loglikelihoods)
    key = question.doc_hash, question.orders.layouts
    loglikelihoods = [reference.orders.get(key, ()) for reference in references]
    of_references = [values for values in loglikelihoods if len(values) == n_orders]
    if not of_references:
        return question
    return replace(question, orders=replace(question.orders, reference=tuple(np.mean(of_references, axis=0).tolist())))


def _with_fillers(question: AuditedQuestion, references: Sequence[Reference]) -> AuditedQuestion:
    """Return the question with the mean log-likelihoods of the references whose rows exchanged the same fillers."""
    if question.fillers is None or question.fillers.reference:
        return question
    key = question.doc_hash, question.fillers.block, question.fillers.layouts
    of_references = [reference.fillers[key] for reference in references if key in reference.fillers]
    if not of_references:
        return question
    means = tuple(map(tuple, np.mean(of_references, axis=0).tolist()))
    return replace(question, fillers=replace(question.fillers, reference=means))


# ---------------------------------------------------------------------- joining


class Joining:
    """Joins one model's audited questions with the answers of its runs, task by task."""

    def __init__(self, audited_questions: Iterable[AuditedQuestion]) -> None:
        self._by_hash = {question.doc_hash: question for question in audited_questions}
        self._by_content = {question.content: question for question in self._by_hash.values() if question.content}
        self._by_key = {
            (question.benchmark, question.key): question for question in self._by_hash.values() if question.key
        }
        self._used: set[str] = set()
        self._touched: set[str] = set()
        self._asked: list[TaskRun] = []

    @cached_property
    def _by_prompt(self) -> QuestionsInPrompts[AuditedQuestion]:
        return QuestionsInPrompts(
            (question.question, question.options, question) for question in self._by_hash.values()
        )

    def join(self, part: TaskRun, answers: Sequence[AnnotatedQuestion]) -> list[AnnotatedQuestion]:
        """Return the answers with the audited question of each.

        It is found by the hash of the data row, else by the hash of its text, since data sets of one benchmark on the
        hub differ in other fields, else as a copy of a question of the same task. Where the run does not record the
        row, it is searched in the prompt, too.
        """
        questions = [
            replace(
                answer,
                task=part.task,
                audited=self._by_hash.get(answer.doc_hash)
                or self._by_content.get(answer.content)
                or self._by_key.get((part.task, answer.key))
                or (self._by_prompt.find(answer.question.stem, answer.question.options) if answer.question else None),
                log="" if part.log is None else str(part.log),
                n_shot=part.n_shot,
            )
            for answer in answers
        ]
        joined = [question.audited for question in questions if question.audited is not None]
        self._used |= {audited.doc_hash for audited in joined}
        self._touched |= {audited.benchmark for audited in joined}
        self._asked.append(replace(part, questions=questions))
        return questions

    def unanswered(self) -> dict[str, list[AuditedQuestion]]:
        """Return the audited questions of the benchmarks that no run answered at all, by benchmark."""
        untouched = (question for question in self._by_hash.values() if question.benchmark not in self._touched)
        return grouped(untouched, lambda question: question.benchmark)

    def has_other_questions(self, part: TaskRun) -> bool:
        """Return whether a task has no question in common with the audit of its name, or of that of a group that it is
        in.

        part: with its joined questions
        """
        names = [part.task, *groups_above(part.task, part.run.results.get("group_subtasks") or {})]
        if any(question.audited is not None for question in part.questions):
            return False
        is_readable = all(question.doc_hash or question.question for question in part.questions)
        return bool(part.questions) and is_readable and not self.unanswered().keys().isdisjoint(names)

    def problems(self, audit_command: AuditCommand | None = None) -> list[Problem]:
        """Return what could not be joined, with the command that audits exactly the questions of a run."""
        if not self._by_hash:
            return [Problem(NO_AUDIT)]
        left = defaultdict(list)
        for question in self._by_hash.values():
            if question.benchmark in self._touched and question.doc_hash not in self._used and not question.is_shard:
                left[question.benchmark].append(question.doc_hash[:8])
        return [
            *(problem for part in self._asked for problem in self._unaudited(part, audit_command)),
            *(
                Problem(
                    f"{name}: {len(hashes)} audited question(s) were answered in no run (doc_hash {_first(hashes)})"
                )
                for name, hashes in left.items()
            ),
        ]

    def _unaudited(self, part: TaskRun, audit_command: AuditCommand | None) -> Iterator[Problem]:
        missed = [question.doc_id for question in part.questions if question.audited is None]
        n, n_missed = len(part.questions), len(missed)
        if not missed:
            return
        remedy = _remedy(part, audit_command)
        if self.has_other_questions(part):
            what = f"{part.task}: the audit covers other questions than the run (0 of {n} in common)"
            yield Problem(f"{what}; its row is of the audit alone; {remedy}", incomplete=True)
        elif n_missed == n:
            yield Problem(
                f"{part.task}: no audit has any of its {n} questions, which are only counted in `n`; {remedy}"
            )
        else:
            what = f"{n_missed} question(s) are in no audit (doc_id {_first(missed)}) and only counted in `n`"
            yield Problem(f"{part.task}: its columns rest on {n - n_missed} of {n} questions; {what}; {remedy}")


def _remedy(part: TaskRun, audit_command: AuditCommand | None) -> str:
    file = part.run.results_file
    command = audit_command(file, part.task, part.n_shot) if audit_command and file else ""
    if command:
        return f"this audits exactly those of the run: {command}"
    place, task = file or part.log, part.task
    return f"`lm-eval-leakage check --runs {place} --tasks {task}`, with the model's options, audits those of the run"


def _first(names: Sequence[object]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(map(str, names[:NAMES_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
