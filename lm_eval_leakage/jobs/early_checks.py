"""What is known of a plan before the index of tasks is built and what runs models is imported, which takes seconds."""

from __future__ import annotations

from importlib import import_module

from lm_eval_leakage.files import check_writable
from lm_eval_leakage.harness.own_benchmark import is_file_of_questions
from lm_eval_leakage.harness.preflight import preflight
from lm_eval_leakage.harness.tasks.metadata import refusal_of_keys
from lm_eval_leakage.jobs.engines import entry_of
from lm_eval_leakage.jobs.plan import Plan
from lm_eval_leakage.logs.run import same_weights


def check_early(plan: Plan) -> None:
    """Raises ValueError, ImportError or OSError for unknown names, missing packages and folders, tasks or
    backends that no audit of the plan fits."""
    check_writable(plan.output_path, folder=True)
    if plan.engine is not None:
        entry_of(plan.engine, plan.address)
    for module in plan.imports:
        _import(module)
    # nothing is made from the arguments of a loaded model, which only name it
    models = [(one.model, one.model_args if one.loaded is None else None) for one in plan.asked_models]
    files = [task for task in plan.tasks if is_file_of_questions(task)]
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


def _refuse_own_reference(plan: Plan) -> None:
    """Raise ValueError if the reference is one of the models: compared with itself, no model has seen anything."""
    for reference in plan.reference_models:
        for model in plan.models:
            if same_weights(model.who.identity, reference.who.identity):
                arguments = ",".join(f"{name}={value}" for name, value in reference.model_args.items())
                raise ValueError(
                    f"reference is {arguments!r}, which is the model{f' {model.name!r}' if model.name else ''} "
                    "itself, however it is asked; name another model, or a folder with its audits"
                )


def _import(module: str) -> None:
    try:
        import_module(module)
    except Exception as error:  # a module of the user's may raise anything
        raise ValueError(
            f"imports has {module!r}, which cannot be imported ({type(error).__name__}: {error}); give a module that "
            "is installed or on PYTHONPATH"
        ) from error
