"""A Ray cluster as a campaign needs it: connected to, or started for the campaign; nodes that all see its folder."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import lm_eval_leakage
from lm_eval_leakage.files import atomic_write

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
