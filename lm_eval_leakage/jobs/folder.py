"""The folder of a plan: where units' files, logs and the records of attempts are, and what is done.

A unit is done if its folder is in that of its role, where it appears in one step: `runs`, or `reference`, `unseen` and
`positive` for what is not judged itself. Everything else may be lost at any moment.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

from lm_eval_leakage.files import add_record, atomic_remove, atomic_write, published, remove_parts
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.plan_reading import check_plan
from lm_eval_leakage.jobs.steps import ReadyUnit, Step, StepStatus
from lm_eval_leakage.jobs.units import Role, Unit
from lm_eval_leakage.logs.answer_store import FOLDER as ANSWERS
from lm_eval_leakage.logs.run import MANIFEST, PLAN, REPLACED, WORK
from lm_eval_leakage.texts import as_json

STATUS = "status.json"
LOGS, ATTEMPTS, LOCKS, ANSWERS_KEPT = "logs", "attempts", "locks", "answers"
CLAIMS = "claims"
EARLIER = "earlier"  # folder within that of attempts: those of earlier sessions
UNITS = "units"  # folder of what workers are to run
BETWEEN = "~"  # between the parts of a unit's id, where it is the name of a file; not in names of models and kinds
STEP = "step"  # key of a unit's file
RUNNING = "running"  # the state of a campaign in its status file, while a driver writes it
ASKED = "asked.txt"  # of a unit in progress: a digest of what it asks
UNIT_FILE = "unit.json"  # of a unit that is complete: its attempt, and which model answered


@dataclass(frozen=True)
class Attempt:
    """One try of a unit.

    seconds: that it took, with loading the model if it was the first of its worker
    n_requests, n_tokens: that the model answered in this attempt, and the tokens in their texts, about
    error: in one sentence; None if it succeeded
    lost: whether the worker or its machine died, so that the fault may not be the unit's
    time: when it ended, in UTC, as ISO 8601
    """

    unit: Unit
    ok: bool
    seconds: float
    n_requests: int
    n_tokens: int
    error: str | None
    lost: bool
    worker: str
    time: str

    @property
    def failed_by_itself(self) -> bool:
        """True if the unit failed, and not since its worker was lost."""
        return not self.ok and not self.lost

    @property
    def as_record(self) -> dict[str, object]:
        return asdict(self) | {"unit": self.unit.id, "seconds": round(self.seconds, 3)}


def lost_attempt(unit: Unit, worker: str, error: str, seconds: float, *, lost: bool = True) -> Attempt:
    """Return an attempt that its worker cannot record any more.

    lost: False if it is the unit's own fault, such as one that took longer than the plan allows
    """
    return Attempt(unit, False, seconds, 0, 0, error, lost, worker, now())


def now() -> str:
    """Return the time in UTC, as ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


