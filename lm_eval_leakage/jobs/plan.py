"""The plan of a check: its models, tasks, audits and questions, and where the work is done.

Options of the command line, a YAML file and Python values all become the same `Plan`, which refuses values that do
not fit together. A plan can be written as YAML, and most plans of one model as a command line.
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
from lm_eval_leakage.harness.arguments import typed_args
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
# settings of a plan's only model, which the command line and a file may give in place of `models`
OF_ONE_MODEL = ("model", "model_args", "batch_size", "device", "apply_chat_template", "system_instruction", "gpus")
OF_ENGINES = ("address", "workers", "minutes", "slurm")  # with any of them, an engine starts workers
INLINE = "inline"  # the engine that is this process
LONGEST_KEY = 100  # characters of a folder's name that is made from the arguments of a model
ONLY_IN_FILES = ("audits", "accuracy", "imports", "retries")  # without an option of the command line
WITHIN_BUDGET = {"audits": (FIRST_AUDIT,), "accuracy": False}  # defaults of a plan that has a budget
REFUSED_WITH_BUDGET = ("questions", "reference", "unseen", "positive_control")
NOT_IN_COMMAND = ("fail_on", "allow_no_verdict", "export", "dry_run", "quiet")
FIELD_RULES = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), coerce_numbers_to_str=True)


class PlanModel(BaseModel):
    """A model of a plan, with the settings that it is run with.

    name: shown in the tables, and the name of its folder; unique in the plan; the only model may have none
    model, model_args, batch_size, device, apply_chat_template, system_instruction: as for `lm_eval run`
    gpus: number that each worker of the model reserves; 0 reserves none
    workers: the most workers of this model at once
    """

    model_config = FIELD_RULES

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
    _fixed_key: str = PrivateAttr(default="")

    @property
    def loaded(self) -> Any:
        """The model in memory, as a harness has loaded it; None if the check has to load it."""
        return self._in_memory

    def holding(self, lm: Any) -> PlanModel:
        """Return a copy whose `loaded` is `lm`."""
        model = self.model_copy()
        model._in_memory = lm
        return model

    def with_other_args(self, model_args: Mapping[str, Any], others: Collection[PlanModel]) -> PlanModel:
        """Return another model that has these arguments and otherwise the settings of this one.

        It has no name, and its key differs from those of the others.
        """
        model = self.model_copy(update={"name": "", "model_args": model_args})
        model._in_memory, model._fixed_key = None, ""
        if model.key.casefold() in {other.key.casefold() for other in others}:
            # no model's name may contain @, so that the key is new
            model._fixed_key = f"{model.key}@{digest_of({name: str(value) for name, value in model_args.items()})}"
        return model

    def with_key(self, key: str) -> PlanModel:
        """Return a copy that has this key, whatever its name and arguments are."""
        model = self.model_copy()
        model._fixed_key = key
        return model

    @property
    def key(self) -> str:
        """The name of the model's folder, unique in a plan: its name, or one made from its arguments."""
        if self._fixed_key or self.name:
            return self._fixed_key or self.name
        safe_name = re.sub(r"[^A-Za-z0-9._+-]", "_", self.who.name)
        return safe_name[-LONGEST_KEY:].lstrip("._+-") or self.model

    @property
    def who(self) -> NamedModel:
        """The model as lm_eval's command line names it, by which runs of the same model are recognized."""
        from lm_eval_leakage.harness.named_model import NamedModel

        settings = {name: getattr(self, name) for name in OF_ONE_MODEL if name != "gpus"}
        return NamedModel(**without_none(settings), called=self.name, loaded=self.loaded)


