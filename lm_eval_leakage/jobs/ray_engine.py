"""A Ray cluster as a plan needs it: connected to, or started for it; nodes that all see its folder.

The workers of a plan are Ray actors, each with one loaded model, which takes units of it one after another. Ray places
them, tells when one is lost and ends them with the driver; who is wanted, and what is tried again, is decided here:
where a model has waiting units and no worker, one is started for it; when every such model has one, further workers
are started for as long as Ray finds places.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

import lm_eval_leakage
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.engines import Begun, Tell, lost_attempt
from lm_eval_leakage.jobs.folder import Attempt, CampaignFolder, UnitQueue
from lm_eval_leakage.jobs.plan import Plan, Unit
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


FREEING_S = 60.0  # to free what a model holds outside its process; then the process ends at once
LONGEST_WAIT_S = 1.0  # how often time limits and nodes are looked at while nothing happens
STARTS = 3  # workers of a model that may fail in a row before they have a unit
PLACE_S = 1800.0  # a model waits so long for a node that is large enough, if no worker is running
IDS = re.compile(r"(class_name|actor_id|pid|name|namespace|ip): ")  # lines of Ray's report of a dead actor
ADVICE = "Some common causes include"
WorkerMaker = Callable[..., Any]


class CampaignWorker:
    """The actor: a process that holds one model. Ray ends it when the driver's job ends, whatever it is doing.

    mark: a file that the driver wrote into the plan's folder, as all nodes see it
    cwd: the driver's working directory, from which relative paths of the plan are meant
    maker: what makes the worker in its process; `UnitWorker` unless a test or a measurement says otherwise
    """

    def __init__(
        self, plan: Plan, model: str, name: str, mark: Path, cwd: str, maker: Callable[..., Any] | None
    ) -> None:
        self._made_from, self._maker = (plan, model, CampaignFolder(mark.parent), name), maker
        self._mark, self._cwd = mark, Path(cwd)
        self._held = ExitStack()
        self._worker: Any = None

    def __repr__(self) -> str:
        return self._made_from[-1]  # as Ray's dashboard shows it

    def ready(self) -> None:
        """Raises ValueError if this node cannot be used; raised while it is made, Ray would not always tell why. As on
        one machine, a model without GPUs sees none if others have theirs, and all if none is reserved."""
        if lacking := looking()(str(self._mark), lm_eval_leakage.__version__):
            raise ValueError(f"its node {lacking}")
        if self._cwd.is_dir():
            os.chdir(self._cwd)
        plan, model, *_ = self._made_from
        if not plan.model(model).gpus and any(one.gpus for one in plan.models):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def run(self, unit: Unit) -> Attempt:
        if self._worker is None:
            from lm_eval_leakage.jobs.unit_worker import UnitWorker  # late: it loads the harness

            self._worker = self._held.enter_context((self._maker or UnitWorker)(*self._made_from))
        attempt: Attempt = self._worker.run(unit)
        return attempt

    def end(self) -> None:
        """Frees what the model holds, also outside this process, and ends the process."""
        import ray

        timer = Timer(FREEING_S, os._exit, (1,))
        timer.daemon = True
        timer.start()
        self._held.close()
        ray.actor.exit_actor()


@dataclass(eq=False)
class RayWorker:
    """n_cpus: that Ray reserves for it
    doing: Ray's reference to what the actor does now: that it is placed and ready, or an attempt at its unit
    unit: None while it is started, which includes waiting for a place
    since: when that began, by the monotonic clock
    """

    name: str
    model: str
    n_cpus: float
    actor: Any
    doing: Any
    unit: Unit | None = None
    since: float = field(default_factory=time.monotonic)


def cause_of(error: BaseException) -> str:
    """Why a worker did not answer, in one sentence: the error that was raised in it, or what Ray's report says beneath
    its list of ids and before its advice."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, BaseException):
        return in_one_sentence(inner)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ids = [place for place, line in enumerate(lines) if IDS.match(line)]
    told = " ".join(lines[max(ids) + 1 :] if ids else lines[-1:])
    return shortened(told.partition(ADVICE)[0].strip() or type(error).__name__)


