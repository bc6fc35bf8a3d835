"""Reads a plan from options and files. For what cannot be used, one sentence names the field, its value, the rule and
the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import (
    ValidationError,
)

from lm_eval_leakage.jobs.plan import MODEL_FIELDS, OF_ONE_MODEL, SETTING_NAMES, WITHIN_BUDGET, Plan, PlanModel
from lm_eval_leakage.jobs.plan_values import nearest_or_all, without_none
from lm_eval_leakage.texts import brief, from_yaml

DEFAULT_FILE = Path("leakage.yaml")  # taken from the working directory if neither a model nor a file is given


def check_plan(given: Mapping[str, Any], file: str | Path | None = None) -> Plan:
    """Return the plan of options; what is given here has precedence over the file.

    given: values as on the command line, as in YAML or of their own type; None for what is not given
    file: a YAML file; by default `leakage.yaml`, if there is one and no model is given

    Raises ValueError, in one sentence, for an unknown name or a value that cannot be used.
    """
    settings = without_none(given)
    if file is None and not settings.keys() & {"model", "models"} and DEFAULT_FILE.is_file():
        file = DEFAULT_FILE
    source, settings = ("check", settings) if file is None else (str(file), names_in_file(Path(file)) | settings)
    for name in settings:
        if name not in SETTING_NAMES:
            raise ValueError(f"{source} {_unknown(name, SETTING_NAMES)}")
    if "budget" in settings:
        settings = WITHIN_BUDGET | settings
    model_settings = {name: settings.pop(name) for name in OF_ONE_MODEL if name in settings}
    if model_settings and "models" in settings:
        raise ValueError(f"{source} has models and {next(iter(model_settings))}; give it to each of the models")
    if not model_settings.keys() & {"model", "model_args"} and "models" not in settings:
        raise ValueError(
            f"{source} has no model; name one as for lm_eval, such as --model hf --model_args pretrained=gpt2, or "
            f"write model and model_args, or models, into {DEFAULT_FILE}"
        )
    if "tasks" not in settings:
        raise ValueError(f"{source} has no tasks; name benchmarks as for lm_eval, such as --tasks mmlu,arc_challenge")
    try:
        plan = Plan.model_validate({"models": [model_settings], **settings})
    except ValidationError as error:
        raise ValueError(_sentence(error, is_of_options=bool(model_settings))) from None
    # workers may have another working directory
    places = (str(Path(part).expanduser().absolute()) for part in plan.include_paths)
    return plan.changed(include_path=":".join(places) or None)


def _sentence(error: ValidationError, is_of_options: bool) -> str:
    """Return the first thing that is wrong with a plan, with its place.

    A rule of ours words it; else the description of its field is the remedy.

    is_of_options: whether the only model's settings stand beside those of the plan
    """
    first = error.errors()[0]
    place, reason = first["loc"], first.get("ctx", {}).get("error")
    if not place:
        return str(reason)
    is_of_model = len(place) > 2 and place[0] == "models"
    (name, fields) = (place[2], PlanModel.model_fields) if is_of_model else (place[0], Plan.model_fields)
    where = f"models[{place[1]}]" if is_of_model and not is_of_options else ""
    if first["type"] == "extra_forbidden":
        return f"{where} {_unknown(str(name), MODEL_FIELDS)}"
    rule = f"is {brief(first['input'])}; give {fields[str(name)].description or 'a text'}"
    return f"{where}.{name} {str(reason).removeprefix(f'{name} ') if reason else rule}".lstrip(".")


def _unknown(name: str, names: Sequence[str]) -> str:
    return f"has {brief(name)}, which is not a setting{nearest_or_all(name, names)}"


def names_in_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ValueError(f"config is {str(file)!r}, which is not a file; give a YAML file with model and tasks")
    try:
        values = from_yaml(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} cannot be used: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file} holds {brief(values)}; give names and values, such as model: hf")
    return without_none(values)
