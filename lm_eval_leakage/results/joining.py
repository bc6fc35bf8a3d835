"""Joins the answers of a model's runs with its audited questions, and reports what has no counterpart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from lm_eval_leakage.logs.run import Problem, groups_above
from lm_eval_leakage.questions.families import QuestionsInPrompts
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import AnnotatedQuestion, AuditedQuestion
from lm_eval_leakage.results.task_runs import TaskRun

# Returns the command that audits a task of a results file with a number of examples; empty if it is not known.
AuditCommand = Callable[[Path, str, str], str]
NAMES_SHOWN = 10  # ids of questions in a message
NO_AUDIT = "no audit of this model was found; give its folder as --audit, or two names as --alias OTHER=MODEL"


class Joining:
    """The audited questions of one model, with which the answers of its runs are joined, task by task.

    Problems, and questions without an answer, are of the tasks that were joined before.
    """

    def __init__(self, audited_questions: Iterable[AuditedQuestion]) -> None:
        self._by_hash = {question.doc_hash: question for question in audited_questions}
        self._by_content = {question.content: question for question in self._by_hash.values() if question.content}
        self._by_key = {
            (question.benchmark, question.key): question for question in self._by_hash.values() if question.key
        }
        self._answered_hashes: set[str] = set()
        self._answered_benchmarks: set[str] = set()
        self._joined_runs: list[TaskRun] = []

    @cached_property
    def _by_prompt(self) -> QuestionsInPrompts[AuditedQuestion]:
        return QuestionsInPrompts(
            (question.question, question.options, question) for question in self._by_hash.values()
        )

    def join(self, task_run: TaskRun, answers: Sequence[AnnotatedQuestion]) -> list[AnnotatedQuestion]:
        """Return the answers of a task, each with its audited question; that is None if no audit has the question."""
        log = "" if task_run.log is None else str(task_run.log)
        questions = [
            replace(
                answer, task=task_run.task, audited=self._find(task_run.task, answer), log=log, n_shot=task_run.n_shot
            )
            for answer in answers
        ]
        joined = [question.audited for question in questions if question.audited is not None]
        self._answered_hashes |= {audited.doc_hash for audited in joined}
        self._answered_benchmarks |= {audited.benchmark for audited in joined}
        self._joined_runs.append(replace(task_run, questions=questions))
        return questions

    def _find(self, task: str, answer: AnnotatedQuestion) -> AuditedQuestion | None:
        """Return the audited question of an answer.

        It is searched by the hash of the data row; by that of the row's text, since data sets of one benchmark on the
        hub differ in other fields; as a copy of a question of the same task; and in the prompt, if the run does not
        record the row.
        """
        audited = (
            self._by_hash.get(answer.doc_hash)
            or self._by_content.get(answer.content)
            or self._by_key.get((task, answer.key))
        )
        if audited is None and answer.question is not None:
            return self._by_prompt.find(answer.question.stem, answer.question.options)
        return audited

    def unanswered(self) -> dict[str, list[AuditedQuestion]]:
        """Return the questions of each benchmark that was audited, but of which no run answered any question."""
        questions = (
            question for question in self._by_hash.values() if question.benchmark not in self._answered_benchmarks
        )
        return grouped(questions, lambda question: question.benchmark)

    def has_other_questions(self, task_run: TaskRun) -> bool:
        """Return whether an audit has the name of a task, or of a group that it is in, but none of its questions.

        task_run: with its joined questions
        """
        names = [task_run.task, *groups_above(task_run.task, task_run.run.results.get("group_subtasks") or {})]
        if any(question.audited is not None for question in task_run.questions):
            return False
        is_readable = all(question.doc_hash or question.question for question in task_run.questions)
        return bool(task_run.questions) and is_readable and not self.unanswered().keys().isdisjoint(names)

    def problems(self, audit_command: AuditCommand | None = None) -> list[Problem]:
        """Return what could not be joined, with the command that audits exactly the questions of a run."""
        if not self._by_hash:
            return [Problem(NO_AUDIT)]
        problems = [problem for task_run in self._joined_runs for problem in self._unaudited(task_run, audit_command)]
        unanswered = defaultdict(list)
        for question in self._by_hash.values():
            is_answered = question.doc_hash in self._answered_hashes
            if question.benchmark in self._answered_benchmarks and not is_answered and not question.is_shard:
                unanswered[question.benchmark].append(question.doc_hash[:8])
        for name, hashes in unanswered.items():
            problems.append(
                Problem(
                    f"{name}: {len(hashes)} audited question(s) were answered in no run (doc_hash {_first(hashes)})"
                )
            )
        return problems

    def _unaudited(self, task_run: TaskRun, audit_command: AuditCommand | None) -> Iterator[Problem]:
        """Yield a problem if questions of a task are in no audit."""
        task = task_run.task
        missed = [question.doc_id for question in task_run.questions if question.audited is None]
        n, n_missed = len(task_run.questions), len(missed)
        if not missed:
            return
        remedy = _remedy(task_run, audit_command)
        if self.has_other_questions(task_run):
            what = f"{task}: the audit covers other questions than the run (0 of {n} in common)"
            yield Problem(f"{what}; its row is of the audit alone; {remedy}", incomplete=True)
        elif n_missed == n:
            yield Problem(f"{task}: no audit has any of its {n} questions, which are only counted in `n`; {remedy}")
        else:
            what = f"{n_missed} question(s) are in no audit (doc_id {_first(missed)}) and only counted in `n`"
            yield Problem(f"{task}: its columns rest on {n - n_missed} of {n} questions; {what}; {remedy}")


def _remedy(task_run: TaskRun, audit_command: AuditCommand | None) -> str:
    """Return a clause with the command that audits the questions of a task's run."""
    file, task = task_run.run.results_file, task_run.task
    command = audit_command(file, task, task_run.n_shot) if audit_command and file else ""
    if command:
        return f"this audits exactly those of the run: {command}"
    place = file or task_run.log
    return f"`lm-eval-leakage check --runs {place} --tasks {task}`, with the model's options, audits those of the run"


def _first(names: Sequence[object]) -> str:
    """Return the first names, and how many more there are."""
    n_more = len(names) - NAMES_SHOWN
    return ", ".join(map(str, names[:NAMES_SHOWN])) + (f" and {n_more} more" if n_more > 0 else "")
