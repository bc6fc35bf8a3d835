"""Slurm through submitit: units are dealt to jobs, and what a job leaves behind when it dies is dealt again.

Jobs outlive the driver. What submitit was given for each job stays in the plan's folder until the job is known to have
ended, so that a driver that is started again finds it. A job whose driver was killed while submitting it ends by
itself; if two jobs have a unit, its claim lets only one do it. Before each unit a job writes down which it is, so that
a job that dies costs that unit an attempt.
"""

from __future__ import annotations

import getpass
import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from lm_eval_leakage.files import atomic_remove, atomic_write
from lm_eval_leakage.jobs.engines import Begun, Tell
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue, lost_attempt
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.texts import brief, visible

JOBS = "slurm"  # folder of submitit's files, and of what jobs are at
CLUSTER, THIS_MACHINE = "slurm", "local"  # as submitit names its executors
FOR_EVERY_CLUSTER = ("name", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node", "stderr_to_stdout")
OF_ONE_PROCESS = ("nodes", "tasks_per_node", "ntasks_per_node", "time")
JOB_DEFAULTS: Mapping[str, Any] = {"name": "campaign", "timeout_min": 240}  # submitit's own limit is 5 minutes
# How often submitit puts a job back in the queue that has reached its time limit: the retries of units decide instead.
REQUEUES = 1_000
CONTROLLER = "submitit.local._local"  # the module that a local job's process runs
ENDING_S = 20.0  # within which a local job ends when its processes are killed
ASK_S = 60.0  # between two questions to Slurm about jobs that have left no result
LOOK_S, LOCAL_LOOK_S = 5.0, 0.2  # between two looks at the folder
NO_LIMIT = 10**6  # jobs; Slurm has its own
STILLBORN = 3  # jobs in a row that ended before they began; the next one would, too
DIED = "its job died (killed, out of memory, preempted, or its node was lost)"
PUT_BACK = "its job reached its time limit or was preempted, and was put back in the queue"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlurmJob:
    """submitit sends it to the job and calls it there.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.

    folder: that of the plan
    worker: how the names of the job's workers begin, unique in the folder
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
        units = UnitQueue(folder.left(self.units), own, filter(self.has_made, folder.attempts())).waiting
        LocalEngine(own, folder, called=self.worker).carry_out(
            units, lambda attempt: self.is_at(None), lambda unit, worker: self.is_at(unit)
        )

    def checkpoint(self) -> Any:
        """What submitit puts back in the queue when the job reaches its time limit or is preempted: the same, since
        the answers of the unit in hand are kept."""
        from submitit.helpers import DelayedSubmission

        self.record_loss(PUT_BACK)
        return DelayedSubmission(self)

    # ------------------------------------------------------------------ the unit in hand

    @property
    def _mark(self) -> Path:
        return self.folder / JOBS / "at" / f"{self.worker}.txt"

    def is_at(self, unit: Unit | None) -> None:
        """Called by the job before each unit, and with None after it."""
        atomic_write(self._mark, unit.id if unit else "")

    def at(self) -> Unit | None:
        told = self._mark.read_text() if self._mark.is_file() else ""
        return Unit.of_id(told) if told else None

    def record_loss(self, why: str) -> None:
        """Of the unit that it had begun when it ended, if there is one."""
        unit, folder = self.at(), CampaignFolder(self.folder)
        if unit is not None and not folder.done(unit):
            folder.lose(unit, self.worker)
            folder.record(lost_attempt(unit, self.worker, why, 0.0))
            self.is_at(None)


def dealt(units: Sequence[Unit], n_hands: int) -> list[tuple[Unit, ...]]:
    """The units of one model in so many hands, of each kind (nearly) as many in each; those of a task next to each
    other."""
    by_kind = sorted(units, key=lambda unit: (unit.kind, unit.task))
    hands = (tuple(sorted(by_kind[place::n_hands])) for place in range(n_hands))
    return [hand for hand in hands if hand]


# ---------------------------------------------------------------------- submitit


def executor(folder: Path, cluster: str, told: Mapping[str, Any], gpus: int) -> Any:
    """A submitit executor for workers that need so many GPUs; raises ValueError if there is no Slurm here, or for a
    parameter that submitit does not know or that would make more of a job than one process, the worker.

    told: the plan's `slurm:`, names of sbatch (`partition`) or of submitit (`timeout_min`, `slurm_partition`)
    """
    import submitit

    for name in told:
        if name.removeprefix(f"{CLUSTER}_") in OF_ONE_PROCESS:
            raise ValueError(
                f"slurm has {name!r}, but a job is one process on one node, whose limit is given in minutes as "
                "timeout_min; use more jobs with `workers`, and more GPUs for each with the model's `gpus`"
            )
    try:
        made = submitit.AutoExecutor(folder, cluster, **{f"{cluster}_max_num_timeout": REQUEUES})
    except RuntimeError as error:
        raise ValueError(
            "--engine slurm finds no srun on this machine; run it where jobs of the cluster are submitted, or with "
            "--address local"
        ) from error
    own = {"gpus_per_node": gpus or None, **JOB_DEFAULTS, **told}
    known = (*FOR_EVERY_CLUSTER, *(name for name in own if name.startswith((f"{CLUSTER}_", f"{THIS_MACHINE}_"))))
    try:
        made.update_parameters(**{name if name in known else f"{CLUSTER}_{name}": own[name] for name in own})
    except (NameError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            f"slurm is {brief(dict(told))}, which submitit refuses ({str(error).splitlines()[0]})"
        ) from error
    return made


def queued() -> set[str] | None:
    """The ids of this user's jobs that Slurm has in its queue: waiting, running or ending; None if it does not answer.
    One question for all jobs, and one that clusters without accounting answer, too."""
    command = ["squeue", "--noheader", "--array", f"--user={getpass.getuser()}", "--format=%i"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(asked.stdout.split()) if asked.returncode == 0 else None


def local_processes(job: Any) -> list[psutil.Process]:
    """Those of a job on this machine, whichever process has submitted it: submitit knows only those of its own."""
    with suppress(psutil.NoSuchProcess):
        controller = psutil.Process(int(job.job_id))
        if controller.status() != psutil.STATUS_ZOMBIE and CONTROLLER in controller.cmdline():
            return [controller, *controller.children(recursive=True)]
    return []


# ---------------------------------------------------------------------- the driver


class SlurmEngine:
    """Jobs of a cluster outlive the driver: if it is killed or interrupted they go on, and the next driver on the same
    folder takes them over. Those of `--address local`, on this machine, end when the driver is interrupted.

    A model has at most as many jobs as its `workers`, else one; all models together as many as the plan's `workers`,
    else one on this machine.

    address: `local` for submitit's local executor, None for Slurm
    live: the jobs that are not known to have ended, with submitit's handle of each
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, address: str | None = None) -> None:
        if address not in (None, CLUSTER, THIS_MACHINE):
            raise ValueError(
                f"--address is {address!r}; with --engine slurm give 'local', for jobs on this machine, or none"
            )
        self._plan, self.folder, self._cluster = plan, folder, address or CLUSTER
        self._is_local = self._cluster == THIS_MACHINE
        self._place = folder.path.absolute() / JOBS
        every = sorted({model.gpus for model in plan.models})
        self._executors = {gpus: executor(self._place, self._cluster, plan.slurm, gpus) for gpus in every}
        self.live: dict[SlurmJob, Any] = {}
        self._asked = time.monotonic()
        self._known: set[Attempt] = set()
        self._made: list[Attempt] = []  # by jobs of this driver, and by those that it took over
        self._at: dict[SlurmJob, Unit | None] = {}
        self._n_stillborn = 0

    @property
    def description(self) -> str:
        return "submitit on this machine" if self._is_local else "Slurm through submitit"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """See `CampaignEngine`; but jobs of a cluster go on when it is interrupted."""
        self.adopt()
        self._known = {*self.folder.attempts()}
        self._made = [one for one in self._known if any(job.has_made(one) for job in self.live)]
        try:
            self._deal(units)
            while self.live:
                time.sleep(LOCAL_LOOK_S if self._is_local else LOOK_S)
                ended = self.ended()  # before the attempts are read, so that none of theirs is missed
                for job in ended:
                    job.record_loss(DIED)
                self._hear(tell, begun)
                for job in ended:
                    self._bury(job)
                if ended:
                    self._deal(units)
        except BaseException:
            if says := self.interrupt():
                logger.warning(says)
            raise

    def _deal(self, units: Sequence[Unit]) -> None:
        """Submits as many jobs as may run at once, for units that are neither done nor given up, nor in the hands of a
        job."""
        held = {unit for job in self.live for unit in job.units}
        free = self.folder.left(unit for unit in units if unit not in held)
        left, new = UnitQueue(free, self._plan, self._made).waiting, list[SlurmJob]()
        most = self._plan.workers or (1 if self._is_local else NO_LIMIT)
        for model in self._plan.asked_models:
            own = [unit for unit in left if unit.model == model.key]
            n_own = sum(job.model == model.key for job in self.live)
            n_wanted = min(model.workers or 1, most) - n_own
            for hand in dealt(own, n_wanted)[: most - len(self.live) - len(new)]:
                worker = f"{model.key}-{uuid4().hex[:8]}"
                new.append(SlurmJob(self.folder.path.absolute(), worker, hand, self._cluster))
        if new:
            self.submit(new)

    def _hear(self, tell: Tell, begun: Begun) -> None:
        for attempt in self.folder.attempts():
            if attempt not in self._known:
                self._known.add(attempt)
                self._made.append(attempt)
                tell(attempt)
        for job in self.live:
            unit = job.at()
            if unit is not None and unit != self._at.get(job):
                begun(unit, job.worker)
            self._at[job] = unit

    def _bury(self, job: SlurmJob) -> None:
        """Forgets a job that has ended; raises ValueError if it is one of several that did not even begin."""
        is_stillborn = not any(map(job.has_made, self._made)) and bool(self.folder.left(job.units))
        self._n_stillborn = self._n_stillborn + 1 if is_stillborn else 0
        if self._n_stillborn >= STILLBORN:
            log = Path(self.live[job].paths.stderr)
            raise ValueError(
                f"{STILLBORN} jobs in a row ended before their first unit, the last one with: {_last_line(log)} "
                f"See {log}"
            )
        atomic_remove(self.live.pop(job).paths.submitted_pickle)

    # ------------------------------------------------------------------ jobs

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
        """Those that need as many GPUs as one job array. A driver that is a job itself submits as if it were none: its
        own Slurm variables would be those of its jobs."""
        from submitit.helpers import clean_env

        configuration = {name: value for name, value in os.environ.items() if name == "SLURM_CONF"}
        for gpus, to in self._executors.items():
            own = [job for job in jobs if self._plan.model(job.model).gpus == gpus]
            with clean_env() if "SLURM_JOB_ID" in os.environ else nullcontext():
                os.environ.update(configuration)
                submitted = to.submit_array(own) if own else []
            for job, handle in zip(own, submitted, strict=True):
                self.live[job] = handle
                logger.info("job %s: %s units of %s", handle.job_id, len(job.units), job.model)

    def ended(self) -> list[SlurmJob]:
        """Those that have ended by now, in whatever way. Slurm is asked once a minute."""
        in_queue = None
        if any(job.cluster == CLUSTER for job in self.live) and time.monotonic() - self._asked > ASK_S:
            in_queue, self._asked = queued(), time.monotonic()

        def has_ended(job: SlurmJob, handle: Any) -> Any:
            if job.cluster == THIS_MACHINE:
                return handle.done() and not local_processes(handle)
            return handle.paths.result_pickle.exists() or (in_queue is not None and handle.job_id not in in_queue)

        return [job for job, handle in self.live.items() if has_ended(job, handle)]

    def interrupt(self) -> str:
        """Ends the jobs on this machine, since Ctrl-C does not stop them all; says what becomes of the others."""
        local = [handle for job, handle in self.live.items() if job.cluster == THIS_MACHINE]
        processes = [process for handle in local for process in local_processes(handle)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=ENDING_S)
        for handle in local:
            handle.done()  # or its process would stay behind as a zombie
        on_cluster = [str(handle.job_id) for job, handle in self.live.items() if job.cluster == CLUSTER]
        ids = " ".join(sorted({job_id.partition("_")[0] for job_id in on_cluster}))
        return ids and f"the jobs go on; start the same command again to watch them, or end them with: scancel {ids}"


def _last_line(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return visible(lines[-1]) if lines else "nothing in its log"
