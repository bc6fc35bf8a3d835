"""Which Slurm jobs a campaign has, kept in its folder, so that a driver that is started again finds them.

Each job has one card, written before it is submitted and removed when it is known to have ended, and one mark, which
the job makes when it begins. A mark is made once: either by the job, or by a driver that finds a card whose job never
told its id (an earlier driver was killed while submitting it); that job then ends at once if it starts after all.
So no unit is ever in the hands of two jobs.

The plan's `slurm:` as submitit takes it, and the jobs of submitit by their ids.

The jobs of a campaign that have not ended: submitted now, or by an earlier driver.

What a Slurm job of a campaign does: the units that it was dealt, by an engine of its own with one worker.

Slurm through submitit: units are dealt to jobs, and what a job leaves behind when it dies is dealt again.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from lm_eval_leakage.files import atomic_remove, atomic_write, write_once
from lm_eval_leakage.jobs.engines import Begun, Tell, lost_attempt
from lm_eval_leakage.jobs.folder import ATTEMPTS, Attempt, CampaignFolder, NewAttempts, UnitQueue
from lm_eval_leakage.jobs.plan import Plan, Unit
from lm_eval_leakage.texts import brief, visible

WITHDRAWN = ""  # the id in the mark of a job that must not begin


@dataclass(frozen=True)
class JobCard:
    """worker: the name of the job's only worker, unique in the campaign
    units: that it was dealt
    cluster: `slurm` or `local`, as submitit names them
    job_id: None until it is submitted
    """

    worker: str
    model: str
    units: tuple[Unit, ...]
    cluster: str
    job_id: str | None = None

    def has_made(self, attempt: Attempt) -> bool:
        return attempt.worker.startswith(self.worker)


@dataclass(frozen=True)
class JobMark:
    """unit: in the hands of the job, None before the first one and after the last
    n_attempts: that the job had recorded before that unit
    """

    job_id: str
    unit: Unit | None = None
    n_attempts: int = 0


class JobCards:
    """folder: that of the campaign"""

    def __init__(self, folder: Path) -> None:
        self._cards, self._marks = folder / "slurm" / "jobs", folder / "slurm" / "begun"

    def write(self, card: JobCard) -> None:
        told = asdict(card) | {"units": [unit.id for unit in card.units]}
        atomic_write(self._cards / f"{card.worker}.json", json.dumps(told))

    def remove(self, card: JobCard) -> None:
        atomic_remove(self._cards / f"{card.worker}.json")

    def all(self) -> list[JobCard]:
        """Those of all jobs that are not known to have ended, by worker."""
        return [_card(_read(file)) for file in sorted(self._cards.glob("*.json"))]

    def begin(self, worker: str, job_id: str) -> bool:
        """Called by the job: whether it may do its units. A job that Slurm has put back in the queue may."""
        return write_once(self._marks / f"{worker}.json", _mark_text(JobMark(job_id))) or (
            self._mark_of(worker).job_id == job_id
        )

    def hold(self, worker: str, mark: JobMark) -> None:
        """Called by the job before each unit and after the last."""
        atomic_write(self._marks / f"{worker}.json", _mark_text(mark))

    def withdraw(self, card: JobCard) -> JobCard | None:
        """Called by a driver for a card without an id: None if that job has not begun, and now never will; else the
        card with its id."""
        write_once(self._marks / f"{card.worker}.json", _mark_text(JobMark(WITHDRAWN)))
        mark = self._mark_of(card.worker)
        return None if mark.job_id == WITHDRAWN else JobCard(**{**vars(card), "job_id": mark.job_id})

    def mark(self, worker: str) -> JobMark | None:
        """None if the job has not begun."""
        return self._mark_of(worker) if (self._marks / f"{worker}.json").exists() else None

    def _mark_of(self, worker: str) -> JobMark:
        told = _read(self._marks / f"{worker}.json")
        unit = None if told["unit"] is None else Unit.of_id(told["unit"])
        return JobMark(told["job_id"], unit, told["n_attempts"])


def lost_with(card: JobCard, folder: CampaignFolder, why: str) -> Attempt | None:
    """The attempt that a job had begun when it ended, if it has not recorded it itself."""
    mark = JobCards(folder.path).mark(card.worker)
    if mark is None or mark.unit is None or folder.done(mark.unit):
        return None
    n_recorded = sum(card.has_made(attempt) for attempt in folder.attempts())
    return lost_attempt(mark.unit, card.worker, why, 0.0) if n_recorded <= mark.n_attempts else None


def dealt(units: Sequence[Unit], n_hands: int) -> list[tuple[Unit, ...]]:
    """The units of one model in so many hands, of each kind (nearly) as many in each; those of a task next to each
    other."""
    by_kind = sorted(units, key=lambda unit: (unit.kind, unit.task, unit.shard))
    hands = (tuple(sorted(by_kind[place::n_hands])) for place in range(n_hands))
    return [hand for hand in hands if hand]


def _mark_text(mark: JobMark) -> str:
    return json.dumps(asdict(mark) | {"unit": None if mark.unit is None else mark.unit.id})


def _card(told: dict[str, Any]) -> JobCard:
    return JobCard(**{**told, "units": tuple(Unit.of_id(unit) for unit in told["units"])})


def _read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


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


def job_of(folder: Path, cluster: str, job_id: str) -> Any:
    """A job of submitit, submitted by any process."""
    import submitit

    return (submitit.LocalJob if cluster == THIS_MACHINE else submitit.SlurmJob)(folder, job_id)


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

logger = logging.getLogger(__name__)


class SlurmJobs:
    """folder: that of the campaign; submitit's files and the cards are in `slurm` below it
    cluster: `slurm` or `local`, where jobs are submitted
    """

    def __init__(self, plan: Plan, folder: Path, cluster: str) -> None:
        self._plan, self._folder, self._cluster = plan, folder.absolute(), cluster
        self._place = self._folder / "slurm"
        self.cards = JobCards(self._folder)
        every = {model.gpus for model in plan.models}
        self._executors = {gpus: executor(self._place, cluster, plan.slurm, gpus) for gpus in sorted(every)}
        self._live: dict[JobCard, Any] = {}
        self._asked = time.monotonic()

    @property
    def live(self) -> list[JobCard]:
        return list(self._live)

    def adopt(self) -> None:
        """Takes over the jobs of an earlier driver."""
        for card in self.cards.all():
            known = card if card.job_id is not None else self.cards.withdraw(card)
            if known is None or known.job_id is None:
                self.cards.remove(card)
                continue
            self._live[known] = job_of(self._place, known.cluster, known.job_id)
            logger.info("job %s of an earlier driver, with %s units", known.job_id, len(known.units))

    def submit(self, cards: Sequence[JobCard]) -> None:
        """Those that need as many GPUs as one job array."""
        for gpus, to in self._executors.items():
            own = [card for card in cards if self._plan.model(card.model).gpus == gpus]
            for card in own:
                self.cards.write(card)
            with outside_of_a_job(), deaf_to_ctrl_c() if self._cluster == THIS_MACHINE else nullcontext():
                jobs = own and to.submit_array([SlurmJob(self._folder, card) for card in own])
            for card, job in zip(own, jobs, strict=True):
                submitted = replace(card, job_id=job.job_id)
                self.cards.write(submitted)
                self._live[submitted] = job
                logger.info("job %s: %s units of %s", job.job_id, len(card.units), card.model)

    def ended(self) -> list[JobCard]:
        """Those that have ended by now, in whatever way. Slurm is asked once a minute."""
        in_queue = None
        if any(card.cluster == CLUSTER for card in self._live) and time.monotonic() - self._asked > ASK_S:
            in_queue, self._asked = queued(), time.monotonic()
        return [card for card, job in self._live.items() if has_ended(job, in_queue)]

    def forget(self, card: JobCard) -> None:
        del self._live[card]
        self.cards.remove(card)

    def log_of(self, card: JobCard) -> Path:
        """What the job wrote to stderr."""
        return Path(self._live[card].paths.stderr)

    def interrupt(self) -> str:
        """Ends the jobs on this machine, since Ctrl-C does not stop them all; says what becomes of the others."""
        for card, job in self._live.items():
            if card.cluster == THIS_MACHINE:
                end_local_job(job)
        on_cluster = [str(card.job_id) for card in self._live if card.cluster == CLUSTER]
        ids = " ".join(sorted({job_id.partition("_")[0] for job_id in on_cluster}))
        return ids and f"the jobs go on; start the campaign again to watch them, or end them with: scancel {ids}"


PUT_BACK = "its job reached its time limit or was preempted, and was put back in the queue"


@dataclass(frozen=True)
class SlurmJob:
    """submitit sends it to the job and calls it there.

    The worker is a process of its own: if it is killed for want of memory, the job goes on with another one, and the
    job can answer Slurm's signals at any time.
    """

    folder: Path
    card: JobCard

    def __call__(self) -> None:
        """Passes over units that are done, by whomever, and those that it gave up before it was put back in the
        queue."""
        from submitit import JobEnvironment

        from lm_eval_leakage.jobs.local_engine import LocalEngine

        folder, cards, worker = CampaignFolder(self.folder), JobCards(self.folder), self.card.worker
        job_id = JobEnvironment().job_id
        if not cards.begin(worker, job_id):
            return
        plan = folder.plan
        own = plan.changed(models=(plan.model(self.card.model),), workers=1)
        made = [attempt for attempt in folder.attempts() if self.card.has_made(attempt)]

        def begun(unit: Unit, _: str) -> None:
            cards.hold(worker, JobMark(job_id, unit, len(made)))

        units = UnitQueue(folder.left(self.card.units), own, made).waiting
        LocalEngine(own, folder, called=worker).carry_out(units, made.append, begun)
        cards.hold(worker, JobMark(job_id))

    def checkpoint(self) -> Any:
        """What submitit puts back in the queue when the job reaches its time limit or is preempted: the same, since
        the answers of the unit in hand are kept."""
        from submitit.helpers import DelayedSubmission

        folder = CampaignFolder(self.folder)
        if lost := lost_with(self.card, folder, PUT_BACK):
            folder.record(lost)
        return DelayedSubmission(self)


LOOK_S, LOCAL_LOOK_S = 5.0, 0.2  # between two looks at the folder
NO_LIMIT = 10**6  # jobs; Slurm has its own
STILLBORN = 3  # jobs in a row that ended before they began; the next one would, too
DIED = "its job died (killed, out of memory, preempted, or its node was lost)"


class SlurmEngine:
    """Jobs outlive the driver: if it is killed or interrupted they go on, and the next driver on the same folder takes
    them over. Those of `--address local`, on this machine, end when the driver is interrupted.

    A model has at most as many jobs as its `workers`, else as the plan has shards; all models together as many as the
    plan's `workers`, else one on this machine.

    address: `local` for submitit's local executor, None for Slurm
    """

    def __init__(self, plan: Plan, folder: CampaignFolder, address: str | None = None) -> None:
        refuse_several_processes(plan.slurm)
        self._plan, self._folder, self._cluster = plan, folder, cluster_of(address)
        self._jobs = SlurmJobs(plan, folder.path, self._cluster)
        self._told: dict[Attempt, None] = {}
        self._marks: dict[str, JobMark] = {}
        self._n_stillborn = 0

    @property
    def description(self) -> str:
        return "Slurm through submitit" if self._cluster != THIS_MACHINE else "submitit on this machine"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """See `Engine`; but jobs of a cluster go on when it is interrupted."""
        news = NewAttempts(self._folder.path / ATTEMPTS)
        self._jobs.adopt()
        self._told = {attempt: None for attempt in self._folder.attempts() if self._job_of(attempt)}
        try:
            left = self._left(units)
            while left or self._jobs.live:
                left = self._deal(left)
                time.sleep(LOCAL_LOOK_S if self._cluster == THIS_MACHINE else LOOK_S)
                ended = self._jobs.ended()  # before the attempts are read, so that none of theirs is missed
                self._hear(news, tell, begun)
                if ended:
                    self._bury(ended, tell)
                    left = self._left(units)
        except BaseException:
            if says := self._jobs.interrupt():
                logger.warning(says)
            raise
        self._hear(news, tell, begun)

    # ------------------------------------------------------------------ dealing

    def _left(self, units: Sequence[Unit]) -> list[Unit]:
        """Those that are neither done nor given up, nor in the hands of a job."""
        held = {unit for card in self._jobs.live for unit in card.units}
        free = self._folder.left(unit for unit in units if unit not in held)
        return UnitQueue(free, self._plan, self._told).waiting

    def _deal(self, left: Sequence[Unit]) -> list[Unit]:
        """Submits as many jobs as may run at once; returns the units for which there is none yet."""
        cards: list[JobCard] = []
        for model in self._plan.models:
            own = [unit for unit in left if unit.model == model.name]
            every = [*self._jobs.live, *cards]
            n_wanted = min(model.workers or self._plan.shards, self._most)
            n_hands = n_wanted - sum(card.model == model.name for card in every)
            for hand in dealt(own, n_hands)[: self._most - len(every)]:
                cards.append(JobCard(f"{model.name}-{uuid4().hex[:8]}", model.name, hand, self._cluster))
        if cards:
            self._jobs.submit(cards)
        given = {unit for card in cards for unit in card.units}
        return [unit for unit in left if unit not in given]

    @property
    def _most(self) -> int:
        """How many jobs of all models there may be at once."""
        return self._plan.workers or (1 if self._cluster == THIS_MACHINE else NO_LIMIT)

    # ------------------------------------------------------------------ listening

    def _hear(self, news: NewAttempts, tell: Tell, begun: Begun) -> None:
        found = [attempt for attempt in news.look() if attempt not in self._told]
        for attempt in found:
            self._told[attempt] = None
            tell(attempt)
        heard = {card.worker for attempt in found if (card := self._job_of(attempt))}
        for card in self._jobs.live:
            old = self._marks.get(card.worker)
            is_at_another = old is None or old.unit is None or card.worker in heard
            mark = self._jobs.cards.mark(card.worker) if is_at_another else old
            if mark is not None and mark != old:
                self._marks[card.worker] = mark
                if mark.unit is not None:
                    begun(mark.unit, card.worker)

    def _job_of(self, attempt: Attempt) -> JobCard | None:
        return next((card for card in self._jobs.live if card.has_made(attempt)), None)

    def _bury(self, ended: Sequence[JobCard], tell: Tell) -> None:
        """Records what jobs that died have left in the middle, and forgets them."""
        for card in ended:
            if lost := lost_with(card, self._folder, DIED):
                self._folder.record(lost)
                self._told[lost] = None
                tell(lost)
            is_stillborn = not any(card.has_made(attempt) for attempt in self._told)
            self._n_stillborn = self._n_stillborn + 1 if is_stillborn and self._folder.left(card.units) else 0
            if self._n_stillborn >= STILLBORN:
                log = self._jobs.log_of(card)
                raise ValueError(
                    f"{STILLBORN} jobs in a row ended before their first unit, the last one ({card.job_id}) with: "
                    f"{_last_line(log)} See {log}"
                )
            self._jobs.forget(card)


def _last_line(log: Path) -> str:
    if not log.is_file():
        return "nothing in its log"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((visible(line.strip()) for line in reversed(lines) if line.strip()), "nothing in its log")
