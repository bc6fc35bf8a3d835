"""Tells benchmarks apart that have one name but other rows, as in runs from two folders.

Two logs of one name contradict each other if rows of one number are other questions in them, unless one log's
questions are all in the other, as with `--limit`. Logs of which that cannot be said are of one benchmark, as their
name says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import combinations, product
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import QUESTION_KEY, content_of
from lm_eval_leakage.logs.audits import audit_logs_of, audited_task
from lm_eval_leakage.logs.run import NOT_AS_WRITTEN, Problem, Run, json_lines, leaves, outermost
from lm_eval_leakage.logs.runs import without_tasks
from lm_eval_leakage.questions.families import question_key

DOC_ID = re.compile(rb'"doc_id": (\d+)')
DOC_HASH = re.compile(rb'"doc_hash": "([0-9a-f]*)"')


@dataclass(frozen=True)
class RunPart:
    """The tasks of a run that are of one benchmark.

    label: what tells it apart from others of its name; empty where there are none
    """

    run: Run
    label: str = ""


def told_apart_by_rows(runs: Sequence[Run], problems: list[Problem]) -> list[RunPart]:
    """Return the runs, those divided that have a benchmark of whose name there are several.

    Raises ValueError where groups of tasks overlap so that they cannot be divided.
    """
    logs: dict[str, list[_Log]] = {}
    for run in runs:
        for log in _logs_of(run):
            logs.setdefault(log.name, []).append(log)
    benchmarks = [one for name, own in sorted(logs.items()) for one in _benchmarks(name, own)]
    if not benchmarks:
        return [RunPart(run) for run in runs]
    labels = _labels(benchmarks, logs)
    for name in dict.fromkeys(one.name for one in benchmarks):
        own = [f"{name_apart(name, labels[one.units[0]])!r} ({one.place})" for one in benchmarks if one.name == name]
        what = f"{name} is the name of {len(own)} benchmarks with other rows, which are judged apart: {', '.join(own)}"
        problems.append(Problem(what))
    parts = []
    for run in runs:
        roots = {root: label for (of, root), label in labels.items() if of == id(run)}
        parts += [RunPart(_only(run, root), label) for root, label in roots.items()]
        rest = without_tasks(run, [name for root in roots for name in _names(run, root)])
        if rest.logs or any(rest.results.get("results") or {}):
            parts.append(RunPart(rest))
    return parts


def name_apart(name: str, label: str) -> str:
    """Return the name of a task, group or subject (as task/subject) of a benchmark of whose name there are several."""
    task, slash, subject = name.partition("/")
    return f"{task} [{label}]{slash}{subject}" if label and name else name


# ---------------------------------------------------------------------- logs


@dataclass(eq=False)
class _Log:
    """A samples log of a task, or of an audit of it.

    name: of the benchmark; root: the outermost group of the run that the task is in, else the task
    """

    run: Run
    task: str
    file: Path
    name: str
    is_audit: bool

    @property
    def root(self) -> str:
        return outermost(self.task, self.run.results.get("group_subtasks") or {}) or self.task

    @property
    def unit(self) -> tuple[int, str]:
        return id(self.run), self.root

    @property
    def n_shot(self) -> str:
        return str((self.run.results.get("n-shot") or {}).get(self.task, ""))

    @cached_property
    def rows(self) -> dict[int, str]:
        """The hash of each row, by its number; empty where they are not recorded."""
        return _without_ambiguous((number, digest) for number, digest in self._scanned() if digest)

    @cached_property
    def questions(self) -> dict[int, str]:
        """What is equal for copies of a question, by the row's number; the row's hash where it cannot be read."""
        keys = []
        for _, line in self.run.read_log(self.file, []):
            try:
                if key := _key(line):
                    keys.append((int(line["doc_id"]), key))
            except NOT_AS_WRITTEN:  # its reader reports it
                continue
        return _without_ambiguous(keys)

    @property
    def digest(self) -> bytes:
        return blake2b(json.dumps(sorted(self.rows.items())).encode(), digest_size=16).digest()

    def _scanned(self) -> Iterator[tuple[int, str]]:
        """Number and hash of each row, without reading the rest of a line where that can be avoided."""
        if self.run.read_log is not json_lines:
            for _, content in self.run.read_log(self.file, []):
                yield int(content["doc_id"]), str(content["doc_hash"])
            return
        try:
            with self.file.open("rb") as lines:
                for line in lines:
                    numbers, hashes = DOC_ID.findall(line), DOC_HASH.findall(line)
                    if len(numbers) == len(hashes) == 1:
                        yield int(numbers[0]), hashes[0].decode()
                    else:
                        yield from _parsed(line)
        except OSError:  # its reader will say so
            return


def _without_ambiguous(values: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Return the value of each row by its number. Rows whose number stands for several, as in a damaged log, are left
    out: they say nothing about other logs."""
    by_number: dict[int, set[str]] = {}
    for number, value in values:
        by_number.setdefault(number, set()).add(value)
    return {number: own.pop() for number, own in by_number.items() if len(own) == 1}


