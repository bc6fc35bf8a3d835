"""Samples logs of leakage audits, line by line."""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from sys import intern
from typing import Any

from lm_eval_leakage.inference.known_scores import class_of
from lm_eval_leakage.logs.problems import NOT_AS_WRITTEN, Problem
from lm_eval_leakage.questions.fields import content_id, question_from_doc
from lm_eval_leakage.records import Question, UntestableQuestion

logger = logging.getLogger(__name__)

MARK = "ranks_by"  # a key that lines of our audits have, and no others


@dataclass(frozen=True)
class Arms:
    """Whether the model answers a question rightly in each arm of the choice-confusion audit."""

    original: bool
    shuffled: bool
    replaced: bool
    generalized: bool


@dataclass(frozen=True)
class Judged:
    """One question as one statistic judged it.

    question: hash of the benchmark's row, the same in every audit of the benchmark
    doc_id: number of the row in the audit, which tells copies of a row apart
    read: the row as a question; None where it cannot be read
    subject: as the benchmark files it, else the audit's file name
    detector: probe and statistic with their parameters; filter: the statistic's name in tables
    scores: by detector and, after a slash, the value that ranks; empty where the question was not tested
    guards: which natural orders its options have
    flagged, null_rate, pvalue: by the published rule; None where there is no rule, or no rate
    loglikelihoods: of the orders that were asked, published first, nats; empty for other probes
    calibrated_flagged: by the calibration that the run had; None without one
    """

    question: str
    doc_id: int | None
    doc: Mapping[str, Any]
    read: Question | None
    subject: str
    detector: str
    filter: str
    scores: Mapping[str, float]
    guards: tuple[str, ...]
    flagged: bool | None
    null_rate: float | None
    pvalue: float | None
    reason: str | None
    margin: float | None
    loglikelihoods: array[float]
    arms: Arms | None
    calibrated_flagged: bool | None

    @property
    def guarded(self) -> bool:
        """Whether its options have a natural order."""
        return bool(self.guards)

    @property
    def of_class(self) -> str:
        """As of `known_scores`."""
        return class_of(0 if self.read is None else len(self.read.options), self.guarded)


def judged_lines(
    lines: Iterable[tuple[int, Mapping[str, Any]]], task: str, problems: list[Problem], file: Path | None = None
) -> Iterator[Judged]:
    """Of an audit's numbered samples; what is no line of an audit is named and left out."""
    for number, sample in lines:
        try:
            yield _judged(sample, task)
        except NOT_AS_WRITTEN as error:
            what = f"left out, no line of an audit as this package writes them ({error!r})"
            problems.append(Problem(what, file, number))


def model_of(place: Path) -> str | None:
    """The model's name, from the newest results beside the logs that can be read; None where there are none."""
    folder = place.parent if place.is_file() else place
    for results in sorted(folder.rglob("results_*.json"), reverse=True):
        try:
            return str(json.loads(results.read_text(encoding="utf-8"))["model_name"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            logger.warning("%s names no model: %r", results, error)
    return None


def content_of(doc: Mapping[str, Any]) -> tuple[Question | None, str]:
    """The question of a row and a hash of its words, by which runs are joined where their rows differ in other fields;
    empty where it holds no question in a known layout."""
    try:
        question = question_from_doc(doc)
    except (UntestableQuestion, TypeError):
        return None, ""
    return question, content_id(question.stem, question.options)


def _judged(sample: Mapping[str, Any], task: str) -> Judged:
    detector = intern(sample["detector"])
    keys = [key for key in sample[MARK].split(",") if key]
    doc = sample["doc"]
    read, _ = content_of(doc)
    return Judged(
        question=_hash(sample),
        doc_id=_typed(sample, "doc_id", int),
        doc=doc,
        read=read,
        subject=(read.subject if read else "") or task,
        detector=detector,
        filter=intern(sample.get("filter") or detector.rpartition("/")[2]),
        scores={intern(f"{detector}/{key}"): float(sample[key]) for key in keys if sample[key] is not None},
        guards=tuple(guard for guard in sample["guards"].split(",") if guard),
        flagged=_typed(sample, "flagged", bool),
        null_rate=_number(sample, "null_rate"),
        pvalue=_number(sample, "pvalue"),
        reason=_typed(sample, "reason", str),
        margin=_number(sample, "margin"),
        loglikelihoods=_orders(sample),
        arms=_arms(sample),
        calibrated_flagged=_typed(sample, "calibrated_flagged", bool),
    )


def _hash(sample: Mapping[str, Any]) -> str:
    """Without one, a line would stand for every other such line."""
    if not isinstance(sample["doc_hash"], str) or not sample["doc_hash"]:
        raise TypeError(f"doc_hash is {sample['doc_hash']!r}")
    return sample["doc_hash"]


def _number(sample: Mapping[str, Any], key: str) -> float | None:
    found = sample.get(key)
    return None if found is None else float(_typed(sample, key, (int, float)) or 0.0)


def _typed(sample: Mapping[str, Any], key: str, kind: Any) -> Any:
    """None stays; anything but `kind` is an error."""
    found = sample.get(key)
    if found is not None and not isinstance(found, kind):
        raise TypeError(f"{key} is {found!r}")
    return found


def _orders(sample: Mapping[str, Any]) -> array[float]:
    """Single precision, since 14,042 questions of 24 orders are held at a time."""
    n_orders = sample.get("n_orders")
    responses = sample.get("resps") or []
    if n_orders is None or len(responses) != n_orders:
        return array("f")
    return array("f", (float(response[0][0]) for response in responses))


def _arms(sample: Mapping[str, Any]) -> Arms | None:
    if not isinstance(sample.get("generalized"), bool):
        return None
    arms = [sample[arm.name] for arm in fields(Arms)]
    if not all(isinstance(right, bool) for right in arms):
        raise TypeError(f"arms are {arms!r}")
    return Arms(*arms)
