"""The engine of a Ray cluster, or of a Ray of this machine's own: workers are actors, each with one loaded model.

Ray places them, tells when one is lost, and ends them with the driver. Which are wanted and what is tried again is
decided as on one machine. A worker is started before Ray has a place for it, so that clusters that grow on demand do.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import lm_eval_leakage
from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.jobs.engines import Begun, Crew, Tell, Worker
from lm_eval_leakage.jobs.folder import LOCKS, Attempt, CampaignFolder
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.jobs.units import Unit
from lm_eval_leakage.texts import in_one_sentence, shortened

OF_OUR_OWN = "local"  # Ray's word for a Ray of this process's own
STORE = 128 * 2**20  # bytes of a local Ray's object store; only units and attempts are sent
REACH_S = 10.0  # within which the cluster's address has to accept a connection
HEAD_S = 15.0  # a head that was not reached for so long is gone; after 60 s Ray would end this process with status 1
FREEING_S = 60.0  # for a worker to free what its model holds outside its process
LOOK_S = 1.0  # how often time limits and nodes are looked at while nothing happens
PLACE_S = 1800.0  # a model waits so long for a node that is large enough, if no worker is running
ADVICE = "Some common causes include"  # in Ray's report of a dead actor
WorkerMaker = Callable[..., Any]

logger = logging.getLogger(__name__)


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
            f"no Ray cluster can be reached at {place!r} ({_lines(error)[0]}); start one with `ray start --head`, "
            "or leave --address out to use this machine alone"
        ) from error
    try:
        if context.dashboard_url:
            logger.info("Ray's dashboard: http://%s", context.dashboard_url)
        with redirect_stdout(sys.stderr):  # Ray's own reports of lost workers are no results
            yield place == OF_OUR_OWN
    finally:
        ray.shutdown()


def _check_reachable(place: str) -> None:
    """Raises OSError if nothing listens at HOST:PORT, which Ray takes minutes to tell."""
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()


def _head_address() -> str:
    import ray

    return str(ray.get_runtime_context().gcs_address)


def amounts(resource: str) -> list[float]:
    """What each node has of a resource; of nodes that workers may be placed on: a head without CPUs holds none."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [float(node.get(resource, 0)) for node in nodes if node.get("CPU", 0) >= 1]


def cause_of(error: BaseException) -> str:
    """Why a worker did not answer: the error that was raised in it, or the end of Ray's report without its advice."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, BaseException):
        return in_one_sentence(inner)
    return shortened(_lines(error)[-1].partition(ADVICE)[0].strip())


def _lines(error: BaseException) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]


# ---------------------------------------------------------------------- on a node


class CampaignWorker:
    """The actor: a process that holds one model. Ray ends it when the driver's job ends, whatever it is doing.

    maker: what makes the worker in its process; `UnitWorker` unless a test or a measurement says otherwise
    """

    def __init__(self, plan: Plan, model: str, folder: Path, name: str, maker: WorkerMaker | None) -> None:
        self._plan, self._made_from, self._maker = plan, (CampaignFolder(folder), model, name), maker
        self._held = ExitStack()
        self._worker: Any = None

    def __repr__(self) -> str:
        return self._made_from[-1]  # as Ray's dashboard shows it

    def ready(self, mark: str, version: str, cwd: Path) -> None:
        """Raises ValueError if this node cannot be used; raised while it is made, Ray would not always tell why. As on
        one machine, a model without GPUs sees none if others have theirs, and all if none is reserved.

        cwd: the driver's working directory, from which relative paths of the plan are meant
        """
        folder, model, _ = self._made_from
        refuse_node(folder.path, mark, version)
        if cwd.is_dir():
            os.chdir(cwd)
        if not self._plan.model(model).gpus and any(one.gpus for one in self._plan.models):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def run(self, unit: Unit) -> Attempt:
        if self._maker is None:
            from lm_eval_leakage.jobs.unit_worker import UnitWorker  # late: it loads the harness

            self._maker = UnitWorker
        if self._worker is None:
            self._worker = self._held.enter_context(self._maker(*self._made_from))
        attempt: Attempt = self._worker.run(unit)
        return attempt

    def end(self) -> None:
        """Frees what the model holds, also outside this process."""
        self._held.close()


def mark_of(folder: Path) -> Path:
    """A file with a text that no earlier campaign can have left on a node's own disk."""
    return folder / LOCKS / "ray"


def refuse_node(folder: Path, mark: str, version: str) -> None:
    """Raises ValueError, as the end of a sentence about a worker, unless this node sees the mark that the driver wrote
    into the folder, may write there and has the driver's version of this package."""
    node, file, own = f"its node {socket.gethostname()}", mark_of(folder), lm_eval_leakage.__version__
    if not file.is_file() or file.read_text() != mark:
        raise ValueError(
            f"{node} does not see the campaign's folder {folder}; choose an --output_path that all nodes share"
        )
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{node} cannot write to {folder}; let the user that runs Ray there write to it")
    if own != version:
        raise ValueError(f"{node} has lm-eval-leakage {own}; install {version} on every node")


# ---------------------------------------------------------------------- in the driver


