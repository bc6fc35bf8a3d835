"""A Ray cluster as a campaign needs it: connected to, or started for the campaign; nodes that all see its folder.

Workers of a campaign as Ray actors, and the driver's view of each: what it does, since when, and until when.

The workers of a campaign on Ray: who is started, what each takes next, what is done when one is lost or late.

Ray places workers and tells when one is lost; it restarts none of them. Where a model has waiting units and no worker,
one is started for it; when every such model has one, further workers are started for as long as Ray finds places.

Carries out a campaign with Ray: actors that hold one model each and take its units one after another.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import lm_eval_leakage
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.engines import Begun, Tell, lost_attempt
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue
from lm_eval_leakage.jobs.plan import CampaignModel, CampaignPlan, Unit
from lm_eval_leakage.jobs.unit_worker import engine_limit, too_long
from lm_eval_leakage.texts import in_one_sentence, shortened

OF_OUR_OWN = "local"  # Ray's word for a Ray of this process's own
STORE = 128 * 2**20  # bytes of a local Ray's object store; only units and attempts are sent
REACH_S = 10.0  # within which the cluster's address has to accept a connection
ANSWER_S = 120.0  # within which every node has to answer
MARK = "seen_by_nodes_"  # how the file begins that each node has to read

logger = logging.getLogger(__name__)
Node = dict[str, Any]  # as `ray.nodes()` has it


@contextmanager
def connected(address: str | None) -> Iterator[bool]:
    """Ray within the block: the cluster at `address`, else at RAY_ADDRESS, else one on this machine that ends with the
    block. Yields whether it is this machine's own. Workers print into Ray's log files, not here.

    Raises ValueError if the address cannot be used.
    """
    import ray

    place = address or os.environ.get("RAY_ADDRESS") or OF_OUR_OWN
    if place.startswith("ray://"):
        raise ValueError(
            f"the address {place!r} is for Ray Client, which campaigns cannot use, since their folder has to be here "
            "and on all nodes; run this command on a node of the cluster, with --address auto"
        )
    own = {"object_store_memory": STORE} if place == OF_OUR_OWN else {}
    try:
        _check_reachable(place)
        context = ray.init(place, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no Ray cluster can be reached at {place!r} ({_first_line(error)}); start one with `ray start --head`, "
            "or leave --address out to use this machine alone"
        ) from error
    try:
        if context.dashboard_url:
            logger.info("Ray's dashboard: http://%s", context.dashboard_url)
        with _reports_logged():
            yield place == OF_OUR_OWN
    finally:
        ray.shutdown()


@contextmanager
def _reports_logged() -> Iterator[None]:
    """Ray prints a long paragraph to stdout about every lost worker, which our own messages name in a sentence."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, ignore_prefix: logger.info("\n".join(data["lines"]))
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def _check_reachable(place: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT, which Ray takes minutes to tell."""
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()


def living_nodes() -> list[Node]:
    """The nodes that workers may be placed on; a head without CPUs holds none."""
    import ray

    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def total(resource: str) -> float:
    return float(sum(node["Resources"].get(resource, 0) for node in living_nodes()))


def largest(resource: str) -> float:
    return float(max((node["Resources"].get(resource, 0) for node in living_nodes()), default=0))


@contextmanager
def marked(folder: Path) -> Iterator[Path]:
    """A file in `folder`, for the length of the block, that no earlier campaign can have left on a node's own disk."""
    for old in folder.glob(f"{MARK}*"):
        old.unlink()
    file = folder / f"{MARK}{uuid4().hex}"
    atomic_write(file, "Written when the campaign starts; every node has to see it.\n")
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def check_nodes(mark: Path) -> None:
    """Raises ValueError, with all nodes that lack something, unless each one sees the marked folder, may write there
    and has this version of the package."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=1)(looking())
    asked = {}
    for node in living_nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[look.options(scheduling_strategy=there).remote(str(mark), lm_eval_leakage.__version__)] = _name(node)
    ready, silent = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_S) if asked else ([], [])
    found = [f"{asked[answer]} {_answer(answer)}" for answer in ready if _answer(answer)]
    found += [f"{asked[answer]} did not answer within {ANSWER_S:.0f} seconds" for answer in silent]
    if found:
        raise ValueError("this Ray cluster cannot run the campaign: " + "; ".join(found))


def looking() -> Callable[[str, str], str]:
    """A function of the mark and the version: what the node on which it is called lacks, as the rest of a sentence
    that begins with the node's name, or nothing. Nested, so that Ray sends its code: a node may lack this package."""

    def what_is_missing(mark: str, wanted: str) -> str:
        folder = Path(mark).parent
        if not Path(mark).exists():
            return f"does not see the campaign's folder {folder}; choose an --output_path that all nodes share"
        if not os.access(folder, os.W_OK):
            return f"cannot write to {folder}; let the user that runs Ray there write to it"
        try:
            version = metadata.version("lm-eval-leakage")
        except metadata.PackageNotFoundError:
            return "has no lm-eval-leakage; install it on every node"
        return "" if version == wanted else f"has lm-eval-leakage {version}; install {wanted} on every node"

    return what_is_missing


def _answer(reference: Any) -> str:
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        return f"failed: {_first_line(error)}"


def _name(node: Node) -> str:
    return f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


FREEING_S = 60.0  # to free what a model holds outside its process; then the process is killed
IDS = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")  # lines of Ray's report of a dead actor
ADVICE = "Some common causes include"


class TakesUnits(Protocol):
    def run(self, unit: Unit) -> Attempt: ...


WorkerMaker = Callable[[CampaignPlan, str, CampaignFolder, str], AbstractContextManager[TakesUnits]]


@dataclass(frozen=True)
class Errand:
    """What every worker of a campaign is given.

    folder: the campaign's, as all nodes see it
    mark: a file that the driver wrote into the campaign's folder
    cwd: the driver's working directory, from which relative paths of the plan are meant
    maker: what makes the worker in its process; `UnitWorker` unless a test or a measurement says otherwise
    """

    plan: CampaignPlan
    folder: Path
    mark: str
    cwd: str
    maker: WorkerMaker | None = None


class CampaignWorker:
    """The actor: a process that holds one model. Ray ends it when the driver's job ends, whatever it is doing."""

    def __init__(self, errand: Errand, model: str, name: str) -> None:
        self._errand, self._planned, self._called = errand, model, name
        self._held = ExitStack()
        self._worker: TakesUnits | None = None

    def __repr__(self) -> str:
        return self._called  # as Ray's dashboard shows it

    def ready(self) -> None:
        """Raises ValueError if this node cannot be used. As on one machine, a model without GPUs sees none if others
        have theirs, and all if none is reserved."""
        if lacking := looking()(self._errand.mark, lm_eval_leakage.__version__):
            raise ValueError(f"its node {lacking}")
        if Path(self._errand.cwd).is_dir():
            os.chdir(self._errand.cwd)
        plan = self._errand.plan
        if not plan.model(self._planned).gpus and any(model.gpus for model in plan.models):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def run(self, unit: Unit) -> Attempt:
        if self._worker is None:
            make = self._errand.maker or _unit_worker()
            made = make(self._errand.plan, self._planned, CampaignFolder(self._errand.folder), self._called)
            self._worker = self._held.enter_context(made)
        return self._worker.run(unit)

    def end(self) -> None:
        """Frees what the model holds, also outside this process."""
        self._held.close()


def _unit_worker() -> WorkerMaker:
    """Imported late: it loads the harness."""
    from lm_eval_leakage.jobs.unit_worker import UnitWorker

    return UnitWorker


class WorkerState(Enum):
    """STARTING includes waiting for a place in the cluster."""

    STARTING = "starting"
    WORKING = "working"
    ENDING = "ending"


@dataclass(eq=False)
class RayWorker:
    """n_cpus: that Ray reserves for it
    waits_for: Ray's reference to what the actor does now: that it is ready, an attempt, or that it has ended
    unit: which it is at, if any
    since: when that began, by the monotonic clock
    until: when it is too late; None for never
    """

    name: str
    model: str
    n_cpus: float
    actor: Any
    waits_for: Any
    state: WorkerState = WorkerState.STARTING
    unit: Unit | None = None
    since: float = field(default_factory=time.monotonic)
    until: float | None = None

    @classmethod
    def started(cls, errand: Errand, model: CampaignModel, name: str, n_cpus: float) -> RayWorker:
        """Asks Ray for a place, which may take as long as others need theirs. Ray never starts it again: units that a
        lost worker had are given to others."""
        import ray

        kind = ray.remote(CampaignWorker)
        actor = kind.options(num_cpus=n_cpus, num_gpus=model.gpus, max_restarts=0).remote(errand, model.name, name)
        return cls(name, model.name, n_cpus, actor, actor.ready.remote())

    def give(self, unit: Unit, limit: float | None) -> None:
        """limit: seconds after which it is too late"""
        self._now_does(WorkerState.WORKING, unit, self.actor.run.remote(unit), limit)

    def end(self) -> None:
        self._now_does(WorkerState.ENDING, None, self.actor.end.remote(), FREEING_S)

    def kill(self) -> None:
        """At once, with its child processes."""
        import ray

        ray.kill(self.actor, no_restart=True)

    def is_late(self, now: float) -> bool:
        return self.until is not None and now > self.until

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since

    def _now_does(self, state: WorkerState, unit: Unit | None, reference: Any, limit: float | None) -> None:
        self.state, self.unit, self.waits_for, self.since = state, unit, reference, time.monotonic()
        self.until = None if limit is None else self.since + limit


def cause_of(error: BaseException) -> str:
    """Why a worker did not answer, in one sentence: the error that was raised in it, or what Ray's report says beneath
    its list of ids and before its advice."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, BaseException):
        return in_one_sentence(inner)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ids = [place for place, line in enumerate(lines) if IDS.match(line)]
    told = " ".join(lines[max(ids) + 1 :] if ids else lines[-1:])
    told = told.partition(ADVICE)[0].strip() or type(error).__name__
    return shortened(told)


LONGEST_WAIT_S = 1.0  # how often deadlines and nodes are looked at while nothing happens
STARTS = 3  # workers of a model that may fail in a row before they have a unit
PLACE_S = 1800.0  # a model waits so long for a node that is large enough, if no worker is running


@dataclass
class RayCrew:
    """The workers of a campaign, and what the driver knows of them.

    patience: seconds that a model waits for a node that is large enough, once nothing else goes on
    """

    errand: Errand
    folder: CampaignFolder
    queue: UnitQueue
    tell: Tell
    begun: Begun
    patience: float
    workers: list[RayWorker] = field(default_factory=list)
    n_started: int = 0
    failed_starts: Counter[str] = field(default_factory=Counter)
    last_running: float = field(default_factory=time.monotonic)
    token: str = field(default_factory=lambda: uuid4().hex[:6])

    # ------------------------------------------------------------------ the loop

    def work(self) -> None:
        """Until every unit is done or given up, and every worker has ended."""
        import ray

        while not self.queue.finished or self.workers:
            self._dismiss_unneeded()
            self._hire()
            if doing := {worker.waits_for: worker for worker in self.workers}:
                told, _ = ray.wait(list(doing), timeout=self._seconds_to_look())
                for reference in told:
                    self._hear(doing[reference])
            self._stop_late()
            self._give_up_unplaceable()

    def leave(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _seconds_to_look(self) -> float:
        limits = [worker.until - time.monotonic() for worker in self.workers if worker.until is not None]
        return max(0.0, min([LONGEST_WAIT_S, *limits]))

    # ------------------------------------------------------------------ who works

    def _hire(self) -> None:
        for model in self._wanted():
            self.n_started += 1
            name = f"{model}-ray-{self.token}-{self.n_started}"
            settings = self.errand.plan.model(model)
            self.workers.append(RayWorker.started(self.errand, settings, name, self._cpus(model)))

    def _wanted(self) -> Iterator[str]:
        """Models for which a worker is to be started now. As many of a model are started at once as are working, so
        that a free cluster fills quickly and few wait for a place in a full one."""
        waiting = self.queue.models_with_work()
        starting, working = self._count(WorkerState.STARTING), self._count(WorkerState.WORKING)
        room = (self.errand.plan.workers or float("inf")) - starting.total() - working.total()
        first = [model for model in waiting if not starting[model] + working[model]]
        first.sort(key=lambda model: (self._why_no_place(model) is not None, -self.errand.plan.model(model).gpus))
        further = [] if first or any(not working[model] for model in starting) else list(waiting)
        for model in first + further:
            most = self.errand.plan.model(model).workers or float("inf")
            n_new = min(max(1, working[model]), waiting[model], most - working[model]) - starting[model]
            for _ in range(int(max(0, min(n_new, room)))):
                room -= 1
                yield model

    def _count(self, state: WorkerState) -> Counter[str]:
        return Counter(worker.model for worker in self._all(state))

    def _all(self, state: WorkerState) -> list[RayWorker]:
        return [worker for worker in self.workers if worker.state is state]

    def _cpus(self, model: str) -> float:
        """Of one worker. Without a GPU, workers share the CPUs if their number is limited, else each has one."""
        settings, plan = self.errand.plan.model(model), self.errand.plan
        most = settings.workers or plan.workers
        if settings.gpus or most is None:
            return 1.0
        return max(1.0, min(total("CPU") // most, largest("CPU")))

    def _dismiss_unneeded(self) -> None:
        """Workers that wait for a place while others have taken the units, or for a node that is gone."""
        waiting = self.queue.models_with_work()
        starting = self._count(WorkerState.STARTING)
        for worker in self._all(WorkerState.STARTING):
            is_too_many = starting[worker.model] > waiting.get(worker.model, 0)
            if is_too_many or (worker.n_cpus > 1 and worker.n_cpus > largest("CPU")):
                starting[worker.model] -= 1
                self._drop(worker)

    def _drop(self, worker: RayWorker) -> None:
        worker.kill()
        self.workers.remove(worker)

    # ------------------------------------------------------------------ what workers tell

    def _hear(self, worker: RayWorker) -> None:
        import ray

        try:
            told = ray.get(worker.waits_for)
        except ray.exceptions.RayError as error:
            self._lost(worker, cause_of(error))
            return
        if worker.state is WorkerState.ENDING:
            self._drop(worker)
            return
        if isinstance(told, Attempt):
            self._ended(told)
        self._occupy(worker)

    def _occupy(self, worker: RayWorker) -> None:
        self.failed_starts[worker.model] = 0
        unit = self.queue.take(worker.model)
        if unit is None:
            worker.end()
            return
        worker.give(unit, engine_limit(self.errand.plan.minutes))
        self.begun(unit, worker.name)

    def _ended(self, attempt: Attempt) -> None:
        self.queue.returned(attempt)
        self.tell(attempt)

    def _lost(self, worker: RayWorker, cause: str) -> None:
        self._drop(worker)
        if worker.unit is not None:
            self._record(worker, worker.unit, f"the worker was lost: {cause}")
        elif worker.state is WorkerState.STARTING:
            self.failed_starts[worker.model] += 1
            logger.warning("worker %s could not be started: %s", worker.name, cause)
            if self.failed_starts[worker.model] >= STARTS:
                self._give_up(worker.model, f"{STARTS} workers in a row could not be started: {cause}")

    def _stop_late(self) -> None:
        now = time.monotonic()
        for worker in [one for one in self.workers if one.is_late(now)]:
            self._drop(worker)
            if worker.unit is not None:
                self._record(worker, worker.unit, too_long(self.errand.plan.minutes or 0.0), lost=False)

    def _record(self, worker: RayWorker, unit: Unit, error: str, *, lost: bool = True) -> None:
        attempt = lost_attempt(unit, worker.name, error, worker.seconds, lost=lost)
        self.folder.record(attempt)
        self._ended(attempt)

    # ------------------------------------------------------------------ models that no worker can take

    def _give_up_unplaceable(self) -> None:
        """Models for which no node is large enough, once nothing else goes on."""
        now = time.monotonic()
        if len(self._all(WorkerState.STARTING)) < len(self.workers):
            self.last_running = now
        elif now - self.last_running > self.patience:
            for model in list(self.queue.models_with_work()):
                if reason := self._why_no_place(model):
                    self._give_up(model, reason)

    def _why_no_place(self, model: str) -> str | None:
        gpus = self.errand.plan.model(model).gpus
        if gpus > largest("GPU"):
            return f"{model} needs a node with {gpus} GPUs, and the largest has {largest('GPU'):g}"
        return None if living_nodes() else "the cluster has no node left"

    def _give_up(self, model: str, reason: str) -> None:
        """The units of a model that wait are named as failed; the next start of the campaign tries them again."""
        for worker in [one for one in self._all(WorkerState.STARTING) if one.model == model]:
            self._drop(worker)
        named: set[Unit] = set()
        while (unit := self.queue.take(model)) is not None:  # the queue hands out each one as often as it may be tried
            attempt = lost_attempt(unit, f"{model}-ray-{self.token}", reason, 0.0, lost=False)
            self.queue.returned(attempt)
            if unit not in named:
                named.add(unit)
                self.folder.record(attempt)
                self.tell(attempt)


@dataclass(frozen=True)
class RayEngine:
    """address: of a Ray cluster; None takes RAY_ADDRESS, else starts Ray on this machine until the campaign ends
    maker: see `Errand`
    """

    plan: CampaignPlan
    folder: CampaignFolder
    address: str | None = None
    maker: WorkerMaker | None = None

    @property
    def description(self) -> str:
        return f"ray, {self.address or 'this machine'}"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """As `Engine.carry_out` says; raises ValueError if the cluster cannot be used."""
        with connected(self.address) as is_own, marked(self.folder.path.absolute()) as mark:
            check_nodes(mark)
            self._warn_of_gpus()
            errand = Errand(self.plan, mark.parent, str(mark), str(Path.cwd()), self.maker)
            crew = RayCrew(errand, self.folder, UnitQueue(units, self.plan), tell, begun, 0.0 if is_own else PLACE_S)
            try:
                crew.work()
            finally:
                crew.leave()

    def _warn_of_gpus(self) -> None:
        there, most = total("GPU"), largest("GPU")
        if there and not any(model.gpus for model in self.plan.models):
            logger.warning(
                "no model of the plan asks for GPUs, so that Ray reserves none of its %d for workers; add `gpus: 1` "
                "to each model that needs one",
                there,
            )
        for model in self.plan.models:
            if model.gpus > most:
                logger.warning("%s needs a node with %d GPUs, and the largest has %d", model.name, model.gpus, most)
