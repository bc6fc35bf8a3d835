"""A Ray cluster, or a Ray of this machine's own: how it is reached, and why it has lost something."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from lm_eval_leakage.texts import in_one_sentence, shortened

OF_OUR_OWN = "local"  # Ray's word for a Ray of this process's own
STORE = 128 * 2**20  # bytes of a local Ray's object store; little is sent
REACH_S = 10.0  # within which the cluster's address has to accept a connection
ADVICE = "Some common causes include"  # in Ray's report of a dead actor

logger = logging.getLogger(__name__)


@contextmanager
def connected(address: str | None) -> Iterator[bool]:
    """Connect to Ray within the block.

    It is the cluster at `address`, else at RAY_ADDRESS, else one on this machine that ends with the block. Yields
    whether it is this machine's own. Workers print into Ray's log files, not here.

    Raises ValueError if the address cannot be used.
    """
    import ray

    place = address or os.environ.get("RAY_ADDRESS") or OF_OUR_OWN
    if place.startswith("ray://"):
        raise ValueError(
            f"the address {place!r} is for Ray Client, which campaigns cannot use, since their folder has to be here "
            "and on all nodes; run this command on a node of the cluster, with --address auto"
        )
    options = {"object_store_memory": STORE} if place == OF_OUR_OWN else {}
    try:
        check_reachable(place)
        context = ray.init(place, log_to_driver=False, logging_level=logging.ERROR, **options)
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


def check_reachable(place: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT, which Ray takes minutes to report."""
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()


def head_address() -> str:
    """Return where the cluster's head accepts connections, as HOST:PORT."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def cause_of(error: BaseException) -> str:
    """Return why a worker did not answer: the error that it raised, or the end of Ray's report without its advice."""
    inner = getattr(error, "cause", None)
    if isinstance(inner, BaseException):
        return in_one_sentence(inner)
    return shortened(_lines(error)[-1].partition(ADVICE)[0].strip())


def _lines(error: BaseException) -> list[str]:
    return [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
