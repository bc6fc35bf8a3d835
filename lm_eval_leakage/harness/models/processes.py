"""What the processes of one run must do alike.

The harness parts the questions among processes with a rank of their own (data parallel). Processes that hold parts of
one model (tensor parallel) all have rank 0 of 1 and must ask the same requests in the same batches: here they are
called replicas.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
from torch import distributed

T = TypeVar("T")
PATIENCE = timedelta(seconds=60)  # for a process that does not come to where the others are


def on_all(found: bool) -> bool:
    """Whether every process of the run found it; each must ask. The harness parts the questions among them."""
    return all(_of_every(found))


def are_replicas(lm: Any) -> bool:
    """Whether the processes of this run hold parts of one model, and so must be asked the same."""
    return _n_processes() > 1 and lm.world_size == 1


def refuse_wrong_rank(rank: int, world_size: int) -> None:
    """Raises ValueError where the harness numbers the processes of each node from 0: it would ask some questions twice
    and others never, and crash when it gathers the answers."""
    if world_size > 1 and _n_processes() == world_size and distributed.get_rank() != rank:
        raise ValueError(
            f"this process is number {distributed.get_rank()} of {world_size}, but the model says {rank}: its backend "
            "numbers the processes of each node from 0, and the run would crash after all its work; use the model "
            "hf-prefix-tree, or the processes of one node"
        )


def is_first() -> bool:
    """Whether this is the first of all processes, which does what must be done once."""
    return _n_processes() == 1 or distributed.get_rank() == 0


def from_first(value: T) -> T:
    """The first process's value, on every process."""
    if _n_processes() == 1:
        return value
    told: list[Any] = [value]
    distributed.broadcast_object_list(told, src=0, group=_side_group())
    return told[0]  # type: ignore[no-any-return]


def least_of_all(value: int) -> int:
    """The least value of any process. Raises RuntimeError within PATIENCE where another process does not ask, as
    when it alone has run out of memory: the launcher then ends them all."""
    if _n_processes() == 1:
        return value
    try:
        distributed.monitored_barrier(group=_side_group(), timeout=PATIENCE)
    except RuntimeError as error:
        raise RuntimeError(
            "another process of this model did not come to agree on max_tokens, so it has failed or still computes; "
            "start the run again with a lower max_tokens: what was answered is kept where the run has an output path"
        ) from error
    told = torch.tensor(value)
    distributed.all_reduce(told, distributed.ReduceOp.MIN, group=_side_group())
    return int(told)


def most_of_all(lm: Any, value: int) -> int:
    """The greatest value of the ranks of a run, by the model's own means."""
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
    """A group of all processes on the CPU, whose messages never meet those of a model's own layers."""
    return _side_group_of(distributed.group.WORLD)


@cache
def _side_group_of(_: Any) -> Any:
    return distributed.new_group(backend="gloo")
