"""Keeps the answers of an ordinary task as they come, so that a run that was killed asks only what is left.

lm_eval's own response cache would believe whatever a damaged file says, keeps answers that are none, and ignores the
model; our store of answers does not.

One evaluation of chosen questions by a named model, saved as `lm_eval run --log_samples` saves it.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from lm_eval import simple_evaluate
from lm_eval.api.model import CacheHook
from lm_eval.api.registry import get_model
from lm_eval.loggers import EvaluationTracker
from lm_eval.utils import sanitize_model_name

from lm_eval_leakage.files import atomic_remove
from lm_eval_leakage.harness.model_checks import why_not_taken
from lm_eval_leakage.harness.models.asking import Reporting, checked, longer_than_window
from lm_eval_leakage.harness.models.model_identity import as_loaded, identity_of, named_identity, refuse_replaced
from lm_eval_leakage.harness.models.question_requests import Broken, request_key
from lm_eval_leakage.harness.models.server_proof import accept_valid_answers_only
from lm_eval_leakage.harness.models.server_responses import (
    UNASKED,
    NoAnswer,
    fault_of_responses,
)
from lm_eval_leakage.harness.seams.command_line import ask_git_only_in_repositories
from lm_eval_leakage.harness.seams.evaluation import ASKED_WITH, Evaluation, expect_whole
from lm_eval_leakage.harness.seams.tasks import compile_templates_once
from lm_eval_leakage.harness.task_shelf import LoadedTask, digest_of_rows, only_tasks
from lm_eval_leakage.harness.tasks.data import row_hash
from lm_eval_leakage.harness.tasks.task import LeakageTask
from lm_eval_leakage.logs.answer_store import FOLDER, NAMING, Answer, AnswerStore
from lm_eval_leakage.logs.run import DATA, DRAW, IDENTITY, LEFT_OUT, digest_of

METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")
Ask = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Unasked:
    """Why questions of one task are not asked, by the hashes of their rows."""

    reasons: dict[str, str] = field(default_factory=dict)

    def __call__(self, doc: Any) -> str:
        """The reason of a row; empty if it is asked."""
        return self.reasons.get(row_hash(doc), "") if self.reasons else ""


class ResumedRun(CacheHook):  # type: ignore[misc]
    """Stores what a model answers, and stands before it with what is stored, and with a window.

    tasks: that are asked, by name. Their questions that are longer than the window are not asked: a backend would cut
        them on the left without a word. As in an audit, they are left out.
    """

    def __init__(self, store: AnswerStore, tasks: Mapping[str, Any] | None = None) -> None:
        super().__init__(None)
        self._kept, self._tasks = store, tasks or {}
        for task in self._tasks.values():
            vars(task)[UNASKED] = Unasked()

    def stand_before(self, lm: Any) -> None:
        """Until `step_aside`, the model is asked only for answers that are not stored."""
        for method in METHODS:
            vars(lm)[method] = self._with_stored(lm, method, getattr(lm, method))

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        """As backends report every answer."""
        answer = _storable(attr, req, res)
        if answer is not None:
            self._kept.add(request_key(attr, req), answer)

    def close(self) -> None:
        self._kept.close()

    def remove(self) -> None:
        """Of a run that was saved."""
        self.close()
        atomic_remove(self._kept.folder)

    def _with_stored(self, lm: Any, method: str, ask: Ask) -> Ask:
        def answer(requests: Sequence[Any], *further: Any, **named: Any) -> list[Any]:
            keys = [request_key(method, request.args) for request in requests]
            found: dict[bytes, Any] = {
                key: _as_returned(method, answer) for key, answer in self._kept.find(keys).items()
            }
            for key, request in zip(keys, requests, strict=True):
                if key not in found and (reason := _too_long(lm, method, request.args)):
                    found[key] = _unasked(method, reason)
                    self._note(request, reason)
            left = [one for key, one in zip(keys, requests, strict=True) if key not in found]
            given = map(partial(_in_python, method), ask(left, *further, **named) if left else [])
            return [found[key] if key in found else next(given) for key in keys]

        return answer

    def _note(self, request: Any, reason: str) -> None:
        if (task := self._tasks.get(request.task_name)) is not None:
            vars(task)[UNASKED].reasons.setdefault(row_hash(request.doc), reason)


def _too_long(lm: Any, method: str, arguments: Sequence[Any]) -> str | None:
    """Why a backend would cut the text of a request; None if it would not, or if the model does not tell."""
    if method == "loglikelihood":
        return longer_than_window(lm, [(arguments[0], arguments[1])])
    if method == "generate_until" and len(arguments) == 2:
        n_generated = arguments[1].get("max_gen_toks") or getattr(lm, "max_gen_toks", 0)
        return longer_than_window(lm, [(arguments[0], "")], n_generated if isinstance(n_generated, int) else 0)
    return None  # rolling log-likelihoods are computed in windows


def _unasked(method: str, reason: str) -> Any:
    return "" if method == "generate_until" else (NoAnswer(reason), False)


def step_aside(lm: Any) -> None:
    """The model is asked itself again."""
    for method in METHODS:
        vars(lm).pop(method, None)


def _storable(method: str, arguments: Sequence[Any], response: Any) -> Answer | None:
    """None for what is to be asked again."""
    if method == "generate_until" and arguments[1].get("do_sample"):  # one of several
        return None
    answer = _answer(method, response)
    return None if isinstance(answer, Broken) else answer


def _in_python(method: str, response: Any) -> Any:
    """Return a response whose numbers may be those of numpy or torch with Python's, which logs can hold."""
    answer = _answer(method, response)
    return response if isinstance(answer, Broken) else _as_returned(method, answer)


