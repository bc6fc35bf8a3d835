"""Collects the answers of other models, which show how hard a question is and how natural its published order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.run import Problem, Run, digest_of
from lm_eval_leakage.results.result_types import AuditedQuestion
from lm_eval_leakage.results.task_runs import accuracy_metric, choose_runs


@dataclass(frozen=True)
class Reference:
    """The answers of another model in its runs and audits.

    runs: its runs and audits
    scores: accuracies of its answers to a question, 1 or 0 each, by the hash of the row and by that of its text
    orders: log-likelihoods of the orders of a question, by the hash of the row and the layouts of the audit
    fillers: log-likelihoods of a row with each filler of its block, by the hash of the row, the block and the layouts
    """

    runs: list[Run]
    scores: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    orders: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = field(default_factory=dict)
    fillers: dict[tuple[str, str, tuple[str, ...]], tuple[tuple[float, ...], ...]] = field(default_factory=dict)


def references_of(runs: Iterable[Run], problems: list[Problem]) -> list[Reference]:
    """Return the answers of each model that these runs are of."""
    references: dict[tuple[str, str], Reference] = {}
    for run in runs:
        reference = references.setdefault((run.key, digest_of(run.identity)), Reference([]))
        reference.runs.append(run)
        for task_run in choose_runs([run], problems):
            for answer in task_run.read_answers(problems):
                metric = accuracy_metric(answer.scores)
                if metric is not None:
                    for name in filter(None, (answer.doc_hash, answer.content)):
                        reference.scores[name].append(answer.scores[metric])
        for _, line in lines_of_audits([run], []):  # what is missing there was reported with its runs
            if line.orders is not None:
                reference.orders[line.question, line.orders.layouts] = line.orders.loglikelihoods
            if line.fillers is not None:
                key = line.question, line.fillers.block, line.fillers.layouts
                reference.fillers[key] = line.fillers.loglikelihoods
    return [*references.values()]


def ease_of_questions(references: Sequence[Reference]) -> dict[str, float]:
    """Return the share of the references' answers to a question that are correct, by its hash and by that of its
    text."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for reference in references:
        for name, scores in reference.scores.items():
            by_name[name] += scores
    return {name: sum(scores) / len(scores) for name, scores in by_name.items()}


def with_references(question: AuditedQuestion, references: Sequence[Reference]) -> AuditedQuestion:
    """Return the question with the references' mean log-likelihoods of the same orders and of the same fillers.

    Those that the question's own audit has are kept.
    """
    return _with_fillers(_with_orders(question, references), references)


def _with_orders(question: AuditedQuestion, references: Sequence[Reference]) -> AuditedQuestion:
    """Return the question with the mean log-likelihoods of the references that scored the same orders."""
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
