"""The one reader of an audit's lines, of this version and of version 1."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from sys import intern
from typing import Any

from lm_eval_leakage.detector_ids import score_names
from lm_eval_leakage.logs.audit_line import CORE, OF_HARNESS, VERSION, VERSION_KEY, Arms, AuditLine
from lm_eval_leakage.logs.audit_tasks import benchmark_of
from lm_eval_leakage.logs.problems import NOT_AS_WRITTEN, Problem
from lm_eval_leakage.logs.version_1 import id_of
from lm_eval_leakage.questions.fields import content_id, question_from_doc
from lm_eval_leakage.records import Question, UntestableQuestion

NO_VALUES = frozenset((*CORE, *OF_HARNESS))


def audit_lines(
    samples: Iterable[tuple[int, Mapping[str, Any]]], task: str, problems: list[Problem], file: Path | None = None
) -> Iterator[AuditLine]:
    """Of an audit's numbered samples; what is no line of an audit is named and left out."""
    for number, sample in samples:
        try:
            yield read_line(sample, task)
        except NOT_AS_WRITTEN as error:
            what = f"left out, no line of an audit as this package writes them ({error!r})"
            problems.append(Problem(what, file, number))


def read_line(sample: Mapping[str, Any], task: str) -> AuditLine:
    """One line of the samples of an audit, `task`. Raises one of NOT_AS_WRITTEN for any other."""
    version = _version(sample)
    named = _text(sample, "detector")
    detector = intern(named if version > 1 else id_of(named))
    keys = tuple(key for key in sample["ranks_by"].split(",") if key)
    read, _ = content_of(sample["doc"])
    return AuditLine(
        question=_hash(sample),
        doc_id=_typed(sample, "doc_id", int),
        doc=sample["doc"],
        read=read,
        subject=(read.subject if read else "") or task,
        benchmark=intern(_text(sample, "benchmark") if version > 1 else benchmark_of(task)),
        detector=detector,
        filter=intern(sample.get("filter") or named.rpartition("/")[2]),
        scores={
            intern(name): float(sample[key])
            for key, name in score_names(detector, keys).items()
            if sample[key] is not None
        },
        guards=tuple(guard for guard in sample["guards"].split(",") if guard),
        flagged=_typed(sample, "flagged", bool),
        null_rate=_number(sample, "null_rate"),
        pvalue=_number(sample, "pvalue"),
        reason=_typed(sample, "reason", str),
        margin=_number(sample, "margin"),
        loglikelihoods=_orders(sample),
        arms=_arms(sample),
        calibrated_flagged=_typed(sample, "calibrated_flagged", bool),
        values={
            intern(key): float(value)
            for key, value in sample.items()
            if key not in NO_VALUES and isinstance(value, (bool, int, float))
        },
    )


def content_of(doc: Mapping[str, Any]) -> tuple[Question | None, str]:
    """The question of a row and a hash of its words, by which runs are joined where their rows differ in other fields;
    empty where it holds no question in a known layout."""
    try:
        question = question_from_doc(doc)
    except (UntestableQuestion, TypeError):
        return None, ""
    return question, content_id(question.stem, question.options)


def _version(sample: Mapping[str, Any]) -> int:
    version = sample.get(VERSION_KEY, 1)
    if version not in (1, VERSION) or isinstance(version, bool):
        raise ValueError(f"{VERSION_KEY} is {version!r}; this package reads versions 1 and {VERSION}")
    return int(version)


def _hash(sample: Mapping[str, Any]) -> str:
    """Without one, a line would stand for every other such line."""
    return _text(sample, "doc_hash")


def _text(sample: Mapping[str, Any], key: str) -> str:
    found = sample[key]
    if not isinstance(found, str) or not found:
        raise TypeError(f"{key} is {found!r}")
    return found


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
