"""The plan of a check: its models, tasks, audits and questions, and where the work is done.

A plan is the same from options of the command line, from a YAML file and from Python.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    model_validator,
)

from lm_eval_leakage.files import QUESTION_FILES
from lm_eval_leakage.harness.tasks.templates import FIRST_AUDIT
from lm_eval_leakage.jobs.plan_values import (
    NO_CONTROL,
    TRAIN,
    Arguments,
    Audits,
    BatchSize,
    Count,
    DocumentedOrders,
    Exports,
    FailOn,
    IncludePath,
    Limit,
    ModelArguments,
    ModelName,
    Names,
    OptionalCount,
    OptionalSwitch,
    PositiveControlSetting,
    ReferenceSetting,
    RunFolders,
    Share,
    SlurmSettings,
    Switch,
    UnseenFile,
    without_none,
)
from lm_eval_leakage.logs.run import digest_of
from lm_eval_leakage.questions.named_fields import fields_named
from lm_eval_leakage.stats.order_power import DETECT
from lm_eval_leakage.texts import brief

if TYPE_CHECKING:
    from lm_eval_leakage.harness.named_model import NamedModel

TOKENS, CONFUSION = "leakage_tokens", "choice_confusion"
CHECKED_AUDITS = (FIRST_AUDIT, TOKENS, CONFUSION)
ALL_QUESTIONS: Final = "all"
ENOUGH: Final = "enough"
UNSAFE_IN_TASKS = re.compile(r"[/\\\x00-\x1f\x7f]|^\.|^-|^$")  # a task's name is the name of a folder, too
# instead of `models`
OF_ONE_MODEL = ("model", "model_args", "batch_size", "device", "apply_chat_template", "system_instruction", "gpus")
OF_ENGINES = ("address", "workers", "minutes", "slurm")  # any of them asks for workers
INLINE = "inline"  # the engine that is this process
LONGEST_KEY = 100  # characters of a folder that is named after a model
ONLY_IN_FILES = ("audits", "accuracy", "imports", "retries")  # without an option of the command line
WITHIN_BUDGET = {"audits": (FIRST_AUDIT,), "accuracy": False}  # instead of the defaults
BEYOND_BUDGET = ("questions", "reference", "unseen", "positive_control")
NOT_REPEATED = ("fail_on", "allow_no_verdict", "export", "dry_run", "quiet")
SETTINGS = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), coerce_numbers_to_str=True)


class PlanModel(BaseModel):
    """A model of a plan, with the settings that it is run with.

    name: that the tables show; unique in the plan; may be empty for the only model of a plan
    model, model_args, batch_size, device, apply_chat_template, system_instruction: as for `lm_eval run`
    gpus: that one worker needs; 0 reserves none
    workers: at most so many of this model at once
    """

    model_config = SETTINGS

    name: ModelName = ""
    model: str = "hf"
    model_args: ModelArguments = {}
    gpus: Count = 0
    batch_size: BatchSize = None
    device: str | None = None
    apply_chat_template: Annotated[bool | str, Field(description="true, false, or the name of a template")] = False
    system_instruction: str | None = None
    workers: Limit = None
    _in_memory: Any = PrivateAttr(default=None)
    _own_key: str = PrivateAttr(default="")

    @property
    def loaded(self) -> Any:
        """The model itself, as a harness has loaded it; None if it is to be loaded."""
        return self._in_memory

    def holding(self, lm: Any) -> PlanModel:
        """Return the same model, in memory as `lm`; None if it is to be loaded."""
        model = self.model_copy()
        model._in_memory = lm
        return model

    def another(self, model_args: Mapping[str, Any], others: Collection[PlanModel]) -> PlanModel:
        """Return a model without a name that is run as this one is, and has a key that none of the others has."""
        model = self.model_copy(update={"name": "", "model_args": model_args})
        model._in_memory, model._own_key = None, ""
        if model.key.casefold() in {other.key.casefold() for other in others}:
            # no name has an @
            model._own_key = f"{model.key}@{digest_of({name: str(value) for name, value in model_args.items()})}"
        return model

    def kept_as(self, key: str) -> PlanModel:
        """Return the same model with another name of its folder."""
        model = self.model_copy()
        model._own_key = key
        return model

    @property
    def key(self) -> str:
        """The name of its folder, unique in a plan: its own, or made from the arguments that name the model."""
        if self._own_key or self.name:
            return self._own_key or self.name
        called = re.sub(r"[^A-Za-z0-9._+-]", "_", self.who.name)
        return called[-LONGEST_KEY:].lstrip("._+-") or self.model

    @property
    def who(self) -> NamedModel:
        """The model as lm_eval's command line names it."""
        from lm_eval_leakage.harness.named_model import NamedModel

        settings = {name: getattr(self, name) for name in OF_ONE_MODEL if name != "gpus"}
        return NamedModel(**without_none(settings), called=self.name, loaded=self.loaded)


