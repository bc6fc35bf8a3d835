"""Questions of runs with what audits say of them, and the account of those that found no partner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.answers import Answer
from lm_eval_leakage.results.chosen_runs import Answered
from lm_eval_leakage.results.result_types import AnnotatedQuestion, Suspicion


class Joining:
    """One model's audited questions, to which answers of its runs are brought task by task."""

    def __init__(self, suspicions: Iterable[Suspicion]) -> None:
        self._by_hash = {one.doc_hash: one for one in suspicions}
        self._by_content = {one.content: one for one in self._by_hash.values() if one.content}
        self._used: set[str] = set()
        self._touched: set[str] = set()
        self._missed: dict[str, list[int]] = {}

    def join(self, one: Answered, answers: Sequence[Answer]) -> list[AnnotatedQuestion]:
        """By the hash of the benchmark's row; else by its words, since rows of one benchmark differ in other fields
        from one data set of the hub to the next."""
        found = [
            AnnotatedQuestion(
                one.task,
                answer.doc_id,
                answer.doc_hash,
                answer.content,
                answer.subject,
                answer.length,
                answer.scores,
                self._by_hash.get(answer.doc_hash) or self._by_content.get(answer.content),
                "" if one.log is None else str(one.log),
                one.n_shot,
            )
            for answer in answers
        ]
        joined = [question.suspicion for question in found if question.suspicion is not None]
        self._used |= {suspicion.doc_hash for suspicion in joined}
        self._touched |= {suspicion.benchmark for suspicion in joined}
        self._missed[one.task] = [question.doc_id for question in found if question.suspicion is None]
        return found

    def unanswered(self) -> dict[str, list[Suspicion]]:
        """Audited questions by benchmark, of those benchmarks that no run answered at all."""
        found: dict[str, list[Suspicion]] = defaultdict(list)
        for one in self._by_hash.values():
            if one.benchmark not in self._touched:
                found[one.benchmark].append(one)
        return found

    def problems(self) -> list[Problem]:
        """What could not be joined, each question by its id."""
        if not self._by_hash:
            what = "no audit of this model was found; give its folder as --audit, or two names as --alias OTHER=MODEL"
            return [Problem(what)]
        found = [
            Problem(f"{task}: {len(ids)} question(s) are in no audit (doc_id {_some(ids)}); counted in n alone")
            for task, ids in self._missed.items()
            if ids
        ]
        left = defaultdict(list)
        for one in self._by_hash.values():
            if one.benchmark in self._touched and one.doc_hash not in self._used:
                left[one.benchmark].append(one.doc_hash[:8])
        return found + [
            Problem(f"{name}: {len(hashes)} audited question(s) were answered in no run (doc_hash {_some(hashes)})")
            for name, hashes in left.items()
        ]


def _some(names: Sequence[object], at_most: int = 20) -> str:
    shown = ", ".join(map(str, names[:at_most]))
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"