def _parsed(line: bytes) -> Iterator[tuple[int, str]]:
    try:
        content = json.loads(line)
        yield int(content["doc_id"]), str(content["doc_hash"])
    except NOT_AS_WRITTEN:
        return


def _key(line: Mapping[str, Any]) -> str:
    """Empty for several questions together, which the audits of question order ask."""
    doc = line["doc"]
    if isinstance(doc, Mapping) and "members" in doc:
        return ""
    if written := line.get(QUESTION_KEY):
        return str(written)
    read, _ = content_of(doc)
    return question_key(read) if read is not None else str(line["doc_hash"])


def _logs_of(run: Run) -> Iterator[_Log]:
    audits = audit_logs_of(run)
    groups = {name for name, members in (run.results.get("group_subtasks") or {}).items() if members}
    for task, file in run.logs.items():
        if task in audits:
            yield _Log(run, task, file, audited_task(run, task), True)
        elif task not in groups:
            yield _Log(run, task, file, task, False)


def _contradict(one: _Log, other: _Log) -> bool:
    if not (one.rows and other.rows):  # as their prompts word them, in any order
        first, second = ({*log.questions.values()} for log in (one, other))
        return bool(first and second) and first.isdisjoint(second)
    shared = one.rows.keys() & other.rows.keys()
    if not shared:
        data = {log.run.data.get(log.task) for log in (one, other)}
        return len(data) > 1 and None not in data and one.n_shot == other.n_shot and one.task == other.task
    if all(one.rows[number] == other.rows[number] for number in shared):
        return False
    first, second = {*one.questions.values()}, {*other.questions.values()}
    if first <= second or second <= first:
        return False
    both = one.questions.keys() & other.questions.keys()
    return any(one.questions[number] != other.questions[number] for number in both)


# ---------------------------------------------------------------------- benchmarks


@dataclass(eq=False)
class _Benchmark:
    """One of several benchmarks of a name, with its logs."""

    name: str
    logs: list[_Log] = field(default_factory=list)

    @property
    def units(self) -> list[tuple[int, str]]:
        return list(dict.fromkeys(log.unit for log in self.logs))

    @property
    def questions(self) -> set[str]:
        return {key for log in self.logs for key in log.questions.values()}

    @property
    def place(self) -> str:
        """How many questions it has, and where."""
        first = self.logs[0].file.parent
        return f"{len(self.questions)} questions, in {first}"