class RayEngine:
    """address: of a Ray cluster; None takes RAY_ADDRESS, else starts Ray on this machine until the plan is done
    maker: see `CampaignWorker`
    """

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, maker: WorkerMaker | None = None
    ) -> None:
        self._plan, self._folder, self._address, self._maker = plan, folder, address, maker
        self._called = f"ray-{uuid4().hex[:6]}"
        self._workers: list[RayWorker] = []
        self._ending: list[Any] = []
        self._n_started, self._failed_starts = 0, Counter[str]()

    @property
    def description(self) -> str:
        return f"ray, {self._address or 'this machine'}"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """As `Engine.carry_out` says; raises ValueError if the cluster cannot be used."""
        import ray

        self._queue, self._tell, self._begun = UnitQueue(units, self._plan), tell, begun
        with connected(self._address) as is_own, marked(self._folder.path.absolute()) as mark:
            check_nodes(mark)
            self._warn_of_gpus()
            try:
                self._work(mark, 0.0 if is_own else PLACE_S)
                ray.wait(self._ending, num_returns=len(self._ending), timeout=FREEING_S) if self._ending else None
            finally:
                for worker in self._workers:
                    ray.kill(worker.actor)

    def _work(self, mark: Path, patience: float) -> None:
        """Until every unit is done or given up.

        patience: seconds that a model waits for a node that is large enough, once nothing else goes on
        """
        import ray

        last_running = time.monotonic()
        while not self._queue.finished:
            for model in self._wanted():
                self._start(model, mark)
            if doing := {worker.doing: worker for worker in self._workers}:
                told, _ = ray.wait(list(doing), timeout=LONGEST_WAIT_S)
                for reference in told:
                    self._hear(doing[reference])
            self._stop_late()
            now = time.monotonic()
            if any(worker.unit for worker in self._workers):
                last_running = now
            elif now - last_running > patience:
                for model in list(self._queue.models_with_work()):
                    if reason := self._why_no_place(model):
                        self._give_up(model, reason)

    # ------------------------------------------------------------------ who works

    def _wanted(self) -> Iterator[str]:
        """Models for which a worker is to be started now. As many of a model are started at once as are working, so
        that a free cluster fills quickly and few wait for a place in a full one."""
        waiting = self._queue.models_with_work()
        starting = Counter(worker.model for worker in self._workers if worker.unit is None)
        working = Counter(worker.model for worker in self._workers if worker.unit is not None)
        room = (self._plan.workers or float("inf")) - len(self._workers)
        first = [model for model in waiting if not starting[model] + working[model]]
        first.sort(key=lambda model: (self._why_no_place(model) is not None, -self._plan.model(model).gpus))
        further = [] if first or any(not working[model] for model in starting) else list(waiting)
        for model in first + further:
            most = self._plan.model(model).workers or float("inf")
            n_new = min(max(1, working[model]), waiting[model], most - working[model]) - starting[model]
            for _ in range(int(max(0, min(n_new, room)))):
                room -= 1
                yield model

    def _start(self, model: str, mark: Path) -> None:
        """Asks Ray for a place, which may take as long as others need theirs. Ray never starts it again: the units of
        a lost worker are given to others."""
        import ray

        self._n_started += 1
        name, n_cpus = f"{model}-{self._called}-{self._n_started}", self._cpus(model)
        asked = {"num_cpus": n_cpus, "num_gpus": self._plan.model(model).gpus, "max_restarts": 0}
        actor = ray.remote(CampaignWorker).options(**asked)
        actor = actor.remote(self._plan, model, name, mark, str(Path.cwd()), self._maker)
        self._workers.append(RayWorker(name, model, n_cpus, actor, actor.ready.remote()))

    def _cpus(self, model: str) -> float:
        """Of one worker. Without a GPU, workers share the CPUs if their number is limited, else each has one."""
        most = self._plan.model(model).workers or self._plan.workers
        if self._plan.model(model).gpus or most is None:
            return 1.0
        return max(1.0, min(total("CPU") // most, largest("CPU")))

    def _drop(self, worker: RayWorker) -> None:
        """Ends it at once, with its child processes."""
        import ray

        ray.kill(worker.actor)
        self._workers.remove(worker)

    # ------------------------------------------------------------------ what workers tell

    def _hear(self, worker: RayWorker) -> None:
        import ray

        try:
            told = ray.get(worker.doing)
        except ray.exceptions.RayError as error:
            self._lost(worker, cause_of(error))
            return
        self._failed_starts[worker.model] = 0
        if isinstance(told, Attempt):
            self._ended(told)
        worker.unit, worker.since = self._queue.take(worker.model), time.monotonic()
        if worker.unit is None:
            self._ending.append(worker.actor.end.remote())
            self._workers.remove(worker)
        else:
            worker.doing = worker.actor.run.remote(worker.unit)
            self._begun(worker.unit, worker.name)

    def _ended(self, attempt: Attempt) -> None:
        self._queue.returned(attempt)
        self._tell(attempt)

    def _lost(self, worker: RayWorker, cause: str) -> None:
        self._drop(worker)
        if worker.unit is not None:
            self._record(worker, worker.unit, f"the worker was lost: {cause}")
            return
        self._failed_starts[worker.model] += 1
        logger.warning("worker %s could not be started: %s", worker.name, cause)
        if self._failed_starts[worker.model] >= STARTS:
            self._give_up(worker.model, f"{STARTS} workers in a row could not be started: {cause}")

    def _stop_late(self) -> None:
        """Workers that take too long, and those that wait for more CPUs than any node has left."""
        limit, most = engine_limit(self._plan.minutes), largest("CPU")
        for worker in list(self._workers):
            if worker.unit is None and 1 < worker.n_cpus > most:
                self._drop(worker)
            elif worker.unit is not None and limit is not None and time.monotonic() - worker.since > limit:
                self._drop(worker)
                self._record(worker, worker.unit, too_long(self._plan.minutes or 0.0), lost=False)

    def _record(self, worker: RayWorker, unit: Unit, error: str, *, lost: bool = True) -> None:
        attempt = lost_attempt(unit, worker.name, error, time.monotonic() - worker.since, lost=lost)
        self._folder.record(attempt)
        self._ended(attempt)

    # ------------------------------------------------------------------ models that no worker can take

    def _why_no_place(self, model: str) -> str | None:
        gpus = self._plan.model(model).gpus
        if gpus > largest("GPU"):
            return f"{model} needs a node with {gpus} GPUs, and the largest has {largest('GPU'):g}"
        return None if living_nodes() else "the cluster has no node left"

    def _give_up(self, model: str, reason: str) -> None:
        """The units of a model that wait are named as failed; the next start of the plan tries them again."""
        for worker in [one for one in self._workers if one.unit is None and one.model == model]:
            self._drop(worker)
        named: set[Unit] = set()
        while (
            unit := self._queue.take(model)
        ) is not None:  # the queue hands out each one as often as it may be tried
            attempt = lost_attempt(unit, f"{model}-{self._called}", reason, 0.0, lost=False)
            self._queue.returned(attempt)
            if unit not in named:
                named.add(unit)
                self._folder.record(attempt)
                self._tell(attempt)

    def _warn_of_gpus(self) -> None:
        there, most = total("GPU"), largest("GPU")
        if there and not any(model.gpus for model in self._plan.models):
            logger.warning(
                "no model of the plan asks for GPUs, so that Ray reserves none of its %d for workers; add `gpus: 1` "
                "to each model that needs one",
                there,
            )
        for model in self._plan.models:
            if model.gpus > most:
                logger.warning("%s needs a node with %d GPUs, and the largest has %d", model.name, model.gpus, most)
