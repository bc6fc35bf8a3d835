"""The harness's `hf` on several processes: any devices, any number of nodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from hashlib import blake2b
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.processes import are_replicas, of_every, process_number

LOCAL_RANK = os.environ.get("LOCAL_RANK")  # as the launcher set it
Asking = Callable[..., list[Any]]


def asked_by_any(requests: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]] | None:
    """Return what any process was asked, in the same order in all of them; None if all were asked the same, in order.

    A request that is repeated comes as often as in the process where it comes most often. All must call it.
    """
    digest = blake2b()
    for request in requests:
        digest.update(f"{request!r}\n".encode("utf-8", "surrogatepass"))
    if len({*of_every(digest.digest())}) == 1:
        return None
    most: Counter[str] = Counter()
    by_name: dict[str, tuple[Any, ...]] = {}
    for of_process in of_every(list(requests)):
        by_name.update((repr(request), request) for request in of_process)
        most |= Counter(map(repr, of_process))
    return [by_name[name] for name in most.elements()]


def in_step(asking: Asking) -> Asking:
    """Return a method that answers requests in step: all processes that hold one model are asked the same ones.

    These are the ones that any of them was asked, for example because each has its own response cache.
    """

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
    """The `hf` of a data-parallel run in which each process has its share of the questions on any device, whereas `hf`
    shares them only among several GPUs of one node, and does all of the work in every process elsewhere.

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
        """The rank over all nodes; that of `hf` starts at 0 on each."""
        return int(super().rank) if self._among is None else self._among[0]

    @property
    def world_size(self) -> int:
        """The number of processes; 1 while this process computes, which it does without the others."""
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

    loglikelihood_rolling = in_step(HFLM.loglikelihood_rolling)
    generate_until = in_step(HFLM.generate_until)
