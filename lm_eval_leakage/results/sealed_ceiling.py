"""The ceiling of a sealed benchmark, from an ordinary run of it: which of the equally right options were answered."""

from __future__ import annotations

from collections.abc import Iterable

from lm_eval_leakage.inference.ceiling import Ceiling, ceiling
from lm_eval_leakage.inference.seal_combined import SealedTest
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.results.answered import AnsweredQuestion, accuracy_of, chosen_runs
from lm_eval_leakage.results.sealed_logs import SealedLogs
from lm_eval_leakage.sealing.seal import Seal

CEILING_TEST = "ceiling"


def ceiling_tests(logs: SealedLogs) -> list[SealedTest]:
    """A test of each ordinary run of the benchmark; none if no question has several equally right options. They are
    shown, and never combined with others."""
    if not any(len(question.equally_right) > 1 for question in logs.seal.questions):
        return []
    runs = chosen_runs(logs.runs, [])
    found = {(run.task, run.n_shot): ceiling_of(logs.seal, run.answers([])) for run in runs if run.log is not None}
    tested = {key: one for key, one in found.items() if one.n}
    names = {key: CEILING_TEST if len(tested) == 1 else f"{CEILING_TEST} ({key[0]}, {key[1]} shots)" for key in tested}
    return [_as_test(names[key], one) for key, one in tested.items()]


def _as_test(name: str, found: Ceiling) -> SealedTest:
    return SealedTest(
        name,
        n=found.n,
        effect=(found.n_hits - found.expected) / found.n,
        effect_error=found.expected_error / found.n,
        unit="accuracy above the ceiling",
        pvalue=found.pvalue,
        log_evalue=found.log_evalue,
    )


def ceiling_of(seal: Seal, answers: Iterable[AnsweredQuestion]) -> Ceiling:
    """From a run's answers to the published questions; those that the seal does not have, and those without a metric
    that says whether they are correct, are left out."""
    n_right = {content_id(one.wordings[0], one.options): max(1, len(one.equally_right)) for one in seal.questions}
    found = [
        (is_correct, n_right[answer.content])
        for answer in answers
        if answer.content in n_right and (is_correct := _is_correct(answer)) is not None
    ]
    return ceiling([is_correct for is_correct, _ in found], [n for _, n in found])


def _is_correct(answer: AnsweredQuestion) -> bool | None:
    key = accuracy_of(answer.scores)
    return None if key is None or answer.scores[key] not in (0, 1) else bool(answer.scores[key])
