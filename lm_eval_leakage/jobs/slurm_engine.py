"""Slurm through submitit: units are dealt to jobs, and what a job leaves behind when it dies is dealt again.

Jobs outlive the driver. What submitit was given for each job stays in the plan's folder until the job is known to have
ended, so that a driver that is started again finds it. A job whose driver was killed while submitting it ends by
itself; if two jobs have a unit, its lock lets only one do it. Before each unit a job writes down which it is, so that
a job that dies costs that unit an attempt.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from lm_eval_leakage.files import atomic_remove, atomic_write
from lm_eval_leakage.jobs.engines import Begun, Tell, lost_attempt
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue, new_attempts, read_json
from lm_eval_leakage.jobs.plan import Plan, Unit
from lm_eval_leakage.texts import brief, visible

JOBS = "slurm"  # folder of submitit's files, and of what jobs are at

CLUSTER, THIS_MACHINE = "slurm", "local"  # as submitit names its executors
FOR_EVERY_CLUSTER = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")
OF_ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node", "time")
JOB_DEFAULTS: Mapping[str, Any] = {"name": "campaign", "timeout_min": 240}  # submitit's own limit is 5 minutes
# How often submitit puts a job back in the queue that has reached its time limit: the retries of units decide instead.
REQUEUES = 1_000
ENDING_S = 20.0  # within which a local job ends when its process is killed
CONTROLLER = "submitit.local._local"  # the module that a local job's process runs


def cluster_of(address: str | None) -> str:
    """Raises ValueError for an address that is neither `slurm` nor `local`."""
    if address not in (None, CLUSTER, THIS_MACHINE):
        raise ValueError(
            f"--address is {address!r}; with --engine slurm give 'local', for jobs on this machine, or none"
        )
    return address or CLUSTER


def executor(folder: Path, cluster: str, told: Mapping[str, Any], gpus: int) -> Any:
    """A submitit executor for workers that need so many GPUs; raises ValueError if there is no Slurm here, or for a
    parameter that submitit does not know.

    told: the plan's `slurm:`, names of sbatch (`partition`) or of submitit (`timeout_min`, `slurm_partition`)
    """
    import submitit

    try:
        made = submitit.AutoExecutor(folder, cluster, **{f"{cluster}_max_num_timeout": REQUEUES})
    except RuntimeError as error:
        raise ValueError(
            "--engine slurm finds no srun on this machine; run it where jobs of the cluster are submitted, or with "
            "--address local"
        ) from error
    own = {"gpus_per_node": gpus or None, **JOB_DEFAULTS, **told}
    try:
        made.update_parameters(**{_name(name): value for name, value in own.items()})
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"slurm is {brief(dict(told))}, which submitit refuses ({str(error).splitlines()[0]})"
        ) from error
    return made


def refuse_several_processes(told: Mapping[str, Any]) -> None:
    """Raises ValueError for a parameter that would make more of a job than one process, the worker."""
    for name in told:
        plain = name.removeprefix(f"{CLUSTER}_")
        if plain == "time":
            raise ValueError(f"slurm has {name!r}; give the time limit of a job in minutes, as timeout_min")
        if plain in OF_ONE_PROCESS:
            raise ValueError(
                f"slurm has {name!r}, but a job is one process on one node; use more of them with `workers`, and "
                "more GPUs for each with the model's `gpus`"
            )


@contextmanager
def outside_of_a_job() -> Iterator[None]:
    """A driver that is a job itself submits as if it were none: its own Slurm variables would be those of its jobs."""
    from submitit.helpers import clean_env

    if "SLURM_JOB_ID" not in os.environ:
        yield
        return
    kept = {name: os.environ[name] for name in ("SLURM_CONF",) if name in os.environ}
    with clean_env():
        os.environ.update(kept)
        yield


def queued() -> set[str] | None:
    """The ids of this user's jobs that Slurm has in its queue: waiting, running or ending; None if it does not answer.
    One question for all jobs, and one that clusters without accounting answer, too."""
    command = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(asked.stdout.split()) if asked.returncode == 0 else None


def has_ended(job: Any, in_queue: set[str] | None = None) -> bool:
    """Whether a job has ended in any way: it has left a result, or Slurm no longer has it in the queue.

    in_queue: what Slurm says now; None if it was not asked
    """
    if _is_local(job):
        return bool(job.done()) and not _is_local_job(int(job.job_id))
    return job.paths.result_pickle.exists() or (in_queue is not None and job.job_id not in in_queue)


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """What is started in the block does not hear Ctrl-C, at which the driver ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_local_job(job: Any) -> None:
    """Ends a job of this machine, whichever process has submitted it, and waits until it has ended. Its worker ends
    when the job does."""
    if _is_local_job(int(job.job_id)):
        controller = psutil.Process(int(job.job_id))
        for process in controller.children() or [controller]:
            process.kill()
    given_up = time.monotonic() + ENDING_S
    while not has_ended(job) and time.monotonic() < given_up:
        time.sleep(0.05)


