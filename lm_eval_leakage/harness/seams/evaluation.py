"""Reads from the call stack the run that a task belongs to: its model, its other tasks, its output path.

The harness passes none of this to a task. A task finds it in the local variables of its callers: `build_all_requests`
is called by `evaluate`, and that by `simple_evaluate`. Nothing in the harness is replaced for this, so import order
does not matter. If the harness uses other variable names, this is noticed when the task builds its requests, before
any work is done.

`frame.f_back` and `frame.f_locals` are documented, though a Python need not have frames; CPython and PyPy do. In
lm_eval 0.4.13 `Task.build_all_requests` is given rank, limit and chat template and no model; an argument or a context
with the model and the evaluation tracker would replace this.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.seams.patching import seam_object

ASKED_WITH = ("apply_chat_template", "system_instruction")  # arguments of `simple_evaluate`


@dataclass(frozen=True)
class Evaluation:
    """The run that a task belongs to.

    lm: the model, wrapped in the harness's response cache if the run has one
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
    """Return the evaluation that is currently calling, directly or indirectly; None if there is none."""
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
        seam_object("lm_eval.evaluator:evaluate")  # raises UnsupportedHarness if the reason is a different lm_eval
        return None
    seam_object("lm_eval.evaluator:simple_evaluate")  # warns of it
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