class CampaignFolder:
    """The folder of a plan.

    Paths are made when they are written to. Several processes on several machines may use one folder at once.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._own = f"{socket.gethostname()}-{uuid4().hex}"
        self._attempts_in: dict[Path, tuple[int, list[Attempt]]] = {}  # by files, with the bytes that were read

    @property
    def plan(self) -> Plan:
        """The plan of this campaign; its output_path is this folder."""
        return check_plan({"output_path": self.path}, self.path / PLAN)

    @property
    def done_folders(self) -> list[Path]:
        """The folders of units that are done, one for each role."""
        return [self.path / role for role in Role]

    def run_of(self, unit: Unit) -> Path:
        """Return the folder of a unit that is done."""
        return self.path / unit.role / unit.id

    def earlier_of(self, unit: Unit) -> list[Path]:
        """Return the folders of a unit that were moved aside, of other models or questions; newest first."""
        return sorted((self.path / REPLACED).glob(f"*/{unit.role}/{unit.id}"), reverse=True)

    def answers_of(self, unit: Unit) -> Path:
        """Return the folder of a unit's answers, for further attempts and for another draw of its questions."""
        return self.path / ANSWERS_KEPT / unit.id

    def work_of(self, unit: Unit) -> Path:
        """Return the folder where attempts write, each in a folder of its own."""
        return self.path / WORK / unit.id

    def log_of(self, unit: Unit) -> Path:
        return self.path / LOGS / f"{unit.id}.log"

    def log_of_worker(self, worker: str) -> Path:
        """Return the log of a worker between its units."""
        return self.path / LOGS / f"{worker}.log"

    # ------------------------------------------------------------------ what is to be run

    def make_ready(self, ready: Iterable[ReadyUnit]) -> None:
        """Write the files of these units, and remove those of all others. Earlier attempts no longer count."""
        for file in self._attempt_files():
            earlier = self.path / ATTEMPTS / EARLIER / f"{file.stem}-{uuid4().hex}.jsonl"
            earlier.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another driver that begins has moved it
                file.rename(earlier)
        files = set[Path]()
        for each in ready:
            unit = each.unit
            file = self.path / UNITS / unit.model / f"{each.place:06}{BETWEEN}{unit.task}{BETWEEN}{unit.kind}.json"
            files.add(file)
            each.write(file)
        for file in (self.path / UNITS).glob("*/*.json"):
            if file not in files:
                file.unlink(missing_ok=True)

    def ready_files(self, model: str | None = None) -> dict[Unit, Path]:
        """Return the files of the units that are to be run, of one model or all, in the order of the plan."""
        files = (self.path / UNITS).glob(f"{model or '*'}/*.json")
        units: dict[Unit, Path] = {}
        for file in sorted(files, key=lambda file: file.name):
            task, _, kind = file.stem.partition(BETWEEN)[2].rpartition(BETWEEN)
            units[Unit.of(file.parent.name, task, kind)] = file
        return units

    def ready_unit(self, unit: Unit) -> ReadyUnit:
        """Return what a worker is to do for a unit; raises FileNotFoundError if it is not to be run any more."""
        file = self.ready_files(unit.model).get(unit)
        if file is None:
            raise FileNotFoundError(f"{unit.id} is not among the units to run in {self.path}")
        return ReadyUnit.read(file)

    # ------------------------------------------------------------------ what is done

    def done(self, unit: Unit) -> bool:
        return self.run_of(unit).is_dir()

    def left(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the units that are not done."""
        return [unit for unit in units if not self.done(unit)]

    def begin(self, unit: Unit, digest: str) -> Path:
        """Return a new folder in which an attempt writes, and nobody else. The answers of earlier attempts, and of
        another draw, are in it.

        digest: of what is asked
        """
        work, answers = self.work_of(unit) / uuid4().hex, self.answers_of(unit)
        for folder in (work, answers):
            folder.mkdir(parents=True, exist_ok=True)
        (work / ANSWERS).symlink_to(os.path.relpath(answers, work))  # so that the folder may be moved
        atomic_write(work / ASKED, digest)
        return work

    def complete_works(self, unit: Unit, digest: str) -> list[Path]:
        """Return the folders of attempts that asked the same, and were killed when their last file was written."""
        works = []
        for file in self.work_of(unit).glob(f"*/{UNIT_FILE}"):
            digest_file = file.with_name(ASKED)
            if digest_file.is_file() and digest_file.read_text() == digest:
                works.append(file.parent)
        return works

    def conclude(self, unit: Unit, facts: Mapping[str, Any]) -> None:
        """Make a unit done of which no model is digest_file."""
        work = self.work_of(unit) / uuid4().hex
        work.mkdir(parents=True)
        self.complete(unit, work, facts)

    def complete(self, unit: Unit, work: Path, facts: Mapping[str, Any]) -> None:
        """Make a unit complete and publish it. Its file is written last: from then on it is complete."""
        atomic_write(work / UNIT_FILE, as_json(facts, indent=1) + "\n")
        self.publish(unit, work)

    def publish(self, unit: Unit, work: Path) -> bool:
        """Move a unit's complete files to where it is done, in one step. Return False, and leave them, if it is done:
        nothing is there twice. A kill may have left a part of something, which is no file of the unit."""
        for name in (ANSWERS, ASKED):
            (work / name).unlink(missing_ok=True)
        remove_parts(work)
        return published(work, self.run_of(unit))

    def unit_file(self, unit: Unit) -> dict[str, Any]:
        """Return what was written when the unit was complete; empty if that cannot be read."""
        return read_json(self.run_of(unit) / UNIT_FILE)

    def step_of(self, unit: Unit) -> Step | None:
        """Return what its worker had to do; None if the unit is not done, or does not record it."""
        try:
            return Step.of(self.unit_file(unit)[STEP])
        except (KeyError, TypeError, ValueError):
            return None

    def steps_of(self, units: Iterable[Unit]) -> dict[Unit, Step]:
        """Return the steps of the units that are done and record them."""
        steps = {}
        for unit in units:
            step = self.step_of(unit)
            if step is not None:
                steps[unit] = step
        return steps

    def was_asked(self, unit: Unit) -> bool:
        """Return whether a unit that is done has answers of a model, instead of a reason why there are none."""
        step = self.step_of(unit)
        return step is None or step.status is StepStatus.TO_RUN

    def tidy(self) -> None:
        """Remove what only units in progress need."""
        for place in (UNITS, WORK, CLAIMS, LOCKS):
            atomic_remove(self.path / place)

    # ------------------------------------------------------------------ attempts

    def record(self, attempt: Attempt) -> None:
        """Add an attempt to a file of this process and worker, so that no file has two writers."""
        add_record(self.path / ATTEMPTS / f"{attempt.worker}-{self._own}.jsonl", as_json(attempt.as_record))

    def attempts(self, *, earlier: bool = True) -> list[Attempt]:
        """Return the attempts that workers anywhere have recorded, oldest first.

        Incomplete lines, left by a kill, are passed over. One folder is listed, however many workers there are.

        earlier: whether those of earlier sessions are among them
        """
        attempts = list[Attempt]()
        for file in self._attempt_files(earlier=earlier):
            with suppress(FileNotFoundError):  # a driver that begins has moved it
                n_bytes = file.stat().st_size
                if self._attempts_in.get(file, (-1,))[0] != n_bytes:
                    self._attempts_in[file] = n_bytes, _attempts(file.read_bytes())
                attempts += self._attempts_in[file][1]
        return sorted(attempts, key=lambda attempt: attempt.time)

    def _attempt_files(self, *, earlier: bool = False) -> list[Path]:
        place = self.path / ATTEMPTS
        return [*place.glob("*.jsonl"), *(place.glob(f"{EARLIER}/*.jsonl") if earlier else ())]

    # ------------------------------------------------------------------ manifest and status

    def manifest(self) -> dict[str, Any]:
        return read_json(self.path / MANIFEST)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        atomic_write(self.path / MANIFEST, as_json(manifest, indent=1) + "\n")

    def status(self) -> dict[str, Any]:
        return read_json(self.path / STATUS)

    def write_status(self, status: dict[str, Any]) -> None:
        atomic_write(self.path / STATUS, as_json(status, indent=1) + "\n")


def _attempts(lines: bytes) -> list[Attempt]:
    """Return the attempts of a file, without incomplete lines."""
    attempts = list[Attempt]()
    for line in lines.splitlines():
        with suppress(ValueError, TypeError, KeyError, AttributeError):  # a part of one, or something else
            record = json.loads(line)
            attempts.append(Attempt(**(record | {"unit": Unit.of_id(record["unit"])})))
    return attempts


def read_json(file: Path) -> dict[str, Any]:
    """Return the record in a JSON file; empty if the file is missing or damaged."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