def _is_local_job(process_id: int) -> bool:
    """submitit knows only the local jobs of its own process."""
    try:
        process = psutil.Process(process_id)
        return process.status() != psutil.STATUS_ZOMBIE and CONTROLLER in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _is_local(job: Any) -> bool:
    import submitit

    return isinstance(job, submitit.LocalJob)


def _name(name: str) -> str:
    is_known = name in FOR_EVERY_CLUSTER or name.startswith((f"{CLUSTER}_", f"{THIS_MACHINE}_"))
    return name if is_known else f"{CLUSTER}_{name}"


ASK_S = 60.0  # between two questions to Slurm about jobs that have left no result
PUT_BACK = "its job reached its time limit or was preempted, and was put back in the queue"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlurmJob:
    """submitit sends it to the job and calls it there.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.

    folder: that of the plan
    worker: the name of the job's only worker, unique in the folder
    units: that it was dealt, all of one model
    cluster: `slurm` or `local`, as submitit names them
    """

    folder: Path
    worker: str
    units: tuple[Unit, ...]
    cluster: str

    @property
    def model(self) -> str:
        return self.units[0].model

    def has_made(self, attempt: Attempt) -> bool:
        return attempt.worker.startswith(self.worker)

    def __call__(self) -> None:
        """Passes over units that are done, by whomever, and those that it gave up before it was put back in the
        queue."""
        from lm_eval_leakage.jobs.local_engine import LocalEngine

        folder = CampaignFolder(self.folder)
        plan = folder.plan
        own = plan.changed(models=(plan.model(self.model),), workers=1)
        made = [attempt for attempt in folder.attempts() if self.has_made(attempt)]
        units = UnitQueue(folder.left(self.units), own, made).waiting
        LocalEngine(own, folder, called=self.worker).carry_out(
            units, made.append, lambda unit, _: self.is_at(unit, len(made))
        )
        self.is_at(None, len(made))

    def checkpoint(self) -> Any:
        """What submitit puts back in the queue when the job reaches its time limit or is preempted: the same, since
        the answers of the unit in hand are kept."""
        from submitit.helpers import DelayedSubmission

        if lost := self.lost(PUT_BACK):
            CampaignFolder(self.folder).record(lost)
        return DelayedSubmission(self)

    # ------------------------------------------------------------------ the unit in hand

    @property
    def _mark(self) -> Path:
        return self.folder / JOBS / "at" / f"{self.worker}.json"

    def is_at(self, unit: Unit | None, n_attempts: int) -> None:
        """Called by the job before each unit and after the last.

        n_attempts: that it has recorded so far
        """
        atomic_write(self._mark, json.dumps({"unit": unit and unit.id, "n_attempts": n_attempts}))

    def at(self) -> tuple[Unit | None, int]:
        told = read_json(self._mark)
        return (Unit.of_id(told["unit"]) if told.get("unit") else None), told.get("n_attempts", 0)

    def lost(self, why: str) -> Attempt | None:
        """The attempt that it had begun when it ended, if it has not recorded it itself."""
        (unit, n_before), folder = self.at(), CampaignFolder(self.folder)
        if unit is None or folder.done(unit):
            return None
        n_recorded = sum(self.has_made(attempt) for attempt in folder.attempts())
        return lost_attempt(unit, self.worker, why, 0.0) if n_recorded <= n_before else None


