"""Another model's log-likelihoods of the wordings of a sealed benchmark, subtracted from those of each audited model.

Wordings differ by nats for reasons other than memory, and other models find the same ones likely: what they share
is subtracted, so that a faint memory shows. Null hypothesis: model and reference are independent of the key's draws.
Then so are the differences, and the test of wordings is exact, whatever the reference; only its power depends on it. A
model that is older than the seal has certainly seen neither the public nor the private folder.

Limits: a reference that has seen the published wordings hides what the model remembers; one that has seen the private
ones alone makes p-values too small. Both are told where the reference's own answers show them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lm_eval_leakage.inference.pooling import Floats
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.results.data_verdict import EVIDENCE_LEVEL
from lm_eval_leakage.results.formatting import pvalue_equation
from lm_eval_leakage.results.log_tests import WORDINGS_TEST, wording_answers
from lm_eval_leakage.results.sealed_logs import SealedLine, SealedLogs, sealed_logs
from lm_eval_leakage.sealing.seal import Seal

SAME_ANSWERS = 1e-3  # nats; the same weights differ by less in single precision, whatever is in a batch
OLDER = "take a model that is older than the seal"


def reference_in(place: Path, seal: Seal, problems: list[Problem]) -> SealedLogs:
    """The answers of the one model whose audits a folder holds.

    problems: gets what is missing there, and whether the reference may have seen what it must not

    Raises ValueError, with the remedy, if the folder holds no answers to wordings of this seal, or those of several
    models.
    """
    try:
        found = sealed_logs([place], seal, WORDINGS_TEST.reads, problems)
    except ValueError as error:
        raise ValueError(f"reference is {str(place)!r}: {error}") from error
    if len(found) > 1:
        names = ", ".join(logs.model for logs in found)
        raise ValueError(f"reference is {str(place)!r}, which holds audits of {names}; name the folder of one")
    (reference,) = found
    if not any(wording_answers(seal, lines) for lines in reference.lines.values()):
        raise ValueError(
            f"reference is {str(place)!r}, where no wording was scored; run {seal.name}_{WORDINGS_TEST.audit} with it"
        )
    problems += [*reference.problems, *_doubts(reference)]
    return reference


def with_reference(logs: SealedLogs, reference: SealedLogs) -> SealedLogs:
    """The logs with the reference's answers to the same wordings; unchanged if no wordings were asked.

    Raises ValueError if the reference is the model itself.
    """
    asked = {key: {one.places for one in lines} for key, lines in logs.lines.items() if _is_of_wordings(lines)}
    lines = {key: [one for one in reference.lines.get(key, ()) if one.places in own] for key, own in asked.items()}
    if not asked:
        return logs
    found = replace(logs, reference=replace(reference, lines=lines))
    _refuse_itself(logs, reference, list(_differences(found)))
    return found


def _is_of_wordings(lines: Sequence[SealedLine]) -> bool:
    return any(WORDINGS_TEST.reads(one.line) for one in lines)


def _differences(logs: SealedLogs) -> Iterator[Floats]:
    """Of each question that both were asked, in nats."""
    assert logs.reference is not None
    for key, lines in logs.reference.lines.items():
        others = wording_answers(logs.seal, lines)
        own = wording_answers(logs.seal, logs.lines[key])
        yield from (own[places] - others[places] for places in own.keys() & others.keys())


def _refuse_itself(logs: SealedLogs, reference: SealedLogs, differences: Sequence[Floats]) -> None:
    if logs.runs[-1].key == reference.runs[-1].key:
        raise ValueError(
            f"{reference.model} is the reference and is to be audited, too, but minus itself it says nothing; name "
            "the folders of the other models, or another reference"
        )
    if differences and max(float(np.ptp(own)) for own in differences) < SAME_ANSWERS:
        raise ValueError(
            f"{reference.model}, the reference, answers as {logs.model} does, so that it is the same model by another "
            f"name, and its answers minus its own say nothing; {OLDER} and another one"
        )


def _doubts(reference: SealedLogs) -> Iterator[Problem]:
    for logs, which, then in (
        (reference, "published", "hides what other models remember"),
        (_negated(reference), "private", "makes p-values of other models too small"),
    ):
        for test in WORDINGS_TEST.of(logs):
            if test.was_run and test.pvalue <= EVIDENCE_LEVEL:
                found = f"prefers the {which} wordings ({pvalue_equation(test.pvalue, test.is_bound)})"
                yield Problem(f"{logs.model}, the reference, {found}: if it has seen them, it {then}; {OLDER}")


def _negated(logs: SealedLogs) -> SealedLogs:
    """As of a model that finds likely what this one finds unlikely."""

    def negated(one: SealedLine) -> SealedLine:
        return replace(one, line=replace(one.line, versions=array("d", (-value for value in one.line.versions))))

    return replace(logs, lines={key: [negated(one) for one in lines] for key, lines in logs.lines.items()})
