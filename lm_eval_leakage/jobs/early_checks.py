"""Checks a plan before the index of tasks is built and a model is loaded.

What needs no slow import is checked first: most of `check_at_once` takes a second, `check_early` several.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from lm_eval_leakage.files import QUESTION_FILES, check_writable
from lm_eval_leakage.harness.arguments import typed_args
from lm_eval_leakage.harness.preflight import Models, check_models, preflight
from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.logs.run import same_weights


def check_at_once(plan: Plan) -> None:
    """Raise ValueError, ImportError or OSError for an output that cannot be written, for missing files, and for what
    is wrong with the models."""
    check_writable(plan.output_path, folder=True)
    for module in plan.imports:
        _import(module)
    for task in plan.tasks:
        _refuse_missing_file(task)
    check_models(_models(plan), () if plan.runs else plan.audits)


def check_plan_early(plan: Plan) -> None:
    """Raise ValueError, ImportError or OSError for what `check_at_once` refuses, for other unknown names, and for
    tasks that no audit of the plan fits."""
    check_at_once(plan)
    if plan.engine is not None:
        from lm_eval_leakage.jobs.engines import engine_entry_point  # imports torch

        engine_entry_point(plan.engine, plan.address)
    models = _models(plan)
    files = [task for task in plan.tasks if task.endswith(QUESTION_FILES)]
    preflight(
        [task for task in plan.tasks if task not in files],
        models,
        audits=() if plan.runs else plan.audits,
        include_path=plan.include_path,
        data_files=plan.metadata.get("data_files"),
        files=files,
        fields=plan.fields,
        leaves_out=plan.compares_models,
    )
    for file in plan.given_files:
        preflight(
            plan.tasks,
            audits=plan.audits,
            include_path=plan.include_path,
            data_files=file,
            fields=plan.fields,
        )
    _refuse_own_reference(plan)
    if plan.audits and (refusal := refusal_of_keys(plan.metadata, of_audits_only=plan.accuracy is False)):
        raise ValueError(f"metadata: {refusal}")


def _models(plan: Plan) -> Models:
    """Return backends with their arguments; None for those of a loaded model, which only name it."""
    return [(model.model, model.model_args if model.loaded is None else None) for model in plan.all_models]


def _refuse_missing_file(task: str) -> None:
    file = Path(task).expanduser()
    if task.endswith(QUESTION_FILES) and not file.exists():
        raise FileNotFoundError(f"tasks has {task!r}, but there is no such file; check the path")
    if file.is_file() and not task.endswith(QUESTION_FILES):
        raise ValueError(
            f"tasks has {task!r}, a file of a kind that is not read; its name must end in one of: "
            f"{', '.join(QUESTION_FILES)}"
        )


def _refuse_own_reference(plan: Plan) -> None:
    """Raise ValueError if the reference is one of the models: compared with itself, no model has seen anything."""
    for reference in plan.reference_models:
        for model in plan.models:
            if same_weights(model.who.identity, reference.who.identity):
                name = f" {model.name!r}" if model.name else ""
                raise ValueError(
                    f"reference is {typed_args(reference.model_args)!r}, which is the model{name} itself, "
                    "whatever its arguments; name another model, or a folder with its audits"
                )


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error
