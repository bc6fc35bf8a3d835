"""One evaluation of chosen questions by a named model, saved as `lm_eval run --log_samples` saves it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate
from lm_eval.api.model import CacheHook
from lm_eval.loggers import EvaluationTracker
from lm_eval.utils import sanitize_model_name, simple_parse_args_string

from lm_eval_leakage.harness.models.model_identity import identity_of
from lm_eval_leakage.harness.patches.call_frames import Evaluation
from lm_eval_leakage.harness.patches.git_hash import ask_git_only_in_repositories
from lm_eval_leakage.harness.patches.kept_model import KeptModels, models_kept
from lm_eval_leakage.harness.running.task_shelf import LoadedTask, only_tasks
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.logs.answer_store import FOLDER, NAMING

BATCH_SIZE, DEVICE = 1, "cuda:0"  # what `lm_eval run` takes by default; backends use the device that there is

Heard = Callable[[str, Sequence[Any]], None]


@dataclass(frozen=True)
class NamedModel:
    """A model as the command line of lm_eval names it, with how it is run.

    called: the name in the results files, where two models would have the same
    """

    model: str
    model_args: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | str = BATCH_SIZE
    device: str = DEVICE
    apply_chat_template: bool | str = False
    called: str = ""

    @property
    def name(self) -> str:
        """As results files have it: `called`, if it was given, else the argument that names the model, or the
        backend's name if there is none."""
        if self.called:
            return self.called
        found = [str(self.model_args[key]) for key in NAMING if key in self.model_args]
        return found[0] if found else self.model


def parsed_args(text: str) -> dict[str, Any]:
    """`pretrained=M,dtype=bfloat16` as lm_eval reads it."""
    return dict(simple_parse_args_string(text))


@contextmanager
def one_loaded_model() -> Iterator[KeptModels]:
    """Within the block, a model is loaded once for all runs; afterwards its memory is free."""
    ask_git_only_in_repositories()
    try:
        with models_kept() as kept:
            yield kept
    finally:
        gc.collect()
        _empty_accelerator()


def _empty_accelerator() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_saved(
    who: NamedModel,
    loaded: LoadedTask,
    samples: Mapping[str, Sequence[int]],
    output: Path,
    kept: KeptModels,
    heard: Heard | None = None,
) -> None:
    """Evaluates the chosen questions and saves results and samples in `output`. Answers are stored as they come, until
    the run is saved: those of audits by the audits, the others in lm_eval's own response cache.

    samples: indices of the chosen questions by task; tasks without any are left out
    heard: called with the method and the request of every answer that the model gives
    """
    tasks = only_tasks(loaded.built, [task for task, own in samples.items() if own])
    kept.prepare = _hooked(heard)
    tracker = EvaluationTracker(output_path=str(output))
    cache = None if all(isinstance(task, LeakageTask) for task in loaded.leaves.values()) else _cache(who, output)
    results = simple_evaluate(
        model=who.model,
        model_args=dict(who.model_args),
        tasks=tasks,
        samples=_parts(samples, loaded),
        batch_size=who.batch_size,
        device=who.device,
        use_cache=None if cache is None else str(cache),
        apply_chat_template=who.apply_chat_template,
        log_samples=True,
        evaluation_tracker=tracker,
        task_manager=loaded.manager,
    )
    if results is not None:
        _save(results, tracker, who)
    if cache is not None:
        for file in cache.parent.glob(f"{cache.name}_*"):
            file.unlink()


def _cache(who: NamedModel, output: Path) -> Path:
    """The keys of lm_eval's response cache ignore the model, so each has a file of its own."""
    identity = identity_of(Evaluation(None, model=who.model, model_args=who.model_args)) or {}
    told = json.dumps([sorted(identity.items()), who.apply_chat_template])
    return output / FOLDER / f"responses_{blake2b(told.encode(), digest_size=8).hexdigest()}"


def _parts(samples: Mapping[str, Sequence[int]], loaded: LoadedTask) -> dict[str, list[int]] | None:
    """Only of tasks that are not asked as a whole: the harness takes long to pick most questions of a large task."""
    parts = {task: sorted(own) for task, own in samples.items() if len(own) < len(loaded.leaves[task].eval_docs)}
    return parts or None


def _save(results: dict[str, Any], tracker: EvaluationTracker, who: NamedModel) -> None:
    if who.called:
        told = tracker.general_config_tracker
        told.model_name, told.model_name_sanitized = who.called, sanitize_model_name(who.called)
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])


# ---------------------------------------------------------------------- what is answered


def _hooked(heard: Heard | None) -> Callable[[Any], None]:
    """Sets the hook that every backend calls with its answers; the response cache may set its own, too."""

    def prepare(lm: Any) -> None:
        if not hasattr(lm, "set_cache_hook"):
            return
        set_hook = partial(type(lm).set_cache_hook, lm)
        lm.set_cache_hook = lambda hook: set_hook(hook if heard is None else _Hearing.of(heard, hook))
        lm.set_cache_hook(CacheHook(None))

    return prepare


class _Hearing(CacheHook):  # type: ignore[misc]
    def __init__(self, heard: Heard, other: Any) -> None:
        super().__init__(None)
        self._heard, self._other = heard, other

    @classmethod
    def of(cls, heard: Heard, hook: Any) -> _Hearing:
        """`hook` itself if it hears already, such as one that is set again after another."""
        return hook if isinstance(hook, _Hearing) else cls(heard, hook)

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self._heard(attr, req)
        self._other.add_partial(attr, req, res)
