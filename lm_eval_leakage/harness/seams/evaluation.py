"""Reads from the call stack the run that a task belongs to: its model, its other tasks, its output path.

The harness passes none of this to a task. A task finds it in the local variables of its callers: `build_all_requests`
is called by `evaluate`, and that by `simple_evaluate`. Nothing in the harness is replaced for this, so import order
does not matter. If the harness uses other variable names, this is noticed when the task builds its requests, before
any work is done.

`frame.f_back` and `frame.f_locals` are documented, though a Python need not have frames; CPython and PyPy do. In
lm_eval 0.4.13 `Task.build_all_requests` is given rank, limit and chat template and no model; an argument or a context
with the model and the evaluation tracker would replace this.

Patches EvalAcc, where lm_eval assembles the results and samples of a run, to post-process them. Wrapping `evaluate`
itself is not enough: code that imported it before the patch would still call the original. A callback of lm_eval on
finished results would replace this.

Listens to EvaluationTracker's logger, to end a run with our tasks whose files could not be saved: lm_eval turns every
error while saving into a log message and exits with 0. A `save_results_aggregated` that raises would replace this.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval.utils import make_table

from lm_eval_leakage.files import try_to_write
from lm_eval_leakage.harness.seams.patching import Refusal, found, patched_once
from lm_eval_leakage.texts import brief

ASKED_WITH = ("apply_chat_template", "system_instruction")  # arguments of `simple_evaluate`


@dataclass(frozen=True)
class Evaluation:
    """lm: the model, wrapped in the harness's response cache if the run has one
    tasks: all tasks of the run, by name
    model, model_args: as given by `--model` and `--model_args`; None if the model was passed as an object
    output_path: None if the run saves nothing
    asked_with: what changes how questions are put to the model, of ASKED_WITH
    seed, limit: of `--seed` (its first number) and `--limit`
    identity: `named_identity` of the model before it was loaded, in a run of ours; else empty
    """

    lm: Any
    tasks: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    model_args: str | Mapping[str, Any] | None = None
    output_path: Path | None = None
    asked_with: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    limit: float | None = None
    identity: Mapping[str, str] = field(default_factory=dict)


def current_evaluation() -> Evaluation | None:
    """The evaluation that is currently calling, directly or indirectly; None if there is none."""
    inner: Mapping[str, Any] | None = None
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name
        if inner is None and name == "evaluate" and {"lm", "eval_tasks"} <= set(frame.f_locals):
            inner = dict(frame.f_locals)
        elif inner is not None and name == "simple_evaluate" and "evaluation_tracker" in frame.f_locals:
            return _evaluation(inner, frame.f_locals)
        frame = frame.f_back
    if inner is None:
        found("lm_eval.evaluator:evaluate")  # raises UnsupportedHarness if the reason is a different lm_eval
        return None
    found("lm_eval.evaluator:simple_evaluate")  # warns of it
    return _evaluation(inner, {})


def _evaluation(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Evaluation:
    tracker = outer.get("evaluation_tracker")
    output, model = getattr(tracker, "output_path", None), getattr(tracker, "model_named", outer.get("model"))
    named = isinstance(model, str)
    return Evaluation(
        inner["lm"],
        inner["eval_tasks"],
        model if named else None,
        (outer.get("model_args") or {}) if named else None,
        Path(output) if output else None,
        {name: outer.get(name) for name in ASKED_WITH},
        outer.get("random_seed") or 0,
        inner.get("limit_arg"),
        getattr(tracker, "identity", {}),
    )


ASSEMBLED = "lm_eval.evaluator_utils:EvalAcc._to_eval_results"
Finish = Callable[[dict[str, Any]], None]
_registered: list[Finish] = []
_of_next: list[Finish] = []


def on_results(finish: Finish) -> None:
    """Registers `finish`, which may modify what `evaluate` is about to return."""
    _register(finish, _registered)


def on_next_results(finish: Finish) -> None:
    """The same for the next results only."""
    _register(finish, _of_next)


def _register(finish: Finish, among: list[Finish]) -> None:
    patched_once(ASSEMBLED, _finished)
    if finish not in among:
        among.append(finish)


def _finished(original: Callable[..., Any]) -> Callable[..., Any]:
    def _to_eval_results(self: Any, **kwargs: Any) -> Any:
        results = original(self, **kwargs)
        once = [*_of_next]
        _of_next.clear()
        for finish in (*_registered, *once):
            finish(results)
        return results

    return _to_eval_results


TRACKER = "lm_eval.loggers.evaluation_tracker"  # the name of its logger
NOT_SAVED = "Could not save "
UPLOADING = ("huggingface_hub", "requests", "httpx")
_unsaved: list[dict[str, Any]] = []


class NotSaved(Refusal):
    """A results file or samples log was not saved completely."""


def refuse_unwritable(output: Path) -> None:
    """Raises Refusal if results cannot be saved in `output`, the value of `--output_path`."""
    folder = output.parent if output.suffix == ".json" else output
    try:
        try_to_write(folder)
    except OSError as error:
        raise Refusal(
            f"output_path is {str(output)!r}, where nothing can be written ({error.strerror}); choose a writable "
            "folder, or free some space"
        ) from error


def watch_run_files() -> None:
    """Makes a run with our tasks end with an error where the harness fails to save its results or samples."""
    saving = logging.getLogger(TRACKER)
    if _refuse_unsaved not in saving.filters:
        saving.addFilter(_refuse_unsaved)
        on_results(remember_audits)


def remember_audits(results: dict[str, Any]) -> None:
    """Expect results with an audit, recognised by settings that only our tasks have, to be saved as a whole; those of
    other runs are saved as ever."""
    _unsaved.clear()
    configs = (results.get("configs") or {}).values()
    if any("probe" in (config.get("metadata") or {}) for config in configs):
        expect_whole(results)


def expect_whole(results: dict[str, Any]) -> None:
    """Make the harness raise NotSaved if it fails to save these results or their samples.

    The filter sees the failure only if the logger's level lets warnings through.
    """
    _unsaved[:] = [results]
    saving = logging.getLogger(TRACKER)
    if not saving.isEnabledFor(logging.WARNING):
        saving.setLevel(logging.WARNING)


def _refuse_unsaved(record: logging.LogRecord) -> bool:
    """Called with each log message of the tracker, which logs an error while it handles it. Prints the tables first:
    they may be all that is left of hours of work. Uploading, which libraries of their own do, may fail."""
    error = sys.exc_info()[1]
    if not _unsaved or error is None or not record.getMessage().startswith(NOT_SAVED):
        return True
    if type(error).__module__.split(".")[0] in UPLOADING:
        return True
    (results,) = _unsaved
    print(make_table(results))
    if results.get("groups"):
        print(make_table(results, "groups"))
    what = "results" if "aggregated" in record.getMessage() else "samples"
    raise NotSaved(
        f"the {what} could not be saved completely ({brief(error)}; full disk? no permission?); the tables above are "
        "correct; when there is space, the same command saves them from the answers that were kept"
    )
