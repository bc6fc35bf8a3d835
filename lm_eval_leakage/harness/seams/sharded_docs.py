"""Patches Task to ask only a shard of the questions that a run would ask: `--metadata shard=i/n`.

The shard is taken from what one process would ask with the run's limit or samples, and is then divided among the
processes. Its questions have the few-shot examples that they have in a whole run in one process. An option of lm_eval
to ask every n-th document would replace this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import SimpleNamespace
from typing import Any

from lm_eval_leakage.harness.seams.patching import Refusal, hide_tracebacks, patched_once
from lm_eval_leakage.harness.seams.results import on_next_results
from lm_eval_leakage.logs.run import OF_ALL_SHARDS, SHARD, RunShard

logger = logging.getLogger(__name__)
TASK_CLASS = "lm_eval.api.task:Task"
DRAWING = ("sampler", "fewshot_rnd")  # attributes of tasks that draw a question's examples, by a method `sample`


def ask_shard(task: Any, shard: RunShard) -> None:
    """Makes a task ask only a shard of its questions, and record which."""
    hide_tracebacks()
    task.config.metadata = (task.config.metadata or {}) | {SHARD: str(shard)}
    patched_once(f"{TASK_CLASS}.doc_iterator", partial(_docs_of_shard, shard), task)
    patched_once(f"{TASK_CLASS}.build_all_requests", partial(_requests_of_shard, task, shard), task)


def all_docs(task: Any, limit: int | None, samples: list[int] | None) -> Iterator[tuple[int, Any]]:
    """What all shards of a run ask together."""
    found: Iterator[tuple[int, Any]] = type(task).doc_iterator(
        task, rank=0, limit=limit, world_size=1, samples=samples
    )
    return found


def _docs_of_shard(shard: RunShard, original: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def doc_iterator(
        *, rank: int = 0, limit: int | None = None, world_size: int = 1, samples: list[int] | None = None
    ) -> Iterator[Any]:
        every = original(rank=0, limit=limit, world_size=1, samples=samples)
        return _share(every, shard, int(rank), int(world_size))

    return doc_iterator


def _share(every: Iterable[Any], shard: RunShard, rank: int, world_size: int) -> Iterator[Any]:
    """What one process asks of a shard."""
    return islice(every, shard.index + shard.n * rank, None, shard.n * world_size)


def _requests_of_shard(task: Any, shard: RunShard, original: Callable[..., None]) -> Callable[..., None]:
    def build_all_requests(
        *,
        limit: int | None = None,
        samples: list[int] | None = None,
        rank: int = 0,
        world_size: int = 1,
        cache_requests: bool = False,
        rewrite_requests_cache: bool = False,
        **further: Any,
    ) -> None:
        if cache_requests or rewrite_requests_cache:
            logger.warning("%s: --cache_requests is ignored, since the cache ignores shards", task.config.task)
        on_next_results(_tell)
        n_questions = len(set(samples)) if samples else min(len(task.eval_docs), int(limit or len(task.eval_docs)))
        task.config.metadata[OF_ALL_SHARDS] = n_questions
        if _is_empty(task, shard, n_questions, world_size):
            task._instances, task._filters = _NoRequests(), []
            return
        with _examples_in_turn(task, shard, rank, world_size, partial(all_docs, task, limit, samples)):
            original(limit=limit, samples=samples, rank=rank, world_size=world_size, **further)

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


def _tell(results: dict[str, Any]) -> None:
    """Says of what the tables of a shard are."""
    counts, n_questions, shards = results["n-samples"], 0, dict[str, int]()
    for task, config in results["configs"].items():
        metadata = config.get("metadata") or {}
        if OF_ALL_SHARDS in metadata:
            n_questions += metadata[OF_ALL_SHARDS]
            shards[metadata[SHARD]] = shards.get(metadata[SHARD], 0) + counts[task]["effective"]
    for shard, n_own in shards.items():
        logger.warning(
            "this run is shard %s: its tables are of %d of %d questions; `lm-eval-leakage annotate` pools all shards",
            shard,
            n_own,
            n_questions,
        )


class _NoRequests(list[Any]):
    """`evaluate` asks the first request of a task for the names of its filters; without requests there are none."""

    def __getitem__(self, place: Any) -> Any:
        return SimpleNamespace(filtered_resps={})


# ---------------------------------------------------------------------- few-shot examples


@contextmanager
def _examples_in_turn(
    task: Any, shard: RunShard, rank: int, world_size: int, every: Callable[[], Iterator[tuple[int, Any]]]
) -> Iterator[None]:
    """Examples are drawn question by question from one generator, so within the block they are also drawn for the
    questions that are not asked here, each in its turn.

    every: gives the questions of all shards, with their numbers; called if examples are drawn
    """
    before = {name: drawing for name in DRAWING if (drawing := getattr(task, name, None)) is not None}
    for name, drawing in before.items():
        setattr(task, name, _InTurn(drawing, _skipped(every, shard, rank, world_size)))
    try:
        yield
    finally:
        for name, drawing in before.items():
            setattr(task, name, drawing)


def _skipped(
    every: Callable[[], Iterator[tuple[int, Any]]], shard: RunShard, rank: int, world_size: int
) -> Iterator[list[Any]]:
    """Before each question that this process asks: those that it does not ask."""
    docs = (doc for _, doc in every())
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