class Plan(BaseModel):
    """The plan of a check: which models are run on what, and where the work is done.

    models: the models to check; a file may give the settings of a single model, such as `model_args`, in their place
    tasks: tasks, groups, tags and patterns of lm_eval, and files of plain questions
    fields: names of the fields that hold question, options and answer in the rows of files
    audits: suffixes of audits, such as `leakage_perm`
    accuracy: whether each task is run itself, beside its audits; None runs it unless it generates on a CPU
    questions: how many are drawn of each task; ALL_QUESTIONS; or ENOUGH, as many as are probably needed to find a
        leak of the size `detect`
    seed: seeds the draw of questions
    budget: the most requests per task. The questions and orders that find most with them are chosen; other audits
        and accuracy run only if the plan names them
    max_tokens_asked: the most tokens that the runs still to be done may read and generate, for all models together. A
        plan is refused before any request if its estimate, with generations of full length, is higher
    detect: share of the questions that, if seen three times, the audit should be able to find
    num_fewshot: examples of the tasks themselves, as for `lm_eval run`; audits have none
    metadata: as for `lm_eval run`
    include_path: folders with additional tasks, separated by colons
    imports: Python modules that register the user's own backends in lm_eval
    runs: folders of existing runs and audits of these models
    reference: the folder of another model's audits, or a mapping: the model_args of a model to audit as the reference
    unseen: a file of questions of the same kind that the models cannot have seen
    positive_control: rows that the models may have learned, audited in the same way: "train", the task's training
        split (by default where it has one and the plan has no `models`), "none", or a file
    orders: what the author of the only task documents about its published orders, as "random: SOURCE"

    engine: the name of what starts workers; None chooses
    address: the address of a cluster
    retries: how often a failed unit is tried again
    minutes: the time limit of one attempt at a unit
    workers: the most workers at once; None leaves it to the engine
    slurm: settings of each Slurm job, such as partition and timeout_min, for `engine: slurm`

    output_path: the folder for runs, pages and tables
    fail_on: the condition with which the command fails: a verdict word, met by it and more suspicious ones, or a
        comparison such as `flagged_share>0.1`
    allow_no_verdict: whether benchmarks without a verdict pass
    export: additional formats in which verdicts are written
    dry_run: whether to stop after planning
    quiet: whether only the verdicts are printed
    """

    model_config = FIELD_RULES

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
    def _refuse_what_does_not_fit(self) -> Plan:
        """Return the plan itself, or raise ValueError for values that are valid alone but not together."""
        names = [model.name for model in self.models]
        folders = [name.casefold() for name in names]  # some file systems ignore the case of names
        clashing = [name for name in names if name and folders.count(name.casefold()) > 1]
        if clashing:
            alike = " and ".join(map(repr, dict.fromkeys(clashing[:2])))
            raise ValueError(f"models has two that are named {alike}; give each a name of its own")
        if not all(names) and len(names) > 1:
            raise ValueError(f"models[{names.index('')}] has no name; give one that the tables show, as name: smol")
        if not self.tasks:
            raise ValueError("tasks is empty; name at least one task or group of lm_eval")
        if self.accuracy is False and not self.audits:
            raise ValueError("audits is empty and accuracy is false, so that there is nothing to do; name an audit")
        self._refuse_tasks_and_fields()
        for name, what in (("unseen", "questions of the same kind"), ("orders", "what the author documents")):
            if getattr(self, name) is not None and len(self.tasks) != 1:
                raise ValueError(f"{name} is for one benchmark, {what}; name one task with --{name}")
        if self.is_here and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(
                "check runs in one process; use more accelerators by model_args, such as parallelize=True"
            )
        if self.budget is not None:
            self._refuse_beside_budget()
        if not self.is_here:
            self._refuse_other_numbers_of_gpus()
        return self

    def _refuse_tasks_and_fields(self) -> None:
        """Raise ValueError for tasks that cannot name a folder, and for `fields` without a file of questions."""
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

    def _refuse_beside_budget(self) -> None:
        """Raise ValueError for settings that a budget decides or rules out."""
        fields = type(self).model_fields
        given = [name for name in REFUSED_WITH_BUDGET if getattr(self, name) != fields[name].default]
        if given or "orders" in self.metadata:
            raise ValueError(
                f"budget is {self.budget:,} requests, for which questions and their orders are chosen, and nothing "
                f"else is run; leave out {given[0] if given else 'the orders in metadata'}, or the budget"
            )

    def _refuse_other_numbers_of_gpus(self) -> None:
        """Raise ValueError if a model's `tensor_parallel_size` is not the number of GPUs of its workers."""
        for place, model in enumerate(self.models):
            n_parallel = int(model.model_args.get("tensor_parallel_size") or 1)
            if n_parallel > 1 and model.gpus != n_parallel:
                values = f"tensor_parallel_size={n_parallel} and gpus: {model.gpus}"
                raise ValueError(f"models[{place}] has {values}; give the same number")

    @property
    def compares_models(self) -> bool:
        """True if the models have names, so that tables compare them on the same questions."""
        return bool(self.models[0].name)

    @property
    def is_here(self) -> bool:
        """True if the plan's only model runs in this process, while the user watches."""
        first = self.models[0]
        if len(self.models) > 1 or first.gpus:
            return False
        if self.engine != INLINE and (self.engine is not None or first.name):
            return False
        fields = type(self).model_fields
        return all(getattr(self, name) == fields[name].default for name in OF_ENGINES)

    @property
    def has_command(self) -> bool:
        """True if `as_command` can express every setting of the plan."""
        return self.is_here and all(getattr(self, name) == self.defaults[name] for name in ONLY_IN_FILES)

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the fields of a plan and of its models; a plan that has a budget has other defaults."""
        fields = {name: field.default for kind in (PlanModel, Plan) for name, field in kind.model_fields.items()}
        return fields | ({} if self.budget is None else WITHIN_BUDGET)

    @property
    def reference_models(self) -> tuple[PlanModel, ...]:
        """The model that is audited as the reference; empty without one."""
        return self.all_models[len(self.models) :]

    @property
    def all_models(self) -> tuple[PlanModel, ...]:
        """The models, followed by the one that is audited as their reference, if the plan has one."""
        if not isinstance(self.reference, Mapping):  # none, or a folder
            return self.models
        reference = self.models[0].with_other_args(self.reference, self.models)
        return (*self.models, reference.with_key(self._reference_key or reference.key))

    def with_earlier_keys(self, keys: Mapping[str, str]) -> Plan:
        """Return the same plan with the keys that a model without a name and its reference had in an earlier check.

        The same weights under another path then stay in the same folder. The reference keeps a new key if its earlier
        one is now the model's.

        keys: earlier keys by digests of the models' identities
        """
        if self.compares_models:
            return self

        def key_of(model: PlanModel) -> str:
            return keys.get(digest_of(model.who.identity)) or model.key

        (model,) = self.models
        plan = self.changed(models=(model.with_key(key_of(model)),))
        for reference in plan.reference_models:
            if (key := key_of(reference)).casefold() != plan.models[0].key.casefold():
                plan._reference_key = key
        return plan

    def model(self, key: str) -> PlanModel:
        """Return the model, or reference model, that has this key."""
        return next(model for model in self.all_models if model.key == key)

    @property
    def unseen_metadata(self) -> dict[str, object]:
        """The metadata with which an audit reads the unseen questions instead of the task's own."""
        return {"data_files": str(self.unseen), **({"fields": dict(self.fields)} if self.fields else {})}

    @property
    def given_files(self) -> list[Path]:
        """The files of the positive control and of the unseen questions, as far as the plan names them."""
        controls = [] if self.positive_control in (None, TRAIN, NO_CONTROL) else [Path(str(self.positive_control))]
        return [*controls, *([self.unseen] if self.unseen is not None else [])]

    @property
    def positive_metadata(self) -> dict[str, object]:
        """The metadata with which an audit reads the positive control instead of the task's own rows."""
        if self.positive_control in (None, TRAIN):
            return {"split": TRAIN}
        return {"data_files": self.positive_control, **({"fields": dict(self.fields)} if self.fields else {})}

    @property
    def include_paths(self) -> list[str]:
        """The folders of `include_path`, one by one."""
        return [part for part in (self.include_path or "").split(":") if part]

    def changed(self, **values: Any) -> Plan:
        """Return a copy that has these values, which are not checked again."""
        return self.model_copy(update=values)