class Plan(BaseModel):
    """The plan of a check: what is asked of which models, and where the work is done.

    models: or, for one, its settings in their place: model, model_args, batch_size, device, apply_chat_template
    tasks: tasks, groups, tags and patterns of lm_eval, and files of plain questions
    fields: which fields of the rows of files hold question, options and answer
    audits: suffixes of audits, such as `leakage_perm`
    accuracy: whether tasks are also run themselves; by default unless that takes generation without an accelerator
    questions: how many are drawn of each task; ALL_QUESTIONS, or ENOUGH: as many as probably find `detect`; seed: of
        the draw
    budget: at most so many requests of each task, for the audit of option orders that finds most; other audits and
        accuracy only if the plan names them
    max_tokens_asked: of all models together, for what is not done yet, read and at most generated; a plan that asks
        more, as estimated, is refused before any request
    detect: share of the questions, seen three times, that the audit should be able to find
    num_fewshot: examples of the tasks themselves, as for `lm_eval run`; audits have none
    metadata: as for `lm_eval run`; include_path: folders with additional tasks, separated by colons
    imports: Python modules that register backends of your own in lm_eval
    runs: folders of runs and audits of these models that exist already
    reference: a folder of another model's audits, or the model_args of a model to audit as the reference
    unseen: a file of questions of the same kind that the models cannot have seen
    positive_control: rows that the models may have learned, audited in the same way: "train", the task's training
        split (by default where it has one and the plan has no `models`), "none", or a file
    orders: what the builder of the one task says about its published orders, as "random: SOURCE"

    engine: what starts workers; None chooses; address: of a cluster
    retries: how often a unit that failed is tried again; minutes: the time limit of one attempt at a unit
    workers: at most so many at once; None leaves it to the engine
    slurm: what `engine: slurm` asks of Slurm for each job, such as partition and timeout_min

    output_path: the folder for runs, pages and tables
    fail_on: the verdict from which on the command fails; allow_no_verdict: whether benchmarks without one pass
    export: formats in which verdicts are written, too
    dry_run: only plan; quiet: print only the verdicts
    """

    model_config = SETTINGS

    models: Annotated[
        tuple[PlanModel, ...],
        Field(min_length=1, description="a list of models, each with name, model and model_args"),
    ]
    tasks: Names
    fields: Annotated[
        dict[str, str],
        BeforeValidator(fields_named),
        Field(description="names of fields, such as question=input,options=alternatives,answer=target"),
    ] = {}
    runs: RunFolders = ()
    reference: ReferenceSetting | None = None
    unseen: UnseenFile | None = None
    positive_control: PositiveControlSetting | None = None
    orders: DocumentedOrders | None = None
    audits: Audits = CHECKED_AUDITS
    accuracy: OptionalSwitch = None
    questions: Annotated[
        PositiveInt | Literal["all", "enough"], Field(description="a whole number from 1, 'all' or 'enough'")
    ] = ENOUGH
    budget: Limit = None
    detect: Share = DETECT
    max_tokens_asked: Limit = None
    seed: Annotated[int, Field(description="a whole number")] = 0
    num_fewshot: OptionalCount = None
    metadata: Annotated[Arguments, Field(description="settings of the audits, such as layouts=every")] = {}
    output_path: Annotated[Path, AfterValidator(Path.expanduser)] = Path("leakage")
    include_path: IncludePath | None = None
    imports: Names = ()
    engine: str | None = None
    address: str | None = None
    retries: Count = 1
    minutes: Annotated[PositiveFloat | None, Field(description="a number of minutes above 0")] = None
    workers: Limit = None
    slurm: SlurmSettings = {}
    fail_on: FailOn | None = None
    allow_no_verdict: Switch = False
    export: Exports = ()
    dry_run: Switch = False
    quiet: Switch = False

    _reference_key: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _fits(self) -> Plan:
        names = [model.name for model in self.models]
        folders = [name.casefold() for name in names]  # which some file systems cannot tell apart
        given = filter(None, names)
        if twice := [name for name in given if folders.count(name.casefold()) > 1]:
            alike = " and ".join(map(repr, dict.fromkeys(twice[:2])))
            raise ValueError(f"models has two that are named {alike}; give each a name of its own")
        if not all(names) and len(names) > 1:
            raise ValueError(f"models[{names.index('')}] has no name; give one that the tables show, as name: smol")
        if not self.tasks:
            raise ValueError("tasks is empty; name at least one task or group of lm_eval")
        if self.accuracy is False and not self.audits:
            raise ValueError("audits is empty and accuracy is false, so that there is nothing to do; name an audit")
        self._fits_files()
        for name, what in (("unseen", "questions of the same kind"), ("orders", "what the author documents")):
            if getattr(self, name) is not None and len(self.tasks) != 1:
                raise ValueError(f"{name} is for one benchmark, {what}; name one task with --{name}")
        if self.is_here and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "check runs in one process; use more accelerators by model_args, such as parallelize=True"
            )
        if self.budget is not None:
            self._fits_budget()
        if not self.is_here:
            self._fits_workers()
        return self

    def _fits_files(self) -> None:
        files = [task for task in self.tasks if task.endswith(QUESTION_FILES)]
        for task in filter(UNSAFE_IN_TASKS.search, self.tasks):
            if task not in files:
                raise ValueError(
                    f"tasks has {brief(task)}, which cannot be the name of a folder; name tasks, and give the folder "
                    "of your own with include_path"
                )
        if self.fields and not files and self.unseen is None:
            fields = ",".join(f"{part}={field}" for part, field in self.fields.items())
            raise ValueError(
                f"fields is {fields!r}, but tasks names no file of questions; name one, or leave out fields"
            )

    def _fits_budget(self) -> None:
        fields = type(self).model_fields
        given = [name for name in BEYOND_BUDGET if getattr(self, name) != fields[name].default]
        if given or "orders" in self.metadata:
            raise ValueError(
                f"budget is {self.budget:,} requests, for which questions and their orders are chosen, and nothing "
                f"else is run; leave out {given[0] if given else 'the orders in metadata'}, or the budget"
            )

    def _fits_workers(self) -> None:
        for place, model in enumerate(self.models):
            n_parallel = int(model.model_args.get("tensor_parallel_size") or 1)
            if n_parallel > 1 and model.gpus != n_parallel:
                values = f"tensor_parallel_size={n_parallel} and gpus: {model.gpus}"
                raise ValueError(f"models[{place}] has {values}; give the same number")

    @property
    def compares_models(self) -> bool:
        """True if its models have names, as in tables that compare them on the same questions."""
        return bool(self.models[0].name)

    @property
    def is_here(self) -> bool:
        """True if one model is asked in this process, while the user watches."""
        (first, *others), fields = self.models, type(self).model_fields
        chosen = self.engine == INLINE or (self.engine is None and not first.name)
        is_alone = chosen and not others and not first.gpus
        return is_alone and all(getattr(self, name) == fields[name].default for name in OF_ENGINES)

    @property
    def has_command(self) -> bool:
        """True if `as_command` can express all of it."""
        return self.is_here and all(getattr(self, name) == self.defaults[name] for name in ONLY_IN_FILES)

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of its fields and of those of its models, within its budget if it has one."""
        fields = {name: field.default for kind in (PlanModel, Plan) for name, field in kind.model_fields.items()}
        return fields | ({} if self.budget is None else WITHIN_BUDGET)

    @property
    def reference_models(self) -> tuple[PlanModel, ...]:
        """The one that is audited as the reference, if there is one."""
        return self.asked_models[len(self.models) :]

    @property
    def asked_models(self) -> tuple[PlanModel, ...]:
        """The models, and the one that is audited as their reference."""
        first, args = self.models[0], self.reference
        if not isinstance(args, Mapping):
            return self.models
        other = first.another(args, self.models)
        return (*self.models, other.kept_as(self._reference_key or other.key))

    def kept_as(self, keys: Mapping[str, str]) -> Plan:
        """Return the same plan with the folder in which a model without a name, and its reference, have been before.

        keys: names of folders by digests of identities
        """
        if self.compares_models:
            return self

        def key_of(model: PlanModel) -> str:
            return keys.get(digest_of(model.who.identity)) or model.key

        (model,) = self.models
        plan = self.changed(models=(model.kept_as(key_of(model)),))
        for reference in plan.reference_models:
            if (key := key_of(reference)).casefold() != plan.models[0].key.casefold():
                plan._reference_key = key
        return plan

    def model(self, key: str) -> PlanModel:
        return next(model for model in self.asked_models if model.key == key)

    @property
    def of_unseen(self) -> dict[str, object]:
        """The metadata by which an audit asks the unseen questions instead of the task's own."""
        return {"data_files": str(self.unseen), **({"fields": dict(self.fields)} if self.fields else {})}

    @property
    def given_files(self) -> list[Path]:
        """The files of rows that it names beside those of its tasks."""
        named = [] if self.positive_control in (None, TRAIN, NO_CONTROL) else [Path(str(self.positive_control))]
        return [*named, *([self.unseen] if self.unseen is not None else [])]

    @property
    def of_positive(self) -> dict[str, object]:
        """The metadata by which an audit asks the positive control instead of the task's own rows."""
        if self.positive_control in (None, TRAIN):
            return {"split": TRAIN}
        return {"data_files": self.positive_control, **({"fields": dict(self.fields)} if self.fields else {})}

    @property
    def include_paths(self) -> list[str]:
        return [part for part in (self.include_path or "").split(":") if part]

    def changed(self, **values: Any) -> Plan:
        """Return the same plan with other values, which are not checked."""
        return self.model_copy(update=values)


