"""The tests that logs of a sealed benchmark allow: an entry in `LOG_TESTS` each, in the order in which they are shown.

A test of one more kind is a function of the lines that it reads, and its entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from lm_eval_leakage.detector_ids import without_reference
from lm_eval_leakage.inference.order_power import OrderPower
from lm_eval_leakage.inference.order_sum import OrderSum, order_sum, standard_scores
from lm_eval_leakage.inference.pooling import Floats
from lm_eval_leakage.inference.seal_combined import (
    ORDER_DRAW,
    PLACE_DRAW,
    WORDING_DRAW,
    Hits,
    SealedTest,
    hits_of,
    of_order_sum,
)
from lm_eval_leakage.inference.sealed_tests import hits_log_evalue, hits_pvalue
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.results.data_verdict import FEWEST_JUDGED, data_verdict, order_hits
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.results.null_status import SEALED_ORDERS
from lm_eval_leakage.results.sealed_ceiling import ceiling_tests
from lm_eval_leakage.results.sealed_logs import SealedLine, SealedLogs
from lm_eval_leakage.results.verdicts import statistic_of
from lm_eval_leakage.sealing.seal import Seal
from lm_eval_leakage.statistics.wording_rank import wording_scores, wording_sum

FEWEST_SHARDS = 5
SHARD_SEED = 0
ORDER_KEPT = "its order was kept by the author"
NO_ANSWERS = "its answers are missing"


@dataclass(frozen=True)
class LogTest:
    """name: as shown
    audit: the audit whose logs it reads
    draw: which of the key's draws it tests
    reads: whether it uses a line
    test: from everything of a model, and the lines of one detector, oldest first
    """

    name: str
    audit: str
    draw: str
    reads: Callable[[AuditLine], bool]
    test: Callable[[SealedTest, SealedLogs, Sequence[SealedLine]], SealedTest]

    def of(self, logs: SealedLogs) -> list[SealedTest]:
        """The tests by each detector that was run, the one with the most questions first; empty if none was."""
        own = {key: [one for one in lines if self.reads(one.line)] for key, lines in logs.lines.items()}
        ordered = sorted(own.items(), key=lambda pair: (-len({one.places for one in pair[1]}), pair[0]))
        tested = [key for key, lines in ordered if any(one.line.reason is None for one in lines)]
        found = [(key, lines) for key, lines in ordered if lines and (key in tested or not tested)]
        names = [self.name if len(found) == 1 else f"{self.name} ({key})" for key, _ in found]
        tests = [SealedTest(name, self.draw) for name in names]
        return [self.test(test, logs, lines) for test, (_, lines) in zip(tests, found, strict=True)]


def is_read(line: AuditLine) -> bool:
    """Whether some test uses a line."""
    return any(test.reads(line) for test in LOG_TESTS)


def all_tests(logs: SealedLogs) -> list[SealedTest]:
    """Those that the logs allow."""
    return [*(found for test in LOG_TESTS for found in test.of(logs)), *ceiling_tests(logs)]


def not_run(logs: SealedLogs, tests: Iterable[SealedTest]) -> list[str]:
    """What else could have been run, in words."""
    found = [test.name for test in tests]
    has_wordings = any(len(question.wordings) > 1 for question in logs.seal.questions)
    missing = [test for test in LOG_TESTS if not any(name.startswith(test.name) for name in found)]
    return [f"{test.name} (TASK_{test.audit})" for test in missing if has_wordings or test.name != WORDINGS_TEST.name]


def by(statistic: str) -> Callable[[AuditLine], bool]:
    return lambda line: statistic_of(line.detector) == statistic


@dataclass(frozen=True)
class _Sorted:
    """The lines that a test uses, the newest of each question or shard (one that was skipped only if it never was
    tested), and how many it cannot use, by reason."""

    used: tuple[SealedLine, ...]
    left_out: dict[str, int]

    @property
    def places(self) -> frozenset[int]:
        return frozenset(place for one in self.used for place in one.places)


def _sorted(lines: Iterable[SealedLine], why_not: Callable[[SealedLine], str | None]) -> _Sorted:
    newest = {one.places: one for one in sorted(lines, key=lambda one: one.line.reason is None)}
    reasons = {places: one.line.reason or why_not(one) for places, one in newest.items()}
    used = tuple(newest[places] for places in sorted(newest) if not reasons[places])
    return _Sorted(used, dict(Counter(filter(None, reasons.values()))))


# ---------------------------------------------------------------------- wordings


def wording_answers(seal: Seal, lines: Iterable[SealedLine]) -> dict[tuple[int, ...], Floats]:
    """Log-likelihoods of the wordings of each question that was answered, nats, the published one first."""
    return {one.places: np.array(one.line.versions) for one in _sorted(lines, partial(_no_wordings, seal)).used}


def _no_wordings(seal: Seal, one: SealedLine) -> str | None:
    own = one.line.versions
    is_complete = len(own) == len(seal.questions[one.places[0]].wordings) and np.isfinite(own).all()
    return None if is_complete else NO_ANSWERS


def _wordings(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    """Of the model's log-likelihoods minus the reference's, if there is one."""
    others = None
    if logs.reference is not None:
        key = without_reference(lines[0].line.detector)
        others = wording_answers(logs.seal, logs.reference.lines.get(key, ()))
        test = replace(test, name=f"{test.name}, minus {logs.reference.model}")

    def why_not(one: SealedLine) -> str | None:
        is_asked = others is None or one.places in others
        return _no_wordings(logs.seal, one) or (None if is_asked else "the reference was not asked it")

    found = _sorted(lines, why_not)
    scores = []
    for one in found.used:
        texts = [text.strip() for text in logs.seal.questions[one.places[0]].wordings]
        own = np.array(one.line.versions) - (0.0 if others is None else others[one.places])
        scores.append(wording_scores(own.tolist(), texts))
    test = replace(test, left_out=found.left_out, places=found.places, hits=(hits_of(WORDINGS_TEST.name, scores),))
    return _of_sum(test, wording_sum(scores), FEWEST_JUDGED)


def _of_sum(test: SealedTest, found: OrderSum, fewest: int) -> SealedTest:
    if found.n < fewest:
        return replace(test, n=found.n, reason=f"{counted(found.n, test.units)}; at least {fewest} are needed")
    return of_order_sum(test, found)


# ---------------------------------------------------------------------- option orders


def _is_of_orders(line: AuditLine) -> bool:
    """Also a question that was skipped, whose line does not have the status of the orders."""
    return line.published_orders is not None or (line.reason is not None and by("max_order")(line))


def _not_drawn(seal: Seal, one: SealedLine) -> str | None:
    return None if seal.questions[one.places[0]].order_drawn else ORDER_KEPT


def _orders(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, partial(_not_drawn, logs.seal))
    answers = [OrderAnswers(tuple(one.line.loglikelihoods), SEALED_ORDERS) for one in found.used]
    verdict = data_verdict(answers)
    scores = [standard_scores(np.array(one.loglikelihoods)) for one in answers]
    power = OrderPower([np.exp(own) for own in scores if own is not None])
    test = replace(test, left_out=found.left_out, places=found.places, hits=order_hits(answers), power=power)
    return _of_sum(test, replace(verdict.tested, n=verdict.n), FEWEST_JUDGED)


# ---------------------------------------------------------------------- guesses by chat


def _guesses(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, partial(_not_drawn, logs.seal))
    guesses = [one.line for one in found.used if one.line.null_rate]
    hits, rates = [bool(guess.flagged) for guess in guesses], [guess.null_rate or 0.0 for guess in guesses]
    test = replace(test, n=len(found.used), left_out=found.left_out, places=found.places)
    if not guesses:
        return replace(test, reason="no reply names a candidate")
    spread = sum(rate * (1 - rate) for rate in rates)
    return replace(
        test,
        effect=(sum(hits) - sum(rates)) / len(hits),
        effect_error=spread**0.5 / len(hits),
        unit="hits above chance",
        pvalue=hits_pvalue(hits, rates),
        log_evalue=hits_log_evalue(hits, rates),
        hits=(Hits("chat guesses", sum(hits), tuple(rates)),),
    )


# ---------------------------------------------------------------------- question order


def _question_order(test: SealedTest, logs: SealedLogs, lines: Sequence[SealedLine]) -> SealedTest:
    found = _sorted(lines, lambda one: None if len(one.line.versions) > 1 else NO_ANSWERS)
    scores = [standard_scores(np.array(one.line.versions)) for one in found.used]
    tested = order_sum([own for own in scores if own is not None], np.random.default_rng(SHARD_SEED))
    test = replace(test, units="shard", left_out=found.left_out, places=found.places)
    return _of_sum(test, tested, FEWEST_SHARDS)


WORDINGS_TEST = LogTest("wordings", "leakage_wording", WORDING_DRAW, by("wording_rank"), _wordings)
LOG_TESTS = (
    WORDINGS_TEST,
    LogTest("option orders", "leakage_perm", ORDER_DRAW, _is_of_orders, _orders),
    LogTest("chat guesses", "leakage_sealed_chat", ORDER_DRAW, by("published_guess"), _guesses),
    LogTest("question order", "leakage_shared_likelihood", PLACE_DRAW, by("shared_likelihood"), _question_order),
)
