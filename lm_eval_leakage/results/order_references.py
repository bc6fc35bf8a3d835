"""Other models' audits of the same option orders, which take natural preferences off a model's verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lm_eval_leakage.logs.audits import lines_of_audits
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.result_types import AuditedQuestion

OrderScoresByModel = Mapping[str, Mapping[str, tuple[float, ...]]]


def order_references(
    folders: Sequence[Path], key_of: Callable[[str, str], str], problems: list[Problem]
) -> OrderScoresByModel:
    """Log-likelihoods of the orders of each question, by model and by the hash of its row.

    key_of: the key of a model from its key and name in a run
    """
    found: dict[str, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for run in find_runs(folders, problems):
        key = key_of(run.key, run.model)
        for _, line in lines_of_audits([run], problems):
            if line.loglikelihoods and line.published_orders is not None:
                found[key][line.question] = tuple(line.loglikelihoods)
    return found


def with_references(
    questions: Iterable[AuditedQuestion], references: OrderScoresByModel, model: str
) -> tuple[AuditedQuestion, ...]:
    """The questions with the mean log-likelihoods of the other models that were asked the same orders. A model is no
    reference for itself."""
    others = [own for key, own in references.items() if key != model]
    return tuple(_with_reference(one, others) for one in questions) if others else tuple(questions)


def _with_reference(one: AuditedQuestion, others: Sequence[Mapping[str, tuple[float, ...]]]) -> AuditedQuestion:
    if one.orders is None or one.orders.reference:
        return one
    n_orders = len(one.orders.loglikelihoods)
    found = [own[one.doc_hash] for own in others if len(own.get(one.doc_hash, ())) == n_orders]
    if not found:
        return one
    mean = tuple(np.mean(found, axis=0).tolist())
    return replace(one, orders=replace(one.orders, reference=mean))