def _answer(method: str, response: Any) -> Answer | Broken:
    is_rolling = method == "loglikelihood_rolling"
    return checked("loglikelihood", (response, False), "") if is_rolling else checked(method, response, "")


def _as_returned(method: str, answer: Answer) -> Any:
    return answer[0] if method == "loglikelihood_rolling" and isinstance(answer, tuple) else answer


BATCH_SIZE, DEVICE = 1, "cuda:0"  # what `lm_eval run` takes by default; backends use the device that there is

Heard = Callable[[str, Sequence[Any]], None]


@dataclass(frozen=True)
class NamedModel:
    """A model as the command line of lm_eval names it, with how it is run.

    called: the name in the results files, where two models would have the same
    loaded: the model itself, if it is loaded already
    """

    model: str
    model_args: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | str = BATCH_SIZE
    device: str = DEVICE
    apply_chat_template: bool | str = False
    called: str = ""
    system_instruction: str | None = None
    loaded: Any = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """As results files have it: `called`, if it was given, else the argument that names the model, or the
        backend's name if there is none."""
        if self.called:
            return self.called
        found = [str(self.model_args[key]) for key in NAMING if key in self.model_args]
        return found[0] if found else self.model

    @property
    def identity(self) -> dict[str, str]:
        """What its answers depend on, as far as its name, arguments and files tell; of a loaded model, its weights."""
        asked_with = {name: getattr(self, name) for name in ASKED_WITH}
        told = Evaluation(self.loaded, model=self.model, model_args=self.model_args, asked_with=asked_with)
        return named_identity(told) if self.loaded is None else identity_of(told) or {}


@dataclass(eq=False)
class KeptModel:
    """lm: None until it is loaded, for the first run
    identity: as it was before it was loaded: its files may change while it is asked
    seconds_of_loading: 0 if it was loaded before
    """

    lm: Any = None
    identity: dict[str, str] = field(default_factory=dict)
    seconds_of_loading: float = 0.0

    def loaded(self, who: NamedModel) -> Any:
        """Return the model, which is called so in all runs.

        Raises ValueError if its files changed while it was loaded.
        """
        if self.lm is None:
            begun = perf_counter()
            how = {"batch_size": who.batch_size, "max_batch_size": None, "device": who.device}
            try:
                lm = get_model(who.model).create_from_arg_obj(dict(who.model_args), how)
            except TypeError as error:
                if why := why_not_taken(error, who.model, who.model_args):
                    raise ValueError(why) from error
                raise
            self.seconds_of_loading = perf_counter() - begun
            refuse_replaced(self.identity, who.identity, who.model_args)
            self.lm = lm
        return self.lm


