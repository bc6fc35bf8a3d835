"""Separates benchmarks that have the same name but different rows, as in runs from two folders.

Two logs of one name contradict each other if rows of the same number are different questions, unless all questions of
one log are in the other, as with `--limit`. Logs that do not contradict each other are of one benchmark.
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

from lm_eval_leakage.logs.audit_line import content_of, recorded_key
from lm_eval_leakage.logs.audits import audit_logs_of, audited_task
from lm_eval_leakage.logs.run import NOT_AS_WRITTEN, Problem, Run, json_lines, leaves, outermost
from lm_eval_leakage.logs.runs import without_tasks
from lm_eval_leakage.questions.families import question_key

DOC_ID = re.compile(rb'"doc_id": (\d+)')
DOC_HASH = re.compile(rb'"doc_hash": "([0-9a-f]*)"')


@dataclass(frozen=True)
class RunPart:
    """The tasks of a run that belong to one benchmark.

    label: separates the benchmark from others of its name; empty if there are none
    """

    run: Run
    label: str = ""


def separated_by_rows(runs: Sequence[Run], problems: list[Problem]) -> list[RunPart]:
    """Return the runs. A run is divided if several benchmarks have the name of one of its benchmarks.

    Raises ValueError if groups of tasks overlap so that they cannot be divided.
    """
    logs: dict[str, list[_Log]] = {}
    for run in runs:
        for log in _logs_of(run):
            logs.setdefault(log.name, []).append(log)
    benchmarks: list[_Benchmark] = []
    for name, logs_of_name in sorted(logs.items()):
        benchmarks += _benchmarks(name, logs_of_name)
    if not benchmarks:
        return [RunPart(run) for run in runs]
    labels = _labels(benchmarks, logs)
    shown: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        name = name_apart(benchmark.name, labels[benchmark.units[0]])
        shown.setdefault(benchmark.name, []).append(f"{name!r} ({benchmark.place})")
    for name, same in shown.items():
        listed = ", ".join(same)
        what = f"{name} is the name of {len(same)} benchmarks with other rows, which are judged apart: {listed}"
        problems.append(Problem(what))
    parts = []
    for run in runs:
        roots = {root: label for (run_id, root), label in labels.items() if run_id == id(run)}
        parts += [RunPart(_only(run, root), label) for root, label in roots.items()]
        rest = without_tasks(run, [name for root in roots for name in _names(run, root)])
        if rest.logs or any(rest.results.get("results") or {}):
            parts.append(RunPart(rest))
    return parts


def name_apart(name: str, label: str) -> str:
    """Return the name of a task, group or subject (as task/subject) with the label of its benchmark, if any."""
    task, slash, subject = name.partition("/")
    return f"{task} [{label}]{slash}{subject}" if label and name else name


# ---------------------------------------------------------------------- logs


@dataclass(eq=False)
class _Log:
    """A samples log of a task, or of an audit of it.

    name: name of the benchmark
    is_audit: whether the task is an audit of the benchmark
    """

    run: Run
    task: str
    file: Path
    name: str
    is_audit: bool

    @property
    def root(self) -> str:
        """Return the outermost group of the run that contains the task; the task if none does."""
        return outermost(self.task, self.run.results.get("group_subtasks") or {}) or self.task

    @property
    def unit(self) -> tuple[int, str]:
        """Return what is divided as a whole: a task or group of a run, as the id of the run and the root."""
        return id(self.run), self.root

    @property
    def n_shot(self) -> str:
        return str((self.run.results.get("n-shot") or {}).get(self.task, ""))

    @cached_property
    def rows(self) -> dict[int, str]:
        """Return the hash of each row, by its number; empty if hashes are not recorded."""
        return _without_ambiguous((number, digest) for number, digest in self._scanned() if digest)

    @cached_property
    def questions(self) -> dict[int, str]:
        """Return the key of each question, which copies share, by the row's number; the hash of an unreadable row."""
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
        """Return a digest of the numbers and hashes of all rows."""
        return blake2b(json.dumps(sorted(self.rows.items())).encode(), digest_size=16).digest()

    def _scanned(self) -> Iterator[tuple[int, str]]:
        """Yield number and hash of each row, without parsing the rest of a line if possible."""
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
        except OSError:  # its reader will report it
            return


