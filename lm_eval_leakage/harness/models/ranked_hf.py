"""The harness's `hf` on several processes: any devices, any number of nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from lm_eval_leakage.harness.models.lifeline import Lifeline
from lm_eval_leakage.harness.models.processes import are_replicas, asked_by_any, joined, process_number

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

    def __init__(self, pretrained: Any, *args: Any, **kwargs: Any) -> None:
        if LOCAL_RANK is not None:
            os.environ["LOCAL_RANK"] = LOCAL_RANK
        # objects are evaluated by whoever made them, perhaps in one process only
        self._lifeline = joined() if isinstance(pretrained, str) else Lifeline()
        if self._lifeline.n_processes > 1 and not torch.accelerator.is_available():
            os.environ.setdefault("ACCELERATE_USE_CPU", "true")  # else accelerate sees processes with GPUs only
        super().__init__(pretrained, *args, **kwargs)
        accelerator = getattr(self, "accelerator", None)
        if accelerator is not None:
            self._rank, self._world_size = accelerator.process_index, accelerator.num_processes
        self.is_replica = are_replicas(self)
        self._n_calls = 0  # that are not complete
        if self.is_replica and process_number():
            # The harness would take the first process of every node for the one that saves results.
            os.environ["LOCAL_RANK"] = str(process_number())

    @contextmanager
    def working(self) -> Iterator[None]:
        """While this process computes. In a data-parallel run it does so without the others, whatever they compute
        meanwhile, but its round lasts until all have gathered their results."""
        begin = self._lifeline.wait if self.is_replica else self._lifeline.work
        begin()
        self._n_calls += 1
        n_ranks, self._world_size = self._world_size, 1
        try:
            yield
        finally:
            self._world_size = n_ranks
            self._n_calls -= 1
        if self.is_replica and not self._n_calls:  # not after an error: the others need this process's part
            self._lifeline.rest()

    def _model_call(self, *args: Any, **kwargs: Any) -> Any:
        with self.working():
            return super()._model_call(*args, **kwargs)

    loglikelihood_rolling = together(HFLM.loglikelihood_rolling)
    generate_until = together(HFLM.generate_until)

    def all_gather(self, tensor: Any) -> Any:
        with self._waiting():
            return super().all_gather(tensor)

    def barrier(self) -> None:
        with self._waiting():
            super().barrier()

    def gather_object(self, obj: Any, dst: int = 0) -> Any:
        """The last that the processes of a data-parallel run do together."""
        with self._waiting():
            gathered = super().gather_object(obj, dst)
        if self.world_size > 1:
            self._lifeline.rest()
        return gathered

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self.world_size == 1:
            yield
            return
        self._lifeline.wait()
        yield
        self._lifeline.work()
