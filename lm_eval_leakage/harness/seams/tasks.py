"""Changes how lm_eval reads, builds, renders and scores tasks.

- YAML files of tasks are read with lm_eval's private loader.
- Its Jinja environment gets a cache once rows are read: `doc_to_text` compiles its template at every call. A cache in
  lm_eval's `apply_template` would replace this.
- `ConfigurableTask.process_results`, which scores one question, is wrapped to leave a question out. A backend that may
  say that it has no answer to a request would replace this.
- A task manager's index and factory are replaced, so that `<any task>_leakage_perm` is found by name: a task manager,
  the members of a group and the command line's check all read this one mapping. An entry-point group for functions
  from name to task would replace this.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from lm_eval.tasks._factory import TaskFactory

from lm_eval_leakage.harness.seams.patching import patched_once, seam_object
from lm_eval_leakage.harness.seams.rows import read_rows_anew

LOADER = "lm_eval.tasks._yaml_loader"
Entry = Any  # of lm_eval's index: with name, kind, yaml_path, cfg and tags
SCORED = "lm_eval.api.task:ConfigurableTask.process_results"
AUDITED_KEPT = 8
Overrides = Mapping[str, Any]


def task_settings(file: Path | str) -> dict[str, Any]:
    """Return a task's settings, with its includes resolved and its functions imported."""
    return dict(seam_object(f"{LOADER}:load_yaml")(file, resolve_func=True))


def own_settings(file: Path | str, includes: bool = False) -> dict[str, Any]:
    """Return what a YAML itself says, without its includes, whose names are under `include`, or with them.

    Its functions are not imported.
    """
    return dict(seam_object(f"{LOADER}:load_yaml")(file, resolve_func=False, recursive=includes))


@cache
def compile_templates_once() -> None:
    """Have each template compiled once; the harness compiles it per row, longer than the rest of reading it."""
    if (env := seam_object("lm_eval.utils:env")) is not None:
        env.from_string = lru_cache(maxsize=64)(env.from_string)


def leave_out(unscored: Callable[[Any, Any, Sequence[Any]], bool]) -> None:
    """Give no metrics to a question for which `unscored(task, doc, results)` holds.

    None of lm_eval's averages counts it then; its line in the samples log names none.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_results(self: Any, doc: Any, results: Any) -> Any:
            return {} if unscored(self, doc, results) else original(self, doc, results)

        return process_results

    patched_once(SCORED, wrap)


def kind_of(entry: Entry) -> str:
    """Return TASK, PY_TASK, GROUP or TAG."""
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
        """Build an entry as lm_eval does."""
        return super().build(entry, overrides=overrides, registry=self.registry)


def extend(manager: Any, index: Callable[[Mapping[str, Entry]], dict[str, Entry]], make: Callable[..., Any]) -> None:
    """Give a task manager another index, made from its own, and another way to build tasks, from rows as they are."""
    read_rows_anew()
    manager._index, manager._factory = index(manager._index), Factory(manager.metadata, make)


def with_metadata(manager: Any, metadata: Mapping[str, Any]) -> Any:
    """Return a task manager with the same index, for tasks with other metadata."""
    other = copy.copy(manager)
    other.metadata, other._factory = dict(metadata), Factory(metadata, manager._factory.make)
    return other