def dealt(units: Sequence[Unit], n_hands: int) -> list[tuple[Unit, ...]]:
    """The units of one model in so many hands, of each kind (nearly) as many in each; those of a task next to each
    other."""
    by_kind = sorted(units, key=lambda unit: (unit.kind, unit.task, unit.shard))
    hands = (tuple(sorted(by_kind[place::n_hands])) for place in range(n_hands))
    return [hand for hand in hands if hand]


class SlurmJobs:
    """The jobs that are not known to have ended, with submitit's handle of each.

    folder: that of the plan
    """

    def __init__(self, plan: Plan, folder: Path, cluster: str) -> None:
        self._plan, self._place, self._cluster = plan, folder.absolute() / JOBS, cluster
        every = {model.gpus for model in plan.models}
        self._executors = {gpus: executor(self._place, cluster, plan.slurm, gpus) for gpus in sorted(every)}
        self.live: dict[SlurmJob, Any] = {}
        self._asked = time.monotonic()

    def adopt(self) -> None:
        """Takes over the jobs of an earlier driver."""
        import submitit
        from submitit.helpers import DelayedSubmission

        for file in sorted(self._place.glob("*_submitted.pkl")):
            own = DelayedSubmission.load(file).function
            kind = submitit.LocalJob if own.cluster == THIS_MACHINE else submitit.SlurmJob
            job_id = file.name.removesuffix("_submitted.pkl")
            self.live[own] = kind(self._place, job_id)
            logger.info("job %s of an earlier driver, with %s units", job_id, len(own.units))

    def submit(self, jobs: Sequence[SlurmJob]) -> None:
        """Those that need as many GPUs as one job array."""
        for gpus, to in self._executors.items():
            own = [job for job in jobs if self._plan.model(job.model).gpus == gpus]
            with outside_of_a_job(), deaf_to_ctrl_c() if self._cluster == THIS_MACHINE else nullcontext():
                submitted = to.submit_array(own) if own else []
            for job, handle in zip(own, submitted, strict=True):
                self.live[job] = handle
                logger.info("job %s: %s units of %s", handle.job_id, len(job.units), job.model)

    def ended(self) -> list[SlurmJob]:
        """Those that have ended by now, in whatever way. Slurm is asked once a minute."""
        in_queue = None
        if any(job.cluster == CLUSTER for job in self.live) and time.monotonic() - self._asked > ASK_S:
            in_queue, self._asked = queued(), time.monotonic()
        return [job for job, handle in self.live.items() if has_ended(handle, in_queue)]

    def forget(self, job: SlurmJob) -> None:
        atomic_remove(self.live.pop(job).paths.submitted_pickle)

    def log_of(self, job: SlurmJob) -> Path:
        """What the job wrote to stderr."""
        return Path(self.live[job].paths.stderr)

    def interrupt(self) -> str:
        """Ends the jobs on this machine, since Ctrl-C does not stop them all; says what becomes of the others."""
        for job, handle in self.live.items():
            if job.cluster == THIS_MACHINE:
                end_local_job(handle)
        on_cluster = [str(handle.job_id) for job, handle in self.live.items() if job.cluster == CLUSTER]
        ids = " ".join(sorted({job_id.partition("_")[0] for job_id in on_cluster}))
        return ids and f"the jobs go on; start the same command again to watch them, or end them with: scancel {ids}"


LOOK_S, LOCAL_LOOK_S = 5.0, 0.2  # between two looks at the folder
NO_LIMIT = 10**6  # jobs; Slurm has its own
STILLBORN = 3  # jobs in a row that ended before they began; the next one would, too
DIED = "its job died (killed, out of memory, preempted, or its node was lost)"