MODEL_FIELDS, PLAN_FIELDS = tuple(PlanModel.model_fields), tuple(Plan.model_fields)
SETTING_NAMES = (*PLAN_FIELDS, *OF_ONE_MODEL)


def as_settings(plan: Plan) -> dict[str, Any]:
    """Return the settings of a plan as plain values, without empty ones; `check_plan` turns them into the plan."""
    settings = {"questions": plan.questions, **plan.model_dump(mode="json", exclude_none=True)}
    settings["models"] = [
        {name: value for name, value in model.items() if value != ""} for model in settings["models"]
    ]
    # no audits differ from the default audits, so that an empty list of them is kept
    return {name: value for name, value in settings.items() if name == "audits" or value not in ([], {})}


def plan_as_yaml(plan: Plan) -> str:
    """Return the text of a YAML file that `check_plan` turns into the plan."""
    return str(yaml.safe_dump(as_settings(plan), sort_keys=False, allow_unicode=True))


def as_command(plan: Plan) -> str:
    """Return the command line that runs a plan, without the settings that are NOT_IN_COMMAND.

    The plan must satisfy `has_command`.
    """
    (model,) = plan.models
    settings = {name: getattr(model, name) for name in OF_ONE_MODEL} | {
        name: getattr(plan, name) for name in PLAN_FIELDS
    }
    words = ["lm-eval-leakage", "check", "--model", model.model]
    for name, value in settings.items():
        if name not in ("model", "models", *NOT_IN_COMMAND) and value != plan.defaults[name]:
            for arguments in _as_words(name, value):
                words += [f"--{name}", *arguments]
    return shlex.join(words)


def _as_words(name: str, value: object) -> list[list[str]]:
    """Return the arguments of each use of the option `--NAME`: [[]] for a switch, several lists if it is repeated."""
    if value is True:
        return [[]]
    if isinstance(value, Mapping):
        return [[typed_args(value)]]
    if isinstance(value, tuple):
        parts = [str(part) for part in value]
        return [[part] for part in parts] if name == "runs" else [[",".join(parts)]]
    return [[str(value)]]
