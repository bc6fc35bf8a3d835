"""Reads YAML files of tasks with lm_eval's private loader.

Patches lm_eval's Jinja environment once rows are read, so that a template is compiled once instead of per row.

A task's `doc_to_text` compiles its template at every call; a cache in lm_eval's `apply_template` would replace this.

Wraps ConfigurableTask.process_results, by which lm_eval scores one question, to leave a question out.

A backend that may say that it has no answer to a request would replace this.

Replaces a task manager's index and factory, so that `<any task>_leakage_perm` is found by name: a task manager, the
members of a group and the command line's check all read this one mapping. An entry-point group for functions from name
to task would replace this.

Patches Task to ask only a shard of the questions that a run would ask: `--metadata shard=i/n`.

The shard is taken from what one process would ask with the run's limit or samples, and is then divided among the
processes. Its questions have the few-shot examples that they have in a whole run in one process: as examples are drawn
question by question from one generator, the requests of the whole run are built and those of other shards are dropped.
An option of lm_eval to ask every n-th document would replace this.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lm_eval.tasks._factory import TaskFactory

from lm_eval_leakage.harness.seams.evaluation import on_next_results
from lm_eval_leakage.harness.seams.patching import Refusal, found, hide_tracebacks, patched_once
from lm_eval_leakage.logs.run import OF_ALL_SHARDS, SHARD, RunShard

LOADER = "lm_eval.tasks._yaml_loader"


def task_settings(file: Path | str) -> dict[str, Any]:
    """A task's settings, with its includes resolved and its functions imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=True))


def own_settings(file: Path | str, includes: bool = False) -> dict[str, Any]:
    """What a YAML itself says, without its includes, whose names are under `include`, or with them. Its functions are
    not imported."""
    return dict(found(f"{LOADER}:load_yaml")(file, resolve_func=False, recursive=includes))


@cache
def compile_templates_once() -> None:
    """From now on, a template is compiled once; the harness compiles it per row, which takes longer than the rest of
    reading it."""
    if (env := found("lm_eval.utils:env")) is not None:
        env.from_string = lru_cache(maxsize=64)(env.from_string)


SCORED = "lm_eval.api.task:ConfigurableTask.process_results"


def leave_out(unscored: Callable[[Any, Sequence[Any]], bool]) -> None:
    """A question for which `unscored(task, results)` holds has no metrics, so that none of lm_eval's averages counts
    it; its line in the samples log names none."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_results(self: Any, doc: Any, results: Any) -> Any:
            return {} if unscored(self, results) else original(self, doc, results)

        return process_results

    patched_once(SCORED, wrap)


AUDITED_KEPT = 8
Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags
Overrides = Mapping[str, Any]


def kind_of(entry: Entry) -> str:
    """TASK, PY_TASK, GROUP or TAG."""
    return str(entry.kind.name)


class Factory(TaskFactory):  # type: ignore[misc]
    """Builds tasks by `make`, which gets the factory, an entry and overrides.

    metadata: of the run
    audited: what a name denotes that is audited, built once for several audits of it
    """

    def __init__(self, metadata: Mapping[str, Any] | None, make: Callable[[Factory, Entry, Overrides], Any]) -> None:
        super().__init__(meta=metadata)
        self.make, self.metadata = make, self._meta
        self.registry: Any = {}  # the index of the task manager
        self.audited = lru_cache(AUDITED_KEPT)(lambda name: self.of_harness(self.registry[name], {}))

    def build(self, entry: Entry, *, overrides: Overrides | None = None, registry: dict[str, Entry]) -> Any:
        self.registry = registry
        return self.make(self, entry, overrides or {})

    def of_harness(self, entry: Entry, overrides: Overrides) -> Any:
        """As lm_eval builds it."""
        return super().build(entry, overrides=overrides, registry=self.registry)


def extend(manager: Any, index: Callable[[Mapping[str, Entry]], dict[str, Entry]], make: Callable[..., Any]) -> None:
    """Gives a task manager another index, made from its own, and another way to build tasks."""
    manager._index, manager._factory = index(manager._index), Factory(manager.metadata, make)


def with_metadata(manager: Any, metadata: Mapping[str, Any]) -> Any:
    """A task manager with the same index, which takes 11 seconds to build, for tasks with other metadata."""
    other = copy.copy(manager)
    other.metadata, other._factory = dict(metadata), Factory(metadata, manager._factory.make)
    return other


# ---------------------------------------------------------------------- shards

logger = logging.getLogger(__name__)
TASK_CLASS = "lm_eval.api.task:Task"


def ask_shard(task: Any, shard: RunShard) -> None:
    """Makes a task ask only a shard of its questions, and record which."""
    hide_tracebacks()
    task.config.metadata = (task.config.metadata or {}) | {SHARD: str(shard)}
    whole = task.doc_iterator
    patched_once(f"{TASK_CLASS}.doc_iterator", partial(_docs_of_shard, shard), task)
    patched_once(f"{TASK_CLASS}.build_all_requests", partial(_requests_of_shard, task, shard, whole), task)


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
        return islice(every, shard.index + shard.n * int(rank), None, shard.n * int(world_size))

    return doc_iterator


def _requests_of_shard(
    task: Any, shard: RunShard, whole: Callable[..., Iterator[Any]], original: Callable[..., None]
) -> Callable[..., None]:
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
        if not task.config.num_fewshot:
            original(limit=limit, samples=samples, rank=rank, world_size=world_size, **further)
            return
        of_shard = task.doc_iterator
        own = {number for number, _ in of_shard(rank=rank, limit=limit, world_size=world_size, samples=samples)}
        task.doc_iterator = whole
        try:
            original(limit=limit, samples=samples, **further)
        finally:
            task.doc_iterator = of_shard
        task._instances = [instance for instance in task._instances if instance.doc_id in own]

    return build_all_requests


def _is_empty(task: Any, shard: RunShard, n_questions: int, world_size: int) -> bool:
    """Raises Refusal if some of the processes would have no question, but others would: the harness cannot do that."""
    n_own = shard.n_own(n_questions)
    if 0 < n_own < world_size:
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
