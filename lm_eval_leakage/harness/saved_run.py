"""Evaluates chosen questions by a named model, and saves the run as `lm_eval run --log_samples` saves it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval import simple_evaluate
from lm_eval.api.model import CacheHook
from lm_eval.loggers import EvaluationTracker
from lm_eval.utils import sanitize_model_name

from lm_eval_leakage.harness.models.answer_faults import UNASKED, fault_of_responses
from lm_eval_leakage.harness.models.model_identity import as_loaded
from lm_eval_leakage.harness.models.reporting import Reporting
from lm_eval_leakage.harness.models.server_proof import accept_valid_answers_only
from lm_eval_leakage.harness.named_model import KeptModel, NamedModel
from lm_eval_leakage.harness.resumed_run import ResumedRun, step_aside
from lm_eval_leakage.harness.seams.run_files import expect_whole
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.task_shelf import LoadedTask, digest_of_rows, only_tasks
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.logs.answer_store import FOLDER, AnswerStore
from lm_eval_leakage.logs.run import DATA, DRAW, IDENTITY, LEFT_OUT, digest_of

Heard = Callable[[str, Sequence[Any]], None]


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Restore the random generators after the block, since lm_eval seeds all of them."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


class NamingTracker(EvaluationTracker):  # type: ignore[misc]
    """The tracker of a run whose model is given to `simple_evaluate` as an object.

    It has the model's name, and its identity before it was loaded.
    """

    def __init__(self, output: Path, model: str, identity: Mapping[str, str]) -> None:
        super().__init__(output_path=str(output))
        self.model_named, self.identity = model, identity


def run_saved(
    who: NamedModel,
    loaded: LoadedTask,
    samples: Mapping[str, Sequence[int]],
    output: Path,
    kept: KeptModel,
    on_answer: Heard | None = None,
    seed: int | None = None,
) -> Path | None:
    """Evaluate the chosen questions and save results and samples in `output`.

    Returns the results file, or None in a process that saves nothing. Answers are stored as they come, until the run
    is saved: those of audits by the audits, the others in a store of the run's own.

    samples: indices of the chosen questions by task; tasks without any are left out
    seed: by which they were drawn, which is written into the run; None if they are all
    on_answer: called with the method and the request of every answer that the model gives
    """
    tasks = only_tasks(loaded.built, [task for task, chosen in samples.items() if chosen])
    identity = kept.identity = kept.identity or who.identity
    tracker = NamingTracker(output, who.model, identity)
    # before the harness changes configurations, such as a number of examples that is not given to 0
    data = {name: digest_of_rows(loaded.leaves[name]) for name, chosen in samples.items() if chosen}
    of_audits = all(isinstance(task, LeakageTask) for task in loaded.leaves.values())
    place = output / FOLDER / f"responses_{digest_of(identity)}"
    resumed = None if of_audits else ResumedRun(AnswerStore(place, identity), loaded.leaves)
    compile_templates_once()
    with closing(resumed) if resumed else nullcontext():
        lm = kept.loaded(who)
        _prepare(lm, on_answer, resumed)
        results = simple_evaluate(
            model=lm,
            model_args=dict(who.model_args),
            tasks=tasks,
            samples=_parts(samples, loaded),
            batch_size=who.batch_size,
            device=who.device,
            apply_chat_template=who.apply_chat_template,
            system_instruction=who.system_instruction,
            log_samples=True,
            evaluation_tracker=tracker,
            task_manager=loaded.manager,
        )
    if results is None:
        return None
    draw = {} if seed is None else {DRAW: {"seed": seed}}
    for name, task in loaded.leaves.items() if not of_audits else ():
        _note_left_out(task, results["samples"].get(name, ()))
    _save(results | {IDENTITY: as_loaded(identity, who.identity), DATA: data} | draw, tracker, who)
    if resumed is not None:
        resumed.remove()
    return Path(output, tracker.general_config_tracker.model_name_sanitized, f"results_{tracker.date_id}.json")


def _parts(samples: Mapping[str, Sequence[int]], loaded: LoadedTask) -> dict[str, list[int]] | None:
    """Return the chosen questions of tasks that are not asked as a whole.

    The harness takes long to pick most questions of a large task.
    """
    parts = {
        task: sorted(chosen) for task, chosen in samples.items() if len(chosen) < len(loaded.leaves[task].eval_docs)
    }
    return parts or None


def _note_left_out(task: Any, samples: Sequence[dict[str, Any]]) -> None:
    """Write into a task's samples why they have no metrics."""
    for sample in samples:
        if sample["metrics"]:
            continue
        is_text = task.OUTPUT_TYPE == "generate_until"
        if reason := vars(task)[UNASKED].reasons.get(sample["doc_hash"]) or (
            "" if is_text else fault_of_responses(sample["filtered_resps"])
        ):
            sample[LEFT_OUT] = reason


def _save(results: dict[str, Any], tracker: NamingTracker, who: NamedModel) -> None:
    config = tracker.general_config_tracker
    results["config"]["model"] = config.model_source = who.model
    if who.called:
        config.model_name, config.model_name_sanitized = who.called, sanitize_model_name(who.called)
    samples = results.pop("samples")
    expect_whole(results)
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])


def _prepare(lm: Any, on_answer: Heard | None, resumed: ResumedRun | None) -> None:
    """Have answers of servers checked, and set the hook that every backend calls with its answers."""
    accept_valid_answers_only(type(lm))
    step_aside(lm)
    hook = resumed or CacheHook(None)
    lm.set_cache_hook(
        hook if on_answer is None else Reporting(hook, lambda method, request, _: on_answer(method, request))
    )
    if resumed is not None:
        resumed.stand_before(lm)