def _benchmarks(name: str, logs: Sequence[_Log]) -> list[_Benchmark]:
    """The benchmarks of a name; none if it is one benchmark.

    Logs of runs contradict logs of runs, and those of audits those of audits, whose rows are numbered in one way. A
    log joins the benchmark with which it has the most questions in common.
    """
    kinds = [[log for log in logs if log.is_audit is is_audit] for is_audit in (False, True)]
    if max(map(len, kinds)) < 2 or _has_one_digest(kinds):
        return []
    alike: dict[tuple[bool, bytes, str], list[_Log]] = {}
    for log in logs:
        own = log.digest if log.rows else b"", "" if log.rows else str(log.file)
        alike.setdefault((log.is_audit, *own), []).append(log)
    found = [*alike.values()]
    apart = {
        frozenset(pair)
        for pair in combinations(range(len(found)), 2)
        if found[pair[0]][0].is_audit is found[pair[1]][0].is_audit
        and _contradict(found[pair[0]][0], found[pair[1]][0])
    }
    if not apart:
        return []
    questions = [{*own[0].questions.values()} for own in found]
    clusters = [{place} for place in range(len(found))]
    pairs = sorted(combinations(range(len(found)), 2), key=lambda pair: -len(questions[pair[0]] & questions[pair[1]]))
    for first, second in pairs:
        one, other = (next(own for own in clusters if place in own) for place in (first, second))
        if one is other or any(frozenset(pair) in apart for pair in product(one, other)):
            continue
        is_clear = questions[first] & questions[second] or _fits_alone(one, other, clusters, apart)
        if is_clear:
            clusters.remove(other)
            one |= other
    if len(clusters) < 2:
        return []
    return [_Benchmark(name, [log for place in sorted(own) for log in found[place]]) for own in clusters]


def _has_one_digest(kinds: Iterable[Sequence[_Log]]) -> bool:
    """Whether the runs themselves say that their rows are the same, so that no log need be read."""
    found = [{log.run.data.get(log.task) for log in own} for own in kinds if own]
    return all(len(own) == 1 and None not in own for own in found)


def _fits_alone(
    one: set[int], other: set[int], clusters: Sequence[set[int]], apart: Collection[frozenset[int]]
) -> bool:
    """Whether two that have no question in common fit each other alone: of several that fit, none is chosen."""

    def fitting(own: set[int]) -> list[set[int]]:
        return [
            cluster
            for cluster in clusters
            if cluster is not own and not any(frozenset(pair) in apart for pair in product(own, cluster))
        ]

    return fitting(one) == [other] and fitting(other) == [one]


def _labels(benchmarks: Sequence[_Benchmark], logs: Mapping[str, Sequence[_Log]]) -> dict[tuple[int, str], str]:
    """The label of each unit, a task or a group of a run: a digest of the rows of its benchmarks."""
    together: list[list[_Benchmark]] = []
    for one in benchmarks:
        linked = [own for own in together if any({*one.units} & {*other.units} for other in own)]
        together = [own for own in together if own not in linked] + [
            [one, *(other for own in linked for other in own)]
        ]
    labels: dict[tuple[int, str], str] = {}
    for own in together:
        names = sorted(one.name for one in own)
        if len({*names}) < len(names):
            _refuse(next(name for name in names if names.count(name) > 1))
        digest = blake2b(digest_size=3)
        for one in sorted(own, key=lambda one: one.name):
            digest.update(json.dumps([one.name, sorted(one.questions)]).encode())
        labels |= dict.fromkeys((unit for one in own for unit in one.units), digest.hexdigest())
    divided = {one.name for one in benchmarks}
    roots = {log.root for one in benchmarks for log in one.logs if not log.is_audit}
    for name, own_logs in logs.items():  # an audit of a group as one task, beside runs of its members
        of_audits = any(log.is_audit for log in own_logs)
        of_group = any(log.root == name and log.task != name for own in logs.values() for log in own)
        if (name in roots - divided and of_audits) or (name in divided and of_audits and of_group):
            _refuse(name)
    return labels


def _refuse(name: str) -> None:
    raise ValueError(
        f"{name} is the name of several benchmarks with other rows here, whose groups of tasks cannot be told apart; "
        "give the folders of one of them"
    )


def _names(run: Run, root: str) -> list[str]:
    """The tasks and groups at and below a name."""
    subtasks = run.results.get("group_subtasks") or {}
    groups = [name for name in subtasks if name == root or outermost(name, subtasks) == root]
    return [*leaves(root, subtasks), *groups]


def _only(run: Run, root: str) -> Run:
    kept = {*_names(run, root)}
    every = {*run.logs, *(run.results.get("results") or {}), *(run.results.get("group_subtasks") or {})}
    return without_tasks(run, every - kept)