class RayWorker(Worker):
    """n_cpus: that Ray reserves for it
    doing: Ray's reference to what the actor does now: that it is placed and ready, or an attempt at its unit
    """

    def __init__(self, model: str, name: str, n_cpus: float, actor: Any, doing: Any) -> None:
        super().__init__(model, name)
        self.n_cpus, self._actor, self.doing = n_cpus, actor, doing
        self._was_handed = False

    def hand(self, unit: Unit) -> None:
        self.doing, self._was_handed = self._actor.run.remote(unit), True

    def end(self) -> None:
        import ray

        if self._was_handed and self.unit is None:
            ray.wait([self._actor.end.remote()], timeout=FREEING_S)
        ray.kill(self._actor)


class RayEngine(Crew[RayWorker]):
    """address: of a Ray cluster; None takes RAY_ADDRESS, else starts Ray on this machine until the plan is done
    maker: see `CampaignWorker`
    """

    def __init__(
        self, plan: Plan, folder: CampaignFolder, address: str | None = None, maker: WorkerMaker | None = None
    ) -> None:
        super().__init__(plan, folder, f"ray-{uuid4().hex[:6]}", plan.workers or float("inf"))
        self._address, self._maker, self._mark = address, maker, uuid4().hex

    @property
    def description(self) -> str:
        return f"ray, {self._address or 'this machine'}"

    def carry_out(self, units: Sequence[Unit], tell: Tell, begun: Begun) -> None:
        """As `CampaignEngine.carry_out` says; raises ValueError if the cluster cannot be used."""
        atomic_write(mark_of(self.folder.path), self._mark)
        with connected(self._address) as is_own:
            self._head, self._last_reached = _head_address(), time.monotonic()
            self._patience, self._last_running = 0.0 if is_own else PLACE_S, time.monotonic()
            self._warn_of_gpus()
            super().carry_out(units, tell, begun)

    def started(self, model: str, name: str) -> RayWorker:
        """Asks Ray for a place, which may take as long as others need theirs."""
        import ray

        own, n_cpus = f"{model}-{name}", self._cpus(model)
        asked = {"num_cpus": n_cpus, "num_gpus": self.plan.model(model).gpus, "max_restarts": 0}
        actor = ray.remote(CampaignWorker).options(**asked)
        actor = actor.remote(self.plan, model, self.folder.path.absolute(), own, self._maker)
        doing = actor.ready.remote(self._mark, lm_eval_leakage.__version__, Path.cwd())
        return RayWorker(model, own, n_cpus, actor, doing)

    def heard(self) -> Iterator[tuple[RayWorker, Attempt | str | None]]:
        import ray

        if not self._reaches_head():
            time.sleep(LOOK_S)
            return
        self._drop_hopeless()
        doing = {worker.doing: worker for worker in self.workers}
        told, _ = ray.wait(list(doing), timeout=LOOK_S) if doing else ([], [])
        for reference in told:
            try:
                found = ray.get(reference)
            except ray.exceptions.RayError as error:
                found = f"was lost: {cause_of(error)}"
            yield doing[reference], found

    def _reaches_head(self) -> bool:
        """Return whether the cluster's head accepts connections; until it does again, nothing is asked of Ray.

        Raises ConnectionError for a head that is gone. Its workers are not ended one by one, for which Ray would wait:
        they end with their cluster.
        """
        moment = time.monotonic()
        try:
            _check_reachable(self._head)
        except OSError as error:
            if moment - self._last_reached < HEAD_S:
                return False
            self.workers.clear()
            raise ConnectionError(
                f"the head of the Ray cluster at {self._head} is gone ({error}); start the cluster again, then the "
                "same command, which continues with the units that are not done"
            ) from error
        self._last_reached = moment
        return True

    def _drop_hopeless(self) -> None:
        """Workers that wait for more CPUs than any node has left, and models for which no node is large enough once
        nothing else goes on."""
        moment = time.monotonic()
        for worker in [one for one in self.workers if one.unit is None and one.n_cpus > 1]:
            if worker.n_cpus > max(amounts("CPU"), default=0.0):
                self.remove(worker)
        if any(worker.unit for worker in self.workers):
            self._last_running = moment
        elif moment - self._last_running > self._patience:
            for model in self.queue.models_with_work():
                if reason := self._why_no_place(model):
                    self.give_up(model, reason)

    def _cpus(self, model: str) -> float:
        """Of one worker. Without a GPU, workers share the CPUs if their number is limited, else each has one."""
        most, there = self.plan.model(model).workers or self.plan.workers, amounts("CPU")
        if self.plan.model(model).gpus or most is None:
            return 1.0
        return max(1.0, min(sum(there) // most, max(there, default=1.0)))

    def _why_no_place(self, model: str) -> str | None:
        gpus, there = self.plan.model(model).gpus, amounts("GPU")
        if not there:
            return "the cluster has no node left"
        return (
            f"{model} needs a node with {gpus} GPUs, and the largest has {max(there):g}" if gpus > max(there) else None
        )

    def _warn_of_gpus(self) -> None:
        n_gpus = sum(amounts("GPU"))
        if n_gpus and not any(model.gpus for model in self.plan.models):
            logger.warning(
                "no model of the plan asks for GPUs, so that Ray reserves none of its %d for workers; add `gpus: 1` "
                "to each model that needs one",
                n_gpus,
            )
        for model in self.plan.models:
            if reason := self._why_no_place(model.key):
                logger.warning(reason)
