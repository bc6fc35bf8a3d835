"""Coordination between the processes of a run (data parallel and tensor parallel).

In a data-parallel run, the harness divides the questions among processes with different ranks. In a tensor-parallel
run, all processes hold parts of one model, have rank 0 of 1, and must make the same requests in the same batches; here
they are called replicas.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")
PATIENCE = timedelta(seconds=60)  # how long to wait for a process that does not reach the point of agreement


def on_all(found: bool) -> bool:
    """Whether `found` is true in every process of the run; all must call it."""
    return all(_of_every(found))


def are_replicas(lm: Any) -> bool:
    """Whether the processes of this run hold parts of one model, and so must make the same requests."""
    return _n_processes() > 1 and lm.world_size == 1


def refuse_wrong_rank(rank: int, world_size: int) -> None:
    """Raises ValueError if the harness numbers the processes of each node from 0: it would test some questions twice
    and others never, and crash when it gathers the results."""
    if world_size > 1 and _n_processes() == world_size and distributed.get_rank() != rank:
        raise ValueError(
            f"this process is number {distributed.get_rank()} of {world_size}, but the model says {rank}: its backend "
            "numbers the processes of each node from 0, and the run would crash after all its work; use the model "
            "hf-prefix-tree, or a single node"
        )


def is_first() -> bool:
    """Whether this is the first of all processes, which does what must be done only once."""
    return _n_processes() == 1 or distributed.get_rank() == 0


def from_first(value: T) -> T:
    """The first process's value, on every process."""
    if _n_processes() == 1:
        return value
    told: list[Any] = [value]
    distributed.broadcast_object_list(told, src=0, group=_side_group())
    return told[0]  # type: ignore[no-any-return]


def least_of_all(value: int) -> int:
    """The smallest value of any process; all must call it. Raises RuntimeError after PATIENCE if another process does
    not, for example because only that one has run out of memory; the launcher then ends them all."""
    if _n_processes() == 1:
        return value
    try:
        distributed.monitored_barrier(group=_side_group(), timeout=PATIENCE)
    except RuntimeError as error:
        raise RuntimeError(
            "another process of this model did not join to agree on max_tokens, so it has failed or is still "
            "computing; run again with a lower max_tokens (answers are kept if the run has an output path)"
        ) from error
    told = torch.tensor(value)
    distributed.all_reduce(told, distributed.ReduceOp.MIN, group=_side_group())
    return int(told)


def most_of_all(lm: Any, value: int) -> int:
    """The largest value of all ranks of a run, gathered by the model's own methods."""
    if lm.world_size == 1:
        return value
    gathered = lm.all_gather(torch.tensor(value, device=lm.device))
    return int(gathered.max())


def all_equal(value: object) -> bool:
    """Whether every process has the same value."""
    first, *others = _of_every(value)
    return all(other == first for other in others)


def _n_processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _of_every(value: T) -> list[T]:
    n_processes = _n_processes()
    if n_processes == 1:
        return [value]
    every: list[T] = [value] * n_processes
    distributed.all_gather_object(every, value, group=_side_group())
    return every


def _side_group() -> Any:
    """A process group on the CPU, so that our messages do not interfere with those of the model's layers."""
    return _side_group_of(distributed.group.WORLD)


@cache
def _side_group_of(_: Any) -> Any:
    return distributed.new_group(backend="gloo")