@dataclass
class SlurmEngine:
    """Jobs of a cluster outlive the driver: if it is killed or interrupted they go on, and the next driver on the same
    folder takes them over. Those of `--address local`, on this machine, end when the driver is interrupted.

    A model has at most as many jobs as its `workers`, else as the plan has shards; all models together as many as the
    plan's `workers`, else one on this machine.

    address: `local` for submitit's local executor, None for Slurm
    """

    plan: Plan
    folder: CampaignFolder
    address: str | None = None
    told: dict[Attempt, None] = field(default_factory=dict)
    at: dict[SlurmJob, Unit | None] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    n_stillborn: int = 0

    def __post_init__(self) -> None:
        refuse_several_processes(self.plan.slurm)
        self.cluster = cluster_of(self.address)
        self.is_local = self.cluster == THIS_MACHINE
        self.jobs = SlurmJobs(self.plan, self.folder.path, self.cluster)

    @property
    def description(self) -> str:
        return "submitit on this machine" if self.is_local else "Slurm through submitit"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """See `Engine`; but jobs of a cluster go on when it is interrupted."""
        self.jobs.adopt()
        before = new_attempts(self.folder.path, self.read)
        self.told = {one: None for one in before if any(job.has_made(one) for job in self.jobs.live)}
        try:
            left = self._left(units)
            while left or self.jobs.live:
                left = self._deal(left)
                time.sleep(LOCAL_LOOK_S if self.is_local else LOOK_S)
                ended = self.jobs.ended()  # before the attempts are read, so that none of theirs is missed
                self._hear(tell, begun)
                if ended:
                    self._bury(ended, tell)
                    left = self._left(units)
        except BaseException:
            if says := self.jobs.interrupt():
                logger.warning(says)
            raise
        self._hear(tell, begun)

    def _left(self, units: Sequence[Unit]) -> list[Unit]:
        """Those that are neither done nor given up, nor in the hands of a job."""
        held = {unit for job in self.jobs.live for unit in job.units}
        free = self.folder.left(unit for unit in units if unit not in held)
        return UnitQueue(free, self.plan, self.told).waiting

    def _deal(self, left: Sequence[Unit]) -> list[Unit]:
        """Submits as many jobs as may run at once; returns the units for which there is none yet."""
        new: list[SlurmJob] = []
        most = self.plan.workers or (1 if self.is_local else NO_LIMIT)
        for model in self.plan.models:
            own = [unit for unit in left if unit.model == model.name]
            every = [*self.jobs.live, *new]
            n_wanted = min(model.workers or self.plan.shards, most) - sum(job.model == model.name for job in every)
            for hand in dealt(own, n_wanted)[: most - len(every)]:
                worker = f"{model.name}-{uuid4().hex[:8]}"
                new.append(SlurmJob(self.folder.path.absolute(), worker, hand, self.cluster))
        if new:
            self.jobs.submit(new)
        given = {unit for job in new for unit in job.units}
        return [unit for unit in left if unit not in given]

    def _hear(self, tell: Tell, begun: Begun) -> None:
        found = [attempt for attempt in new_attempts(self.folder.path, self.read) if attempt not in self.told]
        for attempt in found:
            self.told[attempt] = None
            tell(attempt)
        for job in self.jobs.live:
            if self.at.get(job) is None or any(map(job.has_made, found)):
                unit, _ = job.at()
                if unit is not None and unit != self.at.get(job):
                    begun(unit, job.worker)
                self.at[job] = unit

    def _bury(self, ended: Sequence[SlurmJob], tell: Tell) -> None:
        """Records what jobs that died have left in the middle, and forgets them."""
        for job in ended:
            if lost := job.lost(DIED):
                self.folder.record(lost)
                self.told[lost] = None
                tell(lost)
            is_stillborn = not any(map(job.has_made, self.told)) and bool(self.folder.left(job.units))
            self.n_stillborn = self.n_stillborn + 1 if is_stillborn else 0
            if self.n_stillborn >= STILLBORN:
                log = self.jobs.log_of(job)
                raise ValueError(
                    f"{STILLBORN} jobs in a row ended before their first unit, the last one with: {_last_line(log)} "
                    f"See {log}"
                )
            self.jobs.forget(job)


def _last_line(log: Path) -> str:
    if not log.is_file():
        return "nothing in its log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((visible(line.strip()) for line in reversed(lines) if line.strip()), "nothing in its log")
