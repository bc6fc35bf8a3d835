"""Gathers the questions of audits, each once: its lines, those of its copies, and how many rows have it.

Every test, rate and list of one model's questions is computed from these."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.results.grouping import grouped
from lm_eval_leakage.results.result_types import Lines


@dataclass(frozen=True)
class AskedOnce:
    """A question that one row or several ask.

    key: equal for copies; the hash of the row where it cannot be read
    rows: the lines of each row by its hash, the first row of the benchmark first
    n_rows: number of rows with that hash, of each
    """

    key: str
    rows: Mapping[str, Lines]
    n_rows: Mapping[str, int]

    @property
    def name(self) -> str:
        """Return the hash of the first row."""
        return next(iter(self.rows))

    @cached_property
    def lines(self) -> Lines:
        """Return what counts: of each detector, the line of the first row that it judged."""
        merged: dict[str, AuditLine] = {}
        for by_detector in self.rows.values():
            for detector, line in by_detector.items():
                merged.setdefault(detector, line)
        return merged

    @property
    def first(self) -> AuditLine:
        """Return one line of the first row."""
        return next(iter(self.lines.values()))

    @property
    def scores(self) -> dict[str, float]:
        """Return the scores by the names of detectors."""
        return {name: score for line in self.lines.values() for name, score in line.scores.items()}


def asked_once(lines: Iterable[AuditLine], *, by_task: bool = False) -> list[AskedOnce]:
    """Return the questions of one model's lines, oldest first; if a detector judged a row twice, the later line
    counts.

    by_task: whether what two tasks ask counts once for each
    """
    lines = list(lines)
    of_whole = _rows_of_whole_benchmarks(lines)
    rows: dict[str, dict[str, AuditLine]] = {}
    repeated: dict[str, set[int | None]] = {}
    for line in lines:
        name = of_whole.get((line.benchmark, line.question_key), line.question)
        row = rows.setdefault(name, {})
        if line.is_repeated and line.detector in row:
            repeated.setdefault(name, set()).add(line.doc_id)
        else:
            row[line.detector] = line
    first = {name: next(iter(by_detector.values())) for name, by_detector in rows.items()}

    def key(name: str) -> tuple[str, str]:
        """Return the key as an audit wrote it; the hash of a row that could not be read, or of a shard."""
        written = (line.question_key for line in rows[name].values() if line.question_key)
        return first[name].benchmark if by_task else "", next(written, name)

    def place(name: str) -> tuple[str, float]:
        """Return the task and the number of the row; unknown numbers last."""
        number = first[name].doc_id
        return first[name].benchmark, math.inf if number is None else number

    questions = []
    for (_, question_key), names in grouped(rows, key).items():
        n_rows = {name: 1 + len(repeated.get(name, ())) for name in names}
        questions.append(AskedOnce(question_key, {name: rows[name] for name in sorted(names, key=place)}, n_rows))
    return questions


def _rows_of_whole_benchmarks(lines: Sequence[AuditLine]) -> dict[tuple[str, str], str]:
    """Return the hashes of rows in the audit of a whole benchmark, by the task and the key of the same question there.

    An audit of all subjects, such as `cmmlu_leakage_perm`, adds the subject to rows that do not have it. So their
    hashes differ from those in audits of single tasks, such as `cmmlu_agronomy_choice_confusion`. Rows that have the
    same hash in both are left out.
    """
    hashes_of_task = defaultdict(set)
    for line in lines:
        hashes_of_task[line.benchmark].add(line.question)
    hashes = {}
    for line in lines:
        task = f"{line.benchmark}_{line.subject}"
        differs = task in hashes_of_task and line.question not in hashes_of_task[task]
        if line.subject and line.question_key and differs:
            hashes[task, line.question_key] = line.question
    return hashes
