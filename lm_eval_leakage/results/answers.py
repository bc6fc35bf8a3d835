"""How a run answered each question, out of its samples logs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

from lm_eval_leakage.logs.line_reader import content_of
from lm_eval_leakage.logs.problems import NOT_AS_WRITTEN, Problem
from lm_eval_leakage.questions.fields import subject_of

ACCURACIES = ("acc", "acc_norm", "exact_match")


@dataclass(frozen=True)
class Answer:
    """One question as a run answered it; fields as of AnnotatedQuestion.

    filters: of the harness, under which the log has it
    """

    doc_id: int
    doc_hash: str
    content: str
    subject: str
    length: int
    scores: Mapping[str, float]
    filters: frozenset[str] = frozenset()


def answers(
    lines: Iterable[tuple[int, Mapping[str, Any]]], problems: list[Problem], file: Path | None = None
) -> list[Answer]:
    """Of one task's numbered samples. The harness writes a line for every filter, which come together here; a question
    that stands in the log twice (one run of the harness appends to another's) counts once."""
    scores: dict[tuple[int, str], dict[str, float]] = {}
    filters: dict[tuple[int, str], set[str]] = {}
    found: dict[tuple[int, str], Mapping[str, Any]] = {}
    for number, sample in lines:
        try:
            doc = sample["doc"]
            key = int(sample["doc_id"]), str(sample.get("doc_hash") or _hash(doc))
            if key not in found:
                _, content = content_of(doc)
                length = sum(map(len, _texts(doc)))
                found[key] = {"content": content, "subject": subject_of(doc), "length": length}
            scores.setdefault(key, {}).update(_scores(sample))
            filters.setdefault(key, set()).add(intern(str(sample.get("filter", "none"))))
        except NOT_AS_WRITTEN as error:
            problems.append(Problem(f"left out, no line of a samples log ({error!r})", file, number))
    return [
        Answer(*key, scores=scores.get(key, {}), filters=frozenset(filters.get(key, ())), **rest)
        for key, rest in found.items()
    ]


def _scores(sample: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics of a line that are numbers; older harnesses do not list their names."""
    for name in sample.get("metrics") or ACCURACIES:
        value = sample.get(name)
        if isinstance(value, (int, float)):
            yield f"{name},{sample.get('filter', 'none')}", float(value)


def accuracy_of(scores: Iterable[str]) -> str | None:
    """The metric that says whether an answer is right, of those that a question has."""
    keys = list(scores)
    for metric in ACCURACIES:
        for key in keys:
            if key.split(",")[0] == metric:
                return key
    return None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _texts(part)


def _hash(doc: Mapping[str, Any]) -> str:
    """As the harness makes a row's hash."""
    text = json.dumps(doc, indent=2, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
