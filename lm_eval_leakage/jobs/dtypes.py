"""The number format of a plan's models: chosen for this machine where the plan names none, and said in the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval_leakage.harness.model_checks import BY_TRANSFORMERS
from lm_eval_leakage.jobs.plan import Plan, PlanModel
from lm_eval_leakage.scoring.dtypes import Seconds, faster_dtype, is_on_cpu, seconds_of_product, usual_dtype

DTYPE, AUTO = "dtype", "auto"
NOT_CHOSEN_WITH = (  # arguments beside which the format of the model's files is kept
    *("load_in_4bit", "load_in_8bit", "quantization_config", "autogptq", "gptqmodel", "gguf_file"),
    *("mixed_precision_dtype", "torch_dtype", "config"),
)
OF_QUANTISED = "quantization_config"  # key of a config.json


def with_dtypes(plan: Plan, seconds: Seconds = seconds_of_product) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with a number format for each model that names none, and sentences about formats.

    Where runs exist already, their format is that of the model's files unless the plan names it, and so is that of the
    audits. Workers on other machines have other processors, so that nothing is chosen for them.

    seconds: that a piece of work takes in a format on the CPU
    """
    if not plan.is_here:
        return plan, ()
    sentences: dict[str, None] = {}
    device = plan.models[0].device

    def chosen(arguments: Mapping[str, Any]) -> dict[str, Any]:
        usual = None if plan.runs or not _is_open(arguments) else usual_dtype(device)
        if usual is None:
            return dict(arguments)
        sentences[f"dtype {usual.name}: {usual.reason}"] = None
        return {**arguments, DTYPE: usual.name}

    (model,) = plan.models
    if model.model not in BY_TRANSFORMERS or model.loaded is not None:
        return plan, ()
    plan = plan.changed(models=(with_arguments(model, chosen(model.model_args)),))
    if isinstance(plan.reference, Mapping):
        plan = plan.changed(reference=chosen(plan.reference))
    if is_on_cpu(device):
        for plan_model in plan.all_models:
            if slow := _slow(plan_model.model_args, seconds, of_runs=bool(plan.runs)):
                sentences[slow] = None
    return plan, tuple(sentences)


def with_arguments(model: PlanModel, model_args: Mapping[str, Any]) -> PlanModel:
    """Return the same model with other arguments."""
    return model.model_copy(update={"model_args": dict(model_args)})


def _is_open(arguments: Mapping[str, Any]) -> bool:
    """Return whether a model may be given a format: it names none, and its weights are no packed integers."""
    if DTYPE in arguments or any(arguments.get(name) for name in NOT_CHOSEN_WITH):
        return False
    return OF_QUANTISED not in _config(arguments)


def _slow(arguments: Mapping[str, Any], seconds: Seconds, *, of_runs: bool) -> str:
    """Return a sentence if a model's format takes several times as long as another; empty if it does not.

    of_runs: whether runs exist, whose format the audits must have
    """
    given = str(arguments.get(DTYPE, AUTO))
    config = _config(arguments) if given == AUTO else {}
    dtype = str(config.get(DTYPE) or config.get("torch_dtype") or "") if given == AUTO else given
    faster = faster_dtype(dtype, seconds)
    if faster is None:
        return ""
    other, times = faster
    what = f"dtype {dtype}, that of the model's files," if given == AUTO else f"dtype {dtype}"
    remedy = "audits must have that of the runs" if of_runs else f"give dtype={other} to be faster"
    return f"{what} takes about {times:.0f} times as long as {other} on this CPU; {remedy}"


def _config(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a model's config.json, which is downloaded if the hub has it; empty if it cannot be read."""
    name = str(arguments.get("pretrained") or "")
    file = Path(name, str(arguments.get("subfolder") or ""), "config.json")
    try:
        if not Path(name).is_dir():
            from huggingface_hub import hf_hub_download

            revision = str(arguments.get("revision") or "main")
            file = Path(hf_hub_download(name, "config.json", revision=revision))
        config = json.loads(file.read_bytes())
    except Exception:  # what cannot be read is said when the model is loaded
        return {}
    return config if isinstance(config, dict) else {}
