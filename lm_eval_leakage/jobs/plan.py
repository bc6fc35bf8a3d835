"""What a campaign is asked for: a YAML file with models, tasks, audits and limits.

Units of a campaign: what one worker does at a time, one model's run or audit of one task, or a shard of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT, suffixes
from lm_eval_leakage.jobs.check_settings import (
    names_in_file,
    read_batch_size,
    read_chat_template,
    read_model_arguments,
    read_names,
    read_path,
    read_switch,
    read_text,
    read_whole_number,
    refuse_unknown,
)
from lm_eval_leakage.texts import brief, did_you_mean

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # it is the name of a folder and of a node's resource
UNSAFE_IN_TASKS = re.compile(r"[/\\\x00-\x1f\x7f]|^\.|^-|^$")  # a task's name is the name of a folder, too
MOST_SHARDS = 1_000  # of a benchmark: 14,042 questions of MMLU are 15 in each
SET_BY_UNITS = ("shard",)  # keys of `metadata` that each unit has for itself


@dataclass(frozen=True)
class CampaignModel:
    """name: that the tables show; unique in the plan
    model, model_args, batch_size, device, apply_chat_template: as for `lm_eval run`
    gpus: that one worker needs; 0 reserves none
    workers: at most so many of this model at once
    """

    name: str
    model: str = "hf"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    batch_size: int | str | None = None
    device: str | None = None
    apply_chat_template: bool | str = False
    workers: int | None = None


@dataclass(frozen=True)
class CampaignPlan:
    """tasks: tasks and groups of lm_eval; also tags and patterns, until the campaign has begun
    audits: suffixes of audits, such as `leakage_perm`; runs: whether tasks are also run themselves
    limit: questions drawn at random by `seed` from each task or group; None for all
    shards: into how many parts each run and audit is divided
    metadata: as for `lm_eval run`
    include_path: folders with additional tasks, separated by colons
    imports: Python modules that register backends of your own in lm_eval
    retries: how often a unit that failed is tried again
    minutes: the time limit of one attempt at a unit
    workers: at most so many at once; None leaves it to the engine
    slurm: what `--engine slurm` asks of Slurm for each job, such as partition and timeout_min
    """

    models: tuple[CampaignModel, ...]
    tasks: tuple[str, ...]
    audits: tuple[str, ...] = (FIRST_AUDIT,)
    runs: bool = True
    limit: int | None = None
    seed: int = 0
    shards: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    include_path: str | None = None
    imports: tuple[str, ...] = ()
    retries: int = 1
    minutes: float | None = None
    workers: int | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
    output_path: Path = Path("campaign")

    def model(self, name: str) -> CampaignModel:
        return next(one for one in self.models if one.name == name)

    @property
    def include_paths(self) -> list[str]:
        return [part for part in (self.include_path or "").split(":") if part]


MODEL_SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(CampaignModel))
PLAN_SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(CampaignPlan))


def read_plan(file: str | Path, output_path: str | Path | None = None) -> CampaignPlan:
    """The plan of a YAML file; raises ValueError, in one sentence, for an unknown name or a value that cannot be used.

    output_path: instead of the file's
    """
    return plan_of(names_in_file(Path(file)), str(file), output_path)


def plan_of(told: Mapping[str, Any], source: str, output_path: str | Path | None = None) -> CampaignPlan:
    """The plan of names and values as in YAML.

    source: what messages name as the plan
    """
    refuse_unknown(told, PLAN_SETTINGS, source)
    given = {**told, "output_path": output_path} if output_path is not None else told
    for name in ("models", "tasks"):
        if name not in given:
            raise ValueError(f"{source} has no {name}; name them, as docs/campaigns.md shows")
    plan = CampaignPlan(**{name: PLAN_READERS[name](name, value) for name, value in given.items()})
    if not plan.runs and not plan.audits:
        raise ValueError("audits is empty and runs is false, so that there is nothing to do; name an audit")
    return replace(plan, tasks=tuple(dict.fromkeys(plan.tasks)), audits=tuple(dict.fromkeys(plan.audits)))


def as_settings(plan: CampaignPlan) -> dict[str, Any]:
    """The plan as names and values, from which `plan_of` makes it again; without what is not set."""
    told = asdict(plan) | {"output_path": str(plan.output_path)}
    told["models"] = [{key: value for key, value in one.items() if value is not None} for one in told["models"]]
    lists = {name: list(value) for name, value in told.items() if isinstance(value, tuple)}
    return {name: value for name, value in (told | lists).items() if value is not None}


def plan_as_yaml(plan: CampaignPlan) -> str:
    """The text of a file from which `read_plan` makes the plan again."""
    return str(yaml.safe_dump(as_settings(plan), sort_keys=False, allow_unicode=True))


# ---------------------------------------------------------------------- values


def _models(name: str, value: object) -> tuple[CampaignModel, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"{name} is {brief(value)}; give a list of models, each with a name and model_args")
    models = tuple(_model(f"models[{place}]", one) for place, one in enumerate(value))
    names = [one.name for one in models]
    if twice := [one for one in names if names.count(one) > 1]:
        raise ValueError(f"models has two that are named {twice[0]!r}; give each a name of its own")
    return models


def _model(place: str, value: object) -> CampaignModel:
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} is {brief(value)}; give name, model and model_args")
    told = {str(key): one for key, one in value.items() if one is not None}
    refuse_unknown(told, MODEL_SETTINGS, place)
    if "name" not in told:
        raise ValueError(f"{place} has no name; give one that the tables show, such as name: smol")
    model = CampaignModel(**{key: MODEL_READERS[key](f"{place}.{key}", one) for key, one in told.items()})
    n_parallel = int(model.model_args.get("tensor_parallel_size") or 1)
    if n_parallel > 1 and model.gpus != n_parallel:
        raise ValueError(f"{place} has tensor_parallel_size={n_parallel} and gpus: {model.gpus}; give the same number")
    return model


def _model_name(name: str, value: object) -> str:
    text = read_text(name, str(value) if isinstance(value, (int, float)) else value)
    if not MODEL_NAME.fullmatch(text):
        raise ValueError(
            f"{name} is {brief(text)}, which cannot be the name of a folder; use letters, digits, '.', '_', '+', '-'"
        )
    return text


def _tasks(name: str, value: object) -> tuple[str, ...]:
    tasks = read_names(name, value)
    if not tasks:
        raise ValueError(f"{name} is {brief(value)}; name at least one task or group of lm_eval")
    for task in tasks:
        if UNSAFE_IN_TASKS.search(task):
            raise ValueError(
                f"{name} has {brief(task)}, which cannot be the name of a folder; name tasks, and give the folder of "
                "your own with include_path"
            )
    return tasks


def _audits(name: str, value: object) -> tuple[str, ...]:
    audits = () if value in ([], (), False) else read_names(name, value)
    for audit in audits:
        if audit not in suffixes():
            nearest = did_you_mean(audit, suffixes()) or f"; choose from: {', '.join(sorted(suffixes()))}"
            raise ValueError(f"{name} has {audit!r}, which is not an audit{nearest}")
    return audits


def _from_one(name: str, value: object) -> int:
    number = read_whole_number(name, value, "a whole number from 1")
    if number < 1:
        raise ValueError(f"{name} is {value!r}; give a whole number from 1")
    return number


def _from_zero(name: str, value: object) -> int:
    number = read_whole_number(name, value, "a whole number from 0")
    if number < 0:
        raise ValueError(f"{name} is {value!r}; give a whole number from 0")
    return number


def _shards(name: str, value: object) -> int:
    number = _from_one(name, value)
    if number > MOST_SHARDS:
        raise ValueError(f"{name} is {number:,}; give at most {MOST_SHARDS:,}, with many questions in each")
    return number


def _seed(name: str, value: object) -> int:
    return read_whole_number(name, value, "a whole number")


def _minutes(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{name} is {brief(value)}; give a number of minutes above 0")
    return float(value)


def _metadata(name: str, value: object) -> Mapping[str, Any]:
    told = read_model_arguments(name, value)
    if given := [key for key in SET_BY_UNITS if key in told]:
        raise ValueError(f"{name} has {given[0]!r}, which each unit has for itself; give the number as shards instead")
    return told


def _slurm(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} is {brief(value)}; give names and values, such as partition: gpu")
    return {str(key): own for key, own in value.items() if own is not None}


def _folders(name: str, value: object) -> str:
    """With absolute paths, since workers may have another working directory."""
    return ":".join(str(Path(part).expanduser().absolute()) for part in read_text(name, value).split(":") if part)


PLAN_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "models": _models,
    "tasks": _tasks,
    "audits": _audits,
    "runs": read_switch,
    "limit": _from_one,
    "seed": _seed,
    "shards": _shards,
    "metadata": _metadata,
    "include_path": _folders,
    "imports": read_names,
    "retries": _from_zero,
    "minutes": _minutes,
    "workers": _from_one,
    "slurm": _slurm,
    "output_path": read_path,
}
MODEL_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "name": _model_name,
    "model": read_text,
    "model_args": read_model_arguments,
    "gpus": _from_zero,
    "batch_size": read_batch_size,
    "device": read_text,
    "apply_chat_template": read_chat_template,
    "workers": _from_one,
}


RUN = "run"  # the kind of an ordinary run; other kinds are suffixes of audits
SHARD_ID = re.compile(r"(\d+)of(\d+)")


@dataclass(frozen=True, order=True)
class Unit:
    """model: its name in the plan
    kind: `run`, or the suffix of an audit
    shard: of `n_shards`, from 0
    """

    model: str
    task: str
    kind: str
    shard: int
    n_shards: int

    @property
    def id(self) -> str:
        """Such as `smol/arc_challenge/leakage_perm/0of4`: its folder below `runs` and `work`."""
        return f"{self.model}/{self.task}/{self.kind}/{self.shard}of{self.n_shards}"

    @classmethod
    def of_id(cls, text: str) -> Unit:
        """Raises ValueError for anything that is not an id."""
        model, task, kind, shard = text.split("/") if text.count("/") == 3 else ("", "", "", "")
        match = SHARD_ID.fullmatch(shard)
        if match is None or not (model and task and kind):
            raise ValueError(f"{text!r} is not the id of a unit; write it as MODEL/TASK/KIND/0of1")
        return cls(model, task, kind, int(match[1]), int(match[2]))

    @property
    def asked(self) -> str:
        """The task or audit of lm_eval that it runs."""
        return self.task if self.kind == RUN else f"{self.task}_{self.kind}"

    @property
    def metadata(self) -> dict[str, object]:
        """What `--metadata` says of its shard; nothing if it is the whole."""
        return {"shard": f"{self.shard}/{self.n_shards}"} if self.n_shards > 1 else {}


def units_of(plan: CampaignPlan) -> list[Unit]:
    """All units, of each model together, and of each task together."""
    kinds = ([RUN] if plan.runs else []) + list(plan.audits)
    return [
        Unit(model.name, task, kind, shard, plan.shards)
        for model in plan.models
        for task in plan.tasks
        for kind in kinds
        for shard in range(plan.shards)
    ]
