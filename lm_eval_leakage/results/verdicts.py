"""Collects the verdicts of all of a model's audits on each question."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.run import Problem
from lm_eval_leakage.questions.fields import content_id
from lm_eval_leakage.records import OrderAnswers
from lm_eval_leakage.registry import without_reference
from lm_eval_leakage.results.asked_once import AskedOnce, asked_once
from lm_eval_leakage.results.detector_values import values_of_line
from lm_eval_leakage.results.published_orders import OrderStatus
from lm_eval_leakage.results.result_types import AuditedQuestion

MAIN = ("max_order", "pair_published", "stepwise")  # the columns show the flags of the first of these that was run
OUTLIER_TEST = "outlier"
TWO_OPTIONS = "with 2 options no question can be flagged: its p-value is 1/2 or 1"
PATTERN = "the published orders follow a pattern of the options' length or likeness, so that a flag would say nothing"
_Chosen = tuple[str | None, str | None, str | None]  # the ids of those whose flags, outliers and arms columns show


@dataclass(frozen=True)
class AuditedQuestions:
    """A model's audited questions.

    detector: id of the one whose flags `flagged` holds; empty if no audit has one
    """

    detector: str
    questions: tuple[AuditedQuestion, ...]


def audited_questions(
    audits: Iterable[tuple[str, AuditLine]],
    problems: list[Problem],
    detector: str | None = None,
) -> AuditedQuestions:
    """Return the questions of all audits of one model, each line with its audit's task. If a question was audited
    twice in the same way, the later verdict counts. Copies of a question within a task have the verdict of the first.

    detector: an id, such as `max_order` or `max_order:orders=12`; if no audit has it, a statistic's name as in the
    table, whose detector with the most questions is used
    """
    once = asked_once((line for _, line in audits), by_task=True)
    chosen = _chosen([line for question in once for line in question.lines.values()], detector, problems)
    of_first_rows = [_audited_question(question, chosen) for question in once]
    rows = (
        replace(audited, **_texts(name, next(iter(lines.values()))), n_rows=question.n_rows[name])
        for question, audited in zip(once, of_first_rows, strict=True)
        for name, lines in question.rows.items()
    )
    return AuditedQuestions(chosen[0] or "", tuple(rows))


def _chosen(lines: Sequence[AuditLine], wanted: str | None, problems: list[Problem]) -> _Chosen:
    counts = Counter(line.detector for line in lines)
    rates = {line.detector for line in lines if line.flagged is not None}
    with_arms = {line.detector for line in lines if line.arms is not None}

    def most(names: Sequence[str], among: set[str]) -> str | None:
        """Return the detector with the most questions of the first of the statistics `names` that was run; of several,
        the one with the fewest parameters that differ from their defaults."""
        for name in names:
            fitting = [detector for detector in sorted(among) if statistic_of(detector) == name]
            if fitting:
                best, *others = sorted(
                    fitting, key=lambda detector: (-counts[detector], detector.count("=") + detector.count("@"))
                )
                for other in others:
                    problems.append(Problem(f"columns show {best}, not {other} ({counts[other]} questions)"))
                return best
        return None

    names = [wanted] if wanted else [*MAIN, *sorted(map(statistic_of, rates))]
    main = wanted if wanted in rates else most(names, rates)
    if wanted and lines and main is None:
        choose = ", ".join(sorted({*rates, *map(statistic_of, rates)}) or ["none"])
        problems.append(Problem(f"detector is {wanted!r}, which flags nothing in these audits; choose: {choose}"))
    arms = most(sorted(map(statistic_of, with_arms)), with_arms)
    return main, most([OUTLIER_TEST], rates), arms


def statistic_of(detector: str) -> str:
    """Return the registered name of a detector's statistic."""
    return re.split("[@:]", detector, maxsplit=1)[0]


def _texts(doc_hash: str, line: AuditLine) -> dict[str, Any]:
    """Return what an audited question has from its row."""
    read = line.read
    return {
        "doc_hash": doc_hash,
        "content": content_id(read.stem, read.options) if read else "",
        "benchmark": line.benchmark,
        "subject": line.subject,
        "question": read.stem if read else "",
        "options": read.options if read else (),
        "answer": read.answer if read else None,
    }


def _audited_question(question: AskedOnce, chosen: _Chosen) -> AuditedQuestion:
    lines, first = question.lines, question.first
    audited = AuditedQuestion(
        **_texts(question.name, first),
        key=question.key,
        guards=first.guards,
        others={name: values_of_line(line) for name, line in lines.items() if name not in chosen},
        orders=_orders(list(lines.values())),
        fillers=next((line.fillers for line in lines.values() if line.fillers is not None), None),
        is_shard=first.is_of_shard,
        reason=first.reason if all(line.reason for line in lines.values()) else None,
    )
    main, outlier, arms = (lines.get(detector) if detector else None for detector in chosen)
    if main is not None:
        is_patterned = _is_natural(main, audited.orders)
        audited = replace(
            audited,
            flagged=None if _undecidable(main) or is_patterned else main.flagged,
            pvalue=None if is_patterned else main.pvalue,
            null_rate=None if is_patterned else main.null_rate,
            reason=PATTERN if is_patterned else TWO_OPTIONS if _undecidable(main) else main.reason,
            score=main.score,
            margin=main.values.get("margin"),
            n_orders=len(main.loglikelihoods) or None,
            loglikelihoods=tuple(main.loglikelihoods),
        )
    if outlier is not None:
        audited = replace(audited, outlier=outlier.flagged, outlier_null_rate=outlier.null_rate)
    return audited if arms is None else replace(audited, arms=arms.arms)


def _orders(lines: Sequence[AuditLine]) -> OrderAnswers | None:
    """Return what the verdict on the data set is computed from. The status of the published orders is in one line of
    each question; without that line nothing is known of it."""
    orders_of_line = next((line.orders for line in lines if line.orders), None)
    line_of_orders = next((line for line in lines if len(line.loglikelihoods) > 1), None)
    if orders_of_line is not None or line_of_orders is None:
        return orders_of_line
    return OrderAnswers(tuple(line_of_orders.loglikelihoods), guarded=line_of_orders.guarded)


def _is_natural(line: AuditLine, orders: OrderAnswers | None) -> bool:
    """Return whether a flag says nothing, since models may prefer the published orders without having seen them."""
    is_patterned = orders is not None and orders.orders == OrderStatus.PATTERNED
    has_reference = without_reference(line.detector) != line.detector
    return is_patterned and line.flagged is not None and bool(line.loglikelihoods) and not has_reference


def _undecidable(line: AuditLine) -> bool:
    return line.null_rate is not None and line.null_rate >= 0.5
