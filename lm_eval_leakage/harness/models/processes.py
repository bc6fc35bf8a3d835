"""Coordination between the processes of a run (data parallel and tensor parallel).

In a data-parallel run, the harness divides the questions among processes with different ranks. In a tensor-parallel
run, all processes hold parts of one model, have rank 0 of 1, and must make the same requests in the same batches; here
they are called replicas.

`RankedHF` is the harness's `hf` on several processes: any devices, any number of nodes.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, wraps
from hashlib import blake2b
from typing import Any, TypeVar

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from torch import distributed

logger = logging.getLogger(__name__)
T = TypeVar("T")
# How long to wait for a process of the same model that computes the same at the same time, where it may have failed
# in another way than this one: its connection is alive.
PATIENCE = timedelta(seconds=30)


def are_replicas(lm: Any) -> bool:
    """Whether the processes of this run hold parts of one model, and so must make the same requests."""
    return n_processes() > 1 and lm.world_size == 1


def warn_of_repeated_work(lm: Any) -> None:
    """If each process of the run does all of its work, as the harness's `hf` lets them outside of several GPUs."""
    parts = getattr(getattr(lm, "model", None), "tp_size", None) or 1
    if are_replicas(lm) and parts == 1 and is_first():
        logger.warning(
            "each of the %d processes does all of the work, since this model's backend has not shared the questions "
            "among them (`hf` does so only on several GPUs of one node): use the model hf-prefix-tree, which shares "
            "them on any device, or one process",
            n_processes(),
        )


def refuse_wrong_rank(rank: int, world_size: int) -> None:
    """Raises ValueError if the harness numbers the processes of each node from 0: it would test some questions twice
    and others never, and crash when it gathers the results."""
    if world_size > 1 and n_processes() == world_size and distributed.get_rank() != rank:
        raise ValueError(
            f"this process is number {distributed.get_rank()} of {world_size}, but the model says {rank}: its backend "
            "numbers the processes of each node from 0, and the run would crash after all its work; use the model "
            "hf-prefix-tree, or a single node"
        )


def is_first() -> bool:
    """Whether this is the first of all processes, which does what must be done only once."""
    return process_number() == 0


def asked_by_any(requests: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """What any process was asked, in the same order in all of them, and as often as by the one that was asked it most
    often; None if all were asked the same, in the same order. All must call it."""
    digest = blake2b()
    for request in requests:
        digest.update(f"{request!r}\n".encode("utf-8", "surrogatepass"))
    if len({*of_every(digest.digest())}) == 1:
        return None
    most: Counter[str] = Counter()
    known: dict[str, tuple[Any, ...]] = {}
    for own in of_every(list(requests)):
        known.update((repr(request), request) for request in own)
        most |= Counter(map(repr, own))
    return [known[name] for name in most.elements()]


def n_processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def process_number() -> int:
    """Among all processes of the run."""
    return distributed.get_rank() if n_processes() > 1 else 0


def of_every(value: T, in_step: bool = False) -> list[T]:
    """The value of each process of the run; all must call it. If they are `in_step`, RuntimeError if others have not
    called it within PATIENCE, for example because only this process has run out of memory; all others then end too."""
    if n_processes() == 1:
        return [value]
    every: list[T] = [value] * n_processes()
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
    """Process groups on the CPU, so that our messages do not interfere with those of the model's layers; the second
    one loses patience."""
    return distributed.new_group(backend="gloo"), distributed.new_group(backend="gloo", timeout=PATIENCE)


LOCAL_RANK = os.environ.get("LOCAL_RANK")  # as the launcher set it
Asking = Callable[..., list[Any]]


def together(asking: Asking) -> Asking:
    """For a method that answers requests: all processes that hold one model are asked the same ones, those that any
    of them was asked, for example because each has its own response cache."""

    @wraps(asking)
    def ask(self: RankedHF, requests: Sequence[Instance], *args: Any, **kwargs: Any) -> list[Any]:
        with self.working():
            everything = asked_by_any([request.args for request in requests]) if self.is_replica else None
            if everything is None:
                return asking(self, requests, *args, **kwargs)
            method = asking.__name__
            instances = [Instance(method, {}, each, place) for place, each in enumerate(everything)]
            answers: dict[str, list[Any]] = {}
            for each, answer in zip(everything, asking(self, instances, *args, **kwargs), strict=True):
                answers.setdefault(repr(each), []).append(answer)
            return [answers[repr(request.args)].pop(0) for request in requests]

    return ask


class RankedHF(HFLM):  # type: ignore[misc]
    """`hf`, but each process of a data-parallel run has its share of the questions on any device, whereas `hf` shares
    them only among several GPUs of one node, and does all of the work in every process elsewhere.

    is_replica: whether other processes hold parts of this model, so that all must make the same calls. All methods
        that communicate are called from the main thread, in the same order in every process.
    """

    _among: tuple[int, int] | None = None  # rank and number of ranks, once accelerate knows them
    _n_calls = 0  # that are not complete

    def __init__(self, pretrained: Any, *args: Any, **kwargs: Any) -> None:
        if LOCAL_RANK is not None:
            os.environ["LOCAL_RANK"] = LOCAL_RANK
        n_started = int(os.environ.get("WORLD_SIZE", 1))
        # objects are evaluated by whoever made them, perhaps in one process only
        if isinstance(pretrained, str) and n_started > 1 and not torch.accelerator.is_available():
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")  # else accelerate sees processes with GPUs only
        super().__init__(pretrained, *args, **kwargs)
        accelerator = getattr(self, "accelerator", None)
        if accelerator is not None:
            self._among = accelerator.process_index, accelerator.num_processes
        self.is_replica = are_replicas(self)
        if self.is_replica and process_number():
            # The harness would take the first process of every node for the one that saves results.
            os.environ["LOCAL_RANK"] = str(process_number())

    @property
    def rank(self) -> int:
        """Over all nodes; that of `hf` starts at 0 on each."""
        return int(super().rank) if self._among is None else self._among[0]

    @property
    def world_size(self) -> int:
        """1 while this process computes, which it does without the others."""
        if self._among is None:
            return int(super().world_size)
        return 1 if self._n_calls else self._among[1]

    @contextmanager
    def working(self) -> Iterator[None]:
        self._n_calls += 1
        try:
            yield
        finally:
            self._n_calls -= 1

    loglikelihood_rolling = together(HFLM.loglikelihood_rolling)
    generate_until = together(HFLM.generate_until)