MODEL_FIELDS, PLAN_FIELDS = tuple(PlanModel.model_fields), tuple(Plan.model_fields)
SETTING_NAMES = (*PLAN_FIELDS, *OF_ONE_MODEL)


def as_settings(plan: Plan) -> dict[str, Any]:
    """Return the plan as names and values, from which `check_plan` makes it again; without what is not set."""
    settings = {"questions": plan.questions, **plan.model_dump(mode="json", exclude_none=True)}
    settings["models"] = [
        {name: value for name, value in model.items() if value != ""} for model in settings["models"]
    ]
    return {name: value for name, value in settings.items() if name == "audits" or value not in ([], {})}


def plan_as_yaml(plan: Plan) -> str:
    """Return the text of a file from which `check_plan` makes the plan again."""
    return str(yaml.safe_dump(as_settings(plan), sort_keys=False, allow_unicode=True))


def as_command(plan: Plan) -> str:
    """Return the command line of a plan that `has_command`, without settings of its output and its exit status."""
    (model,) = plan.models
    settings = {name: getattr(model, name) for name in OF_ONE_MODEL} | {
        name: getattr(plan, name) for name in PLAN_FIELDS
    }
    words = ["lm-eval-leakage", "check", "--model", model.model]
    for name, value in settings.items():
        if name not in ("model", "models", *NOT_REPEATED) and value != plan.defaults[name]:
            for arguments in _as_words(name, value):
                words += [f"--{name}", *arguments]
    return shlex.join(words)


def _as_words(name: str, value: object) -> list[list[str]]:
    """Return what follows the option each time that it is given."""
    if value is True:
        return [[]]
    if isinstance(value, Mapping):
        return [[",".join(f"{key}={argument}" for key, argument in value.items())]]
    if isinstance(value, tuple):
        parts = [str(part) for part in value]
        return [[part] for part in parts] if name == "runs" else [[",".join(parts)]]
    return [[str(value)]]