@contextmanager
def one_loaded_model(given: Any = None) -> Iterator[KeptModel]:
    """Within the block, a model is loaded once for all runs; afterwards its memory is free.

    given: one that is loaded already, which is left as it was
    """
    ask_git_only_in_repositories()
    kept, hook = KeptModel(given), getattr(given, "cache_hook", None)
    before = {} if given is None else {name: own for name, own in vars(given).items() if name in METHODS}
    try:
        yield kept
    finally:
        kept.lm = None
        if given is None:
            _free_memory()
        else:
            step_aside(given)
            vars(given).update(before)
        if hook is not None:
            given.set_cache_hook(hook)


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """After the block, the generators are as they were before; lm_eval seeds all of them."""
    import torch

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


class NamingTracker(EvaluationTracker):  # type: ignore[misc]
    """Of a run whose model is given to `simple_evaluate` as an object, so that nobody else knows its name and what it
    was before it was loaded."""

    def __init__(self, output: Path, model: str, identity: Mapping[str, str]) -> None:
        super().__init__(output_path=str(output))
        self.model_named, self.identity = model, identity


def run_saved(
    who: NamedModel,
    loaded: LoadedTask,
    samples: Mapping[str, Sequence[int]],
    output: Path,
    kept: KeptModel,
    heard: Heard | None = None,
    seed: int | None = None,
) -> Path | None:
    """Evaluates the chosen questions and saves results and samples in `output`; returns the results file, or None in
    a process that saves nothing. Answers are stored as they come, until the run is saved: those of audits by the
    audits, the others in a store of the run's own.

    samples: indices of the chosen questions by task; tasks without any are left out
    seed: by which they were drawn, which is written into the run; None if they are all
    heard: called with the method and the request of every answer that the model gives
    """
    tasks = only_tasks(loaded.built, [task for task, own in samples.items() if own])
    identity = kept.identity = kept.identity or who.identity
    tracker = NamingTracker(output, who.model, identity)
    # before the harness changes configurations, such as a number of examples that is not given to 0
    data = {name: digest_of_rows(loaded.leaves[name]) for name, own in samples.items() if own}
    of_audits = all(isinstance(task, LeakageTask) for task in loaded.leaves.values())
    place = output / FOLDER / f"responses_{digest_of(identity)}"
    resumed = None if of_audits else ResumedRun(AnswerStore(place, identity), loaded.leaves)
    compile_templates_once()
    with closing(resumed) if resumed else nullcontext():
        lm = kept.loaded(who)
        _prepare(lm, heard, resumed)
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
    """Only of tasks that are not asked as a whole: the harness takes long to pick most questions of a large task."""
    parts = {task: sorted(own) for task, own in samples.items() if len(own) < len(loaded.leaves[task].eval_docs)}
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
    told = tracker.general_config_tracker
    results["config"]["model"] = told.model_source = who.model
    if who.called:
        told.model_name, told.model_name_sanitized = who.called, sanitize_model_name(who.called)
    samples = results.pop("samples")
    expect_whole(results)
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])


# ---------------------------------------------------------------------- what is answered


def _prepare(lm: Any, heard: Heard | None, resumed: ResumedRun | None) -> None:
    """Has answers of servers checked, and sets the hook that every backend calls with its answers and what stands
    before it."""
    accept_valid_answers_only(type(lm))
    step_aside(lm)
    hook = resumed or CacheHook(None)
    lm.set_cache_hook(hook if heard is None else Reporting(hook, lambda *told: heard(*told[:2])))
    if resumed is not None:
        resumed.stand_before(lm)