def _without_ambiguous(values: Iterable[tuple[int, str]]) -> dict[int, str]:
    """Return the value of each row by its number. A number with several values, as in a damaged log, is left out."""
    by_number: dict[int, set[str]] = {}
    for number, value in values:
        by_number.setdefault(number, set()).add(value)
    return {number: distinct.pop() for number, distinct in by_number.items() if len(distinct) == 1}


def _parsed(line: bytes) -> Iterator[tuple[int, str]]:
    try:
        content = json.loads(line)
        yield int(content["doc_id"]), str(content["doc_hash"])
    except NOT_AS_WRITTEN:
        return


def _key(line: Mapping[str, Any]) -> str:
    """Return the key of the question of a line; empty for a shard of questions, as in audits of question order."""
    doc = line["doc"]
    if isinstance(doc, Mapping) and "members" in doc:
        return ""
    if key := recorded_key(line):
        return key
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


def _contradict(log: _Log, other: _Log) -> bool:
    """Return whether two logs of one name cannot be of one benchmark."""
    if not (log.rows and other.rows):  # as their prompts word them, in any order
        first, second = ({*each.questions.values()} for each in (log, other))
        return bool(first and second) and first.isdisjoint(second)
    shared = log.rows.keys() & other.rows.keys()
    if not shared:
        data = {each.run.data.get(each.task) for each in (log, other)}
        return len(data) > 1 and None not in data and log.n_shot == other.n_shot and log.task == other.task
    if all(log.rows[number] == other.rows[number] for number in shared):
        return False
    first, second = {*log.questions.values()}, {*other.questions.values()}
    if first <= second or second <= first:
        return False
    both = log.questions.keys() & other.questions.keys()
    return any(log.questions[number] != other.questions[number] for number in both)


# ---------------------------------------------------------------------- benchmarks


@dataclass(eq=False)
class _Benchmark:
    """A benchmark that shares its name with others; it has these logs."""

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
        """Return in words how many questions it has, and where."""
        first = self.logs[0].file.parent
        return f"{len(self.questions)} questions, in {first}"


def _benchmarks(name: str, logs: Sequence[_Log]) -> list[_Benchmark]:
    """Return the benchmarks of a name; empty if there is only one.

    Logs of runs are compared with each other, and so are those of audits, since each kind numbers its rows in one way.
    A log joins the benchmark with which it has the most questions in common.
    """
    kinds = [[log for log in logs if log.is_audit is is_audit] for is_audit in (False, True)]
    if max(map(len, kinds)) < 2 or _has_one_digest(kinds):
        return []
    alike: dict[tuple[bool, bytes, str], list[_Log]] = {}
    for log in logs:
        content = (log.digest, "") if log.rows else (b"", str(log.file))
        alike.setdefault((log.is_audit, *content), []).append(log)
    groups = [*alike.values()]
    apart = set()
    for first, second in combinations(range(len(groups)), 2):
        log, other = groups[first][0], groups[second][0]
        if log.is_audit is other.is_audit and _contradict(log, other):
            apart.add(frozenset((first, second)))
    if not apart:
        return []
    questions = [{*group[0].questions.values()} for group in groups]
    clusters = [{place} for place in range(len(groups))]
    pairs = sorted(combinations(range(len(groups)), 2), key=lambda pair: -len(questions[pair[0]] & questions[pair[1]]))
    for first, second in pairs:
        cluster, other_cluster = (_cluster_of(place, clusters) for place in (first, second))
        if cluster is other_cluster or any(frozenset(pair) in apart for pair in product(cluster, other_cluster)):
            continue
        if questions[first] & questions[second] or _fits_alone(cluster, other_cluster, clusters, apart):
            clusters.remove(other_cluster)
            cluster |= other_cluster
    if len(clusters) < 2:
        return []
    return [_Benchmark(name, [log for place in sorted(cluster) for log in groups[place]]) for cluster in clusters]


