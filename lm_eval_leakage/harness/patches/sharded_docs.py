"""Patches Task to ask only a shard of the questions that a run would ask: `--metadata shard=i/n`.

The shard is taken from what one process would ask with the run's limit or samples, and is then divided among the
processes. Its questions have the few-shot examples that they have in a whole run in one process. An option of lm_eval
to ask every n-th document would replace this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any

from lm_eval_leakage.harness.patches.exception_hook import Refusal, hide_tracebacks
from lm_eval_leakage.harness.patches.patching import patched_once
from lm_eval_leakage.logs.run_shard import OF_ALL_SHARDS, SHARD, RunShard, shard_in

logger = logging.getLogger(__name__)
TASK = "lm_eval.api.task:Task"
DRAWS = ("sampler", "fewshot_rnd")  # attributes of tasks that draw a question's examples, by a method `sample`


def ask_shards() -> None:
    """Makes all tasks whose `metadata` has a shard ask only that shard."""
    hide_tracebacks()
    patched_once(f"{TASK}.doc_iterator", _docs_of_shard)
    patched_once(f"{TASK}.build_all_requests", _requests_of_shard)


def shard_of(task: Any) -> RunShard | None:
    """The shard that a task asks; None if it asks all questions."""
    return shard_in(task.config.metadata)


@contextmanager
def all_shards(task: Any) -> Iterator[None]:
    """Within the block, the task's iterator gives the questions of all shards."""
    metadata = task.config.metadata or {}
    kept = metadata.pop(SHARD, None)
    try:
        yield
    finally:
        if kept is not None:
            metadata[SHARD] = kept


def n_asked(task: Any, limit: int | None, samples: Sequence[int] | None) -> int:
    """How many questions all shards of a run ask together."""
    every = len(task.eval_docs)
    return len(set(samples)) if samples else min(every, int(limit or every))


def _docs_of_shard(original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def doc_iterator(
        self: Any,
        *,
        rank: int = 0,
        limit: int | None = None,
        world_size: int = 1,
        samples: list[int] | None = None,
    ) -> Iterator[Any]:
        shard = shard_of(self)
        if shard is None:
            return original(self, rank=rank, limit=limit, world_size=world_size, samples=samples)
        every = original(self, rank=0, limit=limit, world_size=1, samples=samples)
        return _share(every, shard, int(rank), int(world_size))

    return doc_iterator


def _share(every: Iterable[Any], shard: RunShard, rank: int, world_size: int) -> Iterator[Any]:
    """What one process asks of a shard."""
    return islice(every, shard.index + shard.n * rank, None, shard.n * world_size)


def _requests_of_shard(original: Callable[..., None]) -> Callable[..., None]:
    def build_all_requests(
        self: Any,
        *,
        limit: int | None = None,
        samples: list[int] | None = None,
        rank: int = 0,
        world_size: int = 1,
        cache_requests: bool = False,
        rewrite_requests_cache: bool = False,
        **further: Any,
    ) -> None:
        asked = {"limit": limit, "samples": samples, "rank": rank, "world_size": world_size, **further}
        shard = shard_of(self)
        if shard is None:
            original(self, cache_requests=cache_requests, rewrite_requests_cache=rewrite_requests_cache, **asked)
            return
        if cache_requests or rewrite_requests_cache:
            logger.warning("%s: --cache_requests is ignored, since the cache ignores shards", self.config.task)
        self.config.metadata[OF_ALL_SHARDS] = every = n_asked(self, limit, samples)
        if _is_empty(self, shard, every, world_size):
            self._instances, self._filters = _NoRequests(), []
            return
        with _examples_in_turn(self, shard, rank, world_size, limit, samples):
            original(self, **asked)

    return build_all_requests


def _is_empty(task: Any, shard: RunShard, n_questions: int, world_size: int) -> bool:
    """Raises Refusal if some of the processes would have no question, but others would: the harness cannot do that."""
    n_own = shard.n_own(n_questions)
    if not n_own:
        logger.warning(
            "%s: shard %s has none of the run's %d questions; nothing is asked", task.config.task, shard, n_questions
        )
    elif n_own < world_size:
        raise Refusal(
            f"{task.config.task}: shard {shard} has {n_own} of the run's {n_questions} questions for {world_size} "
            "processes; the harness needs at least one per process, so make fewer shards or start fewer processes"
        )
    return not n_own


class _NoRequests(list[Any]):
    """`evaluate` asks the first request of a task for the names of its filters; without requests there are none."""

    def __getitem__(self, place: Any) -> Any:
        return SimpleNamespace(filtered_resps={})


# ---------------------------------------------------------------------- few-shot examples


@contextmanager
def _examples_in_turn(
    task: Any, shard: RunShard, rank: int, world_size: int, limit: int | None, samples: list[int] | None
) -> Iterator[None]:
    """Examples are drawn question by question from one generator, so within the block they are also drawn for the
    questions that are not asked here, each in its turn."""
    before = {name: drawing for name in DRAWS if (drawing := getattr(task, name, None)) is not None}
    for name, drawing in before.items():
        every = _every_doc(task, limit, samples)
        setattr(task, name, _InTurn(drawing, _skipped(every, shard, rank, world_size)))
    try:
        yield
    finally:
        for name, drawing in before.items():
            setattr(task, name, drawing)


def _every_doc(task: Any, limit: int | None, samples: list[int] | None) -> Iterator[Any]:
    with all_shards(task):
        every = task.doc_iterator(rank=0, limit=limit, world_size=1, samples=samples)
    yield from (doc for _, doc in every)


def _skipped(every: Iterable[Any], shard: RunShard, rank: int, world_size: int) -> Iterator[list[Any]]:
    """Before each question that this process asks: those that it does not ask."""
    docs = iter(every)
    first, step = shard.index + shard.n * rank, shard.n * world_size
    n_before = first
    while True:
        yield list(islice(docs, n_before))
        next(docs, None)
        n_before = step - 1


class _InTurn:
    """Draws like `drawing`, after it has drawn for the questions before."""

    def __init__(self, drawing: Any, skipped: Iterator[list[Any]]) -> None:
        self._drawing, self._skipped = drawing, skipped

    def sample(self, *arguments: Any, **named: Any) -> Any:
        for doc in next(self._skipped):
            instead = {} if named.get("eval_doc") is None else {"eval_doc": doc}
            self._drawing.sample(*arguments, **named | instead)
        return self._drawing.sample(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drawing, name)
