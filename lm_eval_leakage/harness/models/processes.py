"""Coordination between the processes of a run (data parallel and tensor parallel).

In a data-parallel run, the harness divides the questions among processes with different ranks. In a tensor-parallel
run, all processes hold parts of one model, have rank 0 of 1, and must make the same requests in the same batches; here
they are called replicas.

`RankedHF` is the harness's `hf` on several processes: any devices, any number of nodes.
"""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
# How long to wait for a process of the same model that computes the same at the same time, where it may have failed
# in another way than this one: its connection is alive.
PATIENCE = timedelta(seconds=30)


def are_replicas(lm: Any) -> bool:
    """Return whether the processes of this run hold parts of one model, and so must make the same requests."""
    return n_processes() > 1 and lm.world_size == 1


def warn_of_repeated_work(lm: Any) -> None:
    """Warn if each process of the run does all of its work, as `hf` lets them outside of several GPUs."""
    parts = getattr(getattr(lm, "model", None), "tp_size", None) or 1
    if are_replicas(lm) and parts == 1 and is_first():
        logger.warning(
            "each of the %d processes does all of the work, since this model's backend has not shared the questions "
            "among them (`hf` does so only on several GPUs of one node): use the model hf-prefix-tree, which shares "
            "them on any device, or one process",
            n_processes(),
        )


def refuse_wrong_rank(rank: int, world_size: int) -> None:
    """Raise ValueError if the harness numbers the processes of each node from 0: it would test some questions twice
    and others never, and crash when it gathers the results."""
    if world_size > 1 and n_processes() == world_size and process_number() != rank:
        raise ValueError(
            f"this process is number {process_number()} of {world_size}, but the model says {rank}: its backend "
            "numbers the processes of each node from 0, and the run would crash after all its work; use the model "
            "hf-prefix-tree, or a single node"
        )


def is_first() -> bool:
    """Return whether this is the first of all processes, which does what must be done only once."""
    return process_number() == 0


def n_processes() -> int:
    """Return the number of processes of the run."""
    distributed = _distributed()
    is_set_up = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if is_set_up else 1


def process_number() -> int:
    """Return the number of this process among all processes of the run."""
    return int(_distributed().get_rank()) if n_processes() > 1 else 0


def of_every(value: T, in_step: bool = False) -> list[T]:
    """Return the value of each process of the run; all must call it.

    If they are `in_step`, RuntimeError if others have not called it within PATIENCE, for example because only this
    process has run out of memory; all others then end too.
    """
    if n_processes() == 1:
        return [value]
    every: list[T] = [value] * n_processes()
    distributed = _distributed()
    try:
        distributed.all_gather_object(every, value, group=_side_groups(distributed.group.WORLD)[in_step])
    except RuntimeError as error:
        if not in_step:
            raise
        raise RuntimeError(
            "the processes of this model no longer compute the same: another one did not come to an agreement, for "
            "example because only one of them has run out of memory; run again with a lower max_tokens (answers are "
            "kept if the run has an output path)"
        ) from error
    return every


@cache
def _side_groups(_: Any) -> tuple[Any, Any]:
    """Return process groups on the CPU, so that our messages do not interfere with those of the model's layers.

    The second one loses patience.
    """
    distributed = _distributed()
    return distributed.new_group(backend="gloo"), distributed.new_group(backend="gloo", timeout=PATIENCE)


def _distributed() -> Any:
    return sys.modules.get("torch.distributed")