def _cluster_of(place: int, clusters: Sequence[set[int]]) -> set[int]:
    return next(cluster for cluster in clusters if place in cluster)


def _has_one_digest(kinds: Iterable[Sequence[_Log]]) -> bool:
    """Return whether the runs record equal digests of their rows, so that no log must be read."""
    for logs in kinds:
        digests = {log.run.data.get(log.task) for log in logs}
        if logs and (len(digests) > 1 or None in digests):
            return False
    return True


def _fits_alone(
    cluster: set[int], other: set[int], clusters: Sequence[set[int]], apart: Collection[frozenset[int]]
) -> bool:
    """Return whether two clusters without a common question fit only each other. If several fit, none is chosen."""

    def fitting(member: set[int]) -> list[set[int]]:
        candidates = [candidate for candidate in clusters if candidate is not member]
        return [
            candidate
            for candidate in candidates
            if not any(frozenset(pair) in apart for pair in product(member, candidate))
        ]

    return fitting(cluster) == [other] and fitting(other) == [cluster]


def _labels(benchmarks: Sequence[_Benchmark], logs: Mapping[str, Sequence[_Log]]) -> dict[tuple[int, str], str]:
    """Return the label of each unit, a task or a group of a run: a digest of the rows of its benchmarks."""
    labels: dict[tuple[int, str], str] = {}
    for linked in _linked_by_units(benchmarks):
        names = sorted(benchmark.name for benchmark in linked)
        if len({*names}) < len(names):
            _refuse(next(name for name in names if names.count(name) > 1))
        digest = blake2b(digest_size=3)
        for benchmark in sorted(linked, key=lambda benchmark: benchmark.name):
            digest.update(json.dumps([benchmark.name, sorted(benchmark.questions)]).encode())
        units = (unit for benchmark in linked for unit in benchmark.units)
        labels |= dict.fromkeys(units, digest.hexdigest())
    _refuse_audited_groups({benchmark.name for benchmark in benchmarks}, benchmarks, logs)
    return labels


def _linked_by_units(benchmarks: Sequence[_Benchmark]) -> list[list[_Benchmark]]:
    """Return the benchmarks in groups of those that have units in common, directly or through others."""
    groups: list[list[_Benchmark]] = []
    for benchmark in benchmarks:
        linked, apart = [benchmark], []
        for group in groups:
            if any({*benchmark.units} & {*other.units} for other in group):
                linked += group
            else:
                apart.append(group)
        groups = [*apart, linked]
    return groups


def _refuse_audited_groups(
    divided: set[str], benchmarks: Sequence[_Benchmark], logs: Mapping[str, Sequence[_Log]]
) -> None:
    """Raise ValueError for an audit of a group as a single task, beside runs of the group's members."""
    roots = {log.root for benchmark in benchmarks for log in benchmark.logs if not log.is_audit}
    groups = {log.root for logs_of_name in logs.values() for log in logs_of_name if log.task != log.root}
    for name, logs_of_name in logs.items():
        is_group = name in roots - divided or (name in divided and name in groups)
        if is_group and any(log.is_audit for log in logs_of_name):
            _refuse(name)


def _refuse(name: str) -> None:
    raise ValueError(
        f"{name} is the name of several benchmarks with other rows here, whose groups of tasks cannot be separated; "
        "give the folders of one of them"
    )


def _names(run: Run, root: str) -> list[str]:
    """Return the tasks and groups at and below a name."""
    subtasks = run.results.get("group_subtasks") or {}
    groups = [name for name in subtasks if name == root or outermost(name, subtasks) == root]
    return [*leaves(root, subtasks), *groups]


def _only(run: Run, root: str) -> Run:
    """Return a run with only the tasks and groups at and below a name."""
    kept = {*_names(run, root)}
    every = {*run.logs, *(run.results.get("results") or {}), *(run.results.get("group_subtasks") or {})}
    return without_tasks(run, every - kept)
