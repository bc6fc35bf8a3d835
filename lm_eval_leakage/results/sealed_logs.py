"""The logs of audits of a sealed benchmark, by model: which lines are of its questions, and what else was there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from lm_eval_leakage.detector_ids import without_reference
from lm_eval_leakage.logs.audit_line import AuditLine
from lm_eval_leakage.logs.audits import audit_logs_of, lines_of_audits
from lm_eval_leakage.logs.problems import Problem
from lm_eval_leakage.logs.run import Run
from lm_eval_leakage.logs.runs import find_runs
from lm_eval_leakage.results.formatting import counted
from lm_eval_leakage.sealing.seal import COMMITMENT_KEY, Seal

SEAL_OF_ROW = "seal"  # the commitment, in the row of a shard
OWN_ANSWERS = (
    "was run with reference_log, which its table and its flags subtract; here the model's own answers are tested, "
    "minus those of `--reference` in the test of wordings"
)


@dataclass(frozen=True)
class SealedLine:
    """A line of an audit of this seal.

    places: of its questions in the public file: one, or those of a shard
    """

    places: tuple[int, ...]
    line: AuditLine


@dataclass(frozen=True)
class SealedLogs:
    """What is there of one model.

    lines: of the seal's questions, oldest first, by the detector's id without a `reference_log`, since the answers in
        a line are the model's own with and without one
    runs: everything, also without audits
    problems: what is missing or of something else
    reference: what is there of another model, whose log-likelihoods of the same wordings are subtracted; None without
        one, and where no wordings were asked
    """

    seal: Seal
    model: str
    lines: Mapping[str, Sequence[SealedLine]]
    runs: Sequence[Run]
    problems: tuple[Problem, ...] = ()
    reference: SealedLogs | None = None

    @property
    def digest(self) -> str:
        """Equal for the same answers to the same questions, minus the same answers of a reference or none, wherever
        their logs are."""
        found = {repr(_answers(one.line)) for own in self.lines.values() for one in own}
        if self.reference is not None:
            found.add(f"minus {self.reference.digest}")
        return sha256("\n".join(sorted(found)).encode("utf-8", "replace")).hexdigest()


def _answers(line: AuditLine) -> tuple[object, ...]:
    own = (line.loglikelihoods.tobytes().hex(), line.versions.tobytes().hex(), line.flagged, line.pvalue)
    return line.detector, line.question, line.reason, *own


def sealed_logs(
    places: Sequence[Path], seal: Seal, wanted: Callable[[AuditLine], bool], problems: list[Problem]
) -> list[SealedLogs]:
    """The logs of each model, in the order of their first runs.

    wanted: whether some test uses a line; others are not kept
    problems: gets those that are of no model

    Raises ValueError if there is no run, or no audit of the seal's questions.
    """
    by_model: dict[str, list[Run]] = defaultdict(list)
    for run in find_runs(places, problems):
        by_model[run.key].append(run)
    found = [_of_model(runs, seal, wanted) for runs in by_model.values()]
    kept = [logs for logs in found if logs.lines]
    if not kept:
        told = "; ".join(str(problem) for logs in found for problem in logs.problems[:3])
        raise ValueError(
            f"no audit of {seal.name!r} is in {', '.join(map(str, places))}; run {seal.name}_leakage_seal with "
            f"--metadata seal=PRIVATE_FOLDER, --log_samples and --output_path{f' ({told})' if told else ''}"
        )
    for logs in found:
        if not logs.lines:
            problems.append(Problem(f"{logs.model}: no audit of {seal.name!r}; left out"))
            problems += logs.problems
    return kept


def _of_model(runs: Sequence[Run], seal: Seal, wanted: Callable[[AuditLine], bool]) -> SealedLogs:
    problems: list[Problem] = []
    own = [_without_other_seals(run, seal, problems) for run in runs]
    finder = _Finder(seal)
    lines: dict[str, list[SealedLine]] = defaultdict(list)
    subtracted = set[str]()
    for task, line in lines_of_audits(own, problems):
        found = finder.places_of(task, line)
        if found and wanted(line):
            key = without_reference(line.detector)
            lines[key].append(SealedLine(found, line))
            if key != line.detector:
                subtracted.add(task)
    problems += [*finder.problems(), *(Problem(f"{task} {OWN_ANSWERS}") for task in sorted(subtracted))]
    return SealedLogs(seal, runs[-1].model, lines, runs, tuple(problems))


def _without_other_seals(run: Run, seal: Seal, problems: list[Problem]) -> Run:
    """The run without audits that were made with another seal."""
    configs = run.results.get("configs") or {}
    others = [
        task
        for task in audit_logs_of(run)
        if (metadata := (configs.get(task) or {}).get("metadata"))
        and isinstance(metadata, Mapping)
        and metadata.get(COMMITMENT_KEY, seal.commitment) != seal.commitment
    ]
    for task in others:
        made = str(configs[task]["metadata"][COMMITMENT_KEY])
        what = f"{task} was run with another seal (commitment {made[:12]}..., not {seal.commitment[:12]}...); left out"
        problems.append(Problem(what, run.results_file))
    if not others:
        return run
    logs = {task: file for task, file in run.logs.items() if task not in others}
    rows = {task: row for task, row in run.results.get("results", {}).items() if task not in others}
    kept = {task: own for task, own in configs.items() if task not in others}
    shards = {task: own for task, own in run.shards.items() if task not in others}
    return replace(run, logs=logs, shards=shards, results={**run.results, "results": rows, "configs": kept})


class _Finder:
    """Finds the questions of a seal in the lines of audits, and counts what is of something else."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._known: dict[str, int | None] = {}
        self._foreign: dict[str, set[str]] = defaultdict(set)
        self._n_own: Counter[str] = Counter()

    def places_of(self, task: str, line: AuditLine) -> tuple[int, ...]:
        """Empty for a line of another benchmark, or of shards that no seal put in order."""
        places = self._of_shard(line) if line.is_of_shard else self._of_question(line)
        if places:
            self._n_own[task] += 1
        else:
            self._foreign[task].add(line.question)
        return places

    def _of_shard(self, line: AuditLine) -> tuple[int, ...]:
        if line.doc.get(SEAL_OF_ROW) != self._seal.commitment:
            return ()
        places = tuple(int(place) for place in line.doc["members"])
        return places if all(0 <= place < len(self._seal.questions) for place in places) else ()

    def _of_question(self, line: AuditLine) -> tuple[int, ...]:
        if line.question not in self._known:
            found = None if line.read is None else self._seal.find(line.read)
            self._known[line.question] = None if found is None else int(found.id)
        place = self._known[line.question]
        return () if place is None else (place,)

    def problems(self) -> Iterator[Problem]:
        for task, foreign in self._foreign.items():
            n = counted(len(foreign), "row")
            if self._n_own[task]:
                yield Problem(f"{task}: {n} not of the seal of {self._seal.name!r}; left out")
            else:
                yield Problem(f"{task} is of another benchmark than {self._seal.name!r} ({n}); left out")
