"""Reads from a model's source, without importing it, which arguments it takes and which requests it cannot answer.

Importing `hf` takes seconds, and importing a model whose packages are missing is an error.

Checks that a model exists, has its packages, takes the given arguments and can run audits, without importing it.

What a command is asked for, checked in a few seconds, before data is downloaded and a model loaded.

`check`, `run`, `simulate`, `cost` and `orders` all call `preflight`. What it cannot decide from names, the
texts of YAML files and made-up rows is left to the command.

Checks the options of a command-line run with audits: most before lm_eval indexes its tasks, all before its
model is loaded.
"""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval_leakage.detectors import probes
from lm_eval_leakage.harness.models.question_requests import MEANING, refuses
from lm_eval_leakage.harness.seams.patching import Refusal
from lm_eval_leakage.harness.seams.registries import class_of, model_classes
from lm_eval_leakage.harness.task_names import check_task_names, files_naming, may_make_its_data, task_texts
from lm_eval_leakage.harness.tasks.metadata import SWITCHES, names_audit_or_group, refusal_of_keys, switch_of
from lm_eval_leakage.harness.tasks.templates import (
    FIRST_AUDIT,
    SEAL_KEY,
    names_an_audit,
    needs_seal,
    no_seal,
    parts_of,
    probe_named_by,
    split_name,
    suffixes,
)
from lm_eval_leakage.logs.run import shard_in
from lm_eval_leakage.records import UntestableQuestion
from lm_eval_leakage.texts import brief, did_you_mean

ROOTS = ("lm_eval", "lm_eval_leakage")
READING = {"create_from_arg_string", "create_from_arg_obj"}  # of classes that read their arguments in their own way
AT_THE_TOP = ("LM", "TemplateLM")  # of lm_eval.api.model: every model's base classes


@dataclass(frozen=True)
class ModelSource:
    """What a model's class and its base classes say.

    parameters, required: arguments by name, and those without a default
    takes_others: whether unknown arguments are passed on, to transformers for example
    refused: methods that only raise NotImplementedError
    classes: names of the class and its base classes
    """

    parameters: frozenset[str]
    required: tuple[str, ...]
    takes_others: bool
    refused: frozenset[str]
    classes: tuple[str, ...]


@cache
def model_source(target: str) -> ModelSource | None:
    """Of a class, given as `module:Class`; None if its source cannot be found."""
    classes = list(_lineage(*target.split(":"))) if target else []
    if not classes or not all(isinstance(one, ast.ClassDef) for one in classes):
        return None
    methods: dict[str, ast.FunctionDef] = {}
    arguments: list[ast.arguments] = []
    for one in classes:
        own = {node.name: node for node in one.body if isinstance(node, ast.FunctionDef)}
        methods = own | methods
        if "__init__" in own and (not arguments or arguments[-1].kwarg):
            arguments.append(own["__init__"].args)
    if READING & methods.keys():
        arguments = []
    return ModelSource(
        parameters=frozenset(name for found in arguments for name in _named(found)),
        required=tuple(dict.fromkeys(name for found in arguments for name in _required(found))),
        takes_others=not arguments or arguments[-1].kwarg is not None,
        refused=frozenset(name for name, method in methods.items() if _only_refuses(method)),
        classes=tuple(one.name for one in classes),
    )


def _lineage(module: str, name: str) -> Iterator[ast.ClassDef]:
    """The class and its first base classes, from the most derived."""
    tree = _tree(module)
    if tree is None:
        return
    found = next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)
    if found is None:
        where = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        if name in where:
            yield from _lineage(*where[name])
        return
    yield found
    for base in found.bases[:1]:
        if isinstance(base, ast.Name) and base.id not in AT_THE_TOP:
            yield from _lineage(module, base.id)


@cache
def _tree(module: str) -> ast.Module | None:
    if module.split(".")[0] not in ROOTS:
        return None
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return ast.parse(Path(spec.origin).read_text(encoding="utf-8"))


def _named(found: ast.arguments) -> Iterator[str]:
    yield from (one.arg for one in (*found.posonlyargs, *found.args, *found.kwonlyargs) if one.arg != "self")


def _required(found: ast.arguments) -> Iterator[str]:
    n_required = len(found.args) - len(found.defaults)
    yield from (one.arg for one in found.args[:n_required] if one.arg != "self")


def _only_refuses(method: ast.FunctionDef) -> bool:
    first, *others = [node for node in method.body if not _is_docstring(node)] or [ast.Pass()]
    if others or not isinstance(first, ast.Raise) or first.exc is None:
        return False
    raised = first.exc.func if isinstance(first.exc, ast.Call) else first.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


logger = logging.getLogger(__name__)

GIVES_TOKEN_SCORES = "HFLM"
PACKAGES = {  # what a model's base class needs, and the extra of lm_eval that installs it
    "HFLM": ("hf", ("torch", "transformers", "accelerate")),
    "VLLM": ("vllm", ("vllm",)),
    "TemplateAPI": ("api", ("requests", "aiohttp", "tenacity", "tqdm")),
    "LiteLLMChatCompletion": ("litellm", ("litellm",)),
}
OF_A_SERVER = "TemplateAPI"  # whose models are named as the server names them
PATHS = ("pretrained", "peft", "delta", "tokenizer")  # arguments that may be folders
USUAL_DEVICE = "cuda:0"  # of lm_eval; its models take the device that there is
CONFIGS = ("config.json", "adapter_config.json")  # without one of them, transformers loads nothing from a folder
NUMBER_FORMATS = ("dtype", "softmax_dtype")
USUAL_FORMATS = ("auto", "bfloat16", "float16", "float32", "float64", "half", "float", "double")
# Parts of a value, in which commas separate nothing.
INNER = re.compile(r"""\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)|"[^"]*"|'[^']*'""")
KEYS = re.compile(r"(?:^|,)\s*([^=,\s]+)\s*=")
CLOSE_ARGUMENT = 0.85  # difflib ratio; an argument that resembles none may be one of transformers


def check_model(model: str, audits: Iterable[str], model_args: Mapping[str, Any] | None = None) -> None:
    """Raises ValueError if there is no such model or audit, if it does not take the arguments, or if it cannot answer
    an audit's requests; ImportError if it needs a package that is not installed. Loads nothing.

    audits: such as `leakage_perm`
    """
    for audit in audits:
        if why := why_not(model, audit):
            raise ValueError(f"{audit} cannot run: {why}; leave it out, or choose another model")
    source = source_of(model)
    if source is not None:
        _check_packages(model, source)
        if model_args is not None:
            _check_arguments(model, source, model_args)


def parsed_args(text: str) -> dict[str, Any]:
    """`pretrained=M,dtype=bfloat16` as lm_eval reads it. Raises ValueError for a key that is given twice."""
    from lm_eval.utils import simple_parse_args_string  # slow to import, and tests of what is slow import this module

    check_given_once("model_args", [text])
    return dict(simple_parse_args_string(text))


def check_given_once(option: str, texts: Sequence[str]) -> None:
    """Raises ValueError if `key=value,key2=value2`, or JSON, has a key twice: lm_eval takes the last value without a
    word."""
    names = [name for text in texts for name in _keys_in(text)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{option} gives {twice[0]!r} twice; give it once")


def _keys_in(text: str) -> list[str]:
    if text.lstrip().startswith("{"):
        try:
            pairs = json.loads(text, object_pairs_hook=list)
        except (ValueError, RecursionError):
            return []
        return [str(key) for key, _ in pairs]
    while (outer := INNER.sub("", text)) != text:
        text = outer
    return KEYS.findall(text)


def warn_if_one_at_a_time(model: str, model_args: Mapping[str, Any]) -> None:
    """Says that a server is asked one request at a time, if nothing else was chosen."""
    source = source_of(model)
    if source is not None and OF_A_SERVER in source.classes and "num_concurrent" not in model_args:
        logger.warning(
            "--model_args does not give num_concurrent, so that the server gets one request at a time; "
            "num_concurrent=16 keeps it busy"
        )


def why_not(model: str, audit: str) -> str:
    """Why the model cannot run an audit, as a sentence; empty if it may. Raises ValueError for unknown names."""
    source_of(model)
    parts = parts_of(audit)
    if unknown := [part for part in parts if part not in suffixes()]:
        raise ValueError(f"{unknown[0]!r} is not an audit; choose one of: {', '.join(sorted(suffixes()))}")
    reasons = (why_cannot_answer(model, probes.get(probe_named_by(part)).needs) for part in parts)
    return next(filter(None, reasons), "")


def why_cannot_answer(model: str, need: str) -> str:
    """Why the backend cannot answer requests of this method, as a sentence; empty if it may. Raises ValueError for an
    unknown backend.

    A backend of lm_eval or of this package is judged by its source, without importing it. One of another package is
    judged by its class, and if that cannot be imported, it is left to the run itself.
    """
    source = source_of(model)
    if source is not None:
        unable = GIVES_TOKEN_SCORES not in source.classes if need == "token_scores" else need in source.refused
    else:
        kind = class_of(model)
        of_hf = need == "token_scores" and GIVES_TOKEN_SCORES in {one.__name__ for one in getattr(kind, "__mro__", ())}
        unable = kind is not None and not of_hf and refuses(getattr(kind, need, None), None, [])
    return f"{model} {MEANING[need]}" if unable else ""


def source_of(model: str) -> ModelSource | None:
    """What a model's source says; None for a model of another package. Raises ValueError for an unknown name."""
    known = model_classes()
    if model not in known:
        nearest = did_you_mean(model, known) or f"; choose one of: {', '.join(sorted(known))}"
        raise ValueError(f"{model!r} is not a model of lm_eval{nearest}")
    return model_source(known[model])


def _check_packages(model: str, source: ModelSource) -> None:
    for of_class in source.classes:
        extra, packages = PACKAGES.get(of_class, ("", ()))
        if missing := [package for package in packages if find_spec(package) is None]:
            names = ", ".join(missing)
            raise ImportError(
                f"--model {model} needs {names}, which is not installed; run `pip install 'lm_eval[{extra}]'`"
            )


def check_device(model: str, device: object) -> None:
    """Raises ValueError if torch does not have the device; what lm_eval names by default stands for any."""
    source = source_of(model)
    if device in (None, USUAL_DEVICE) or source is None or GIVES_TOKEN_SCORES not in source.classes:
        return
    import torch

    try:
        found = torch.device(str(device))
    except RuntimeError:
        raise ValueError(
            f"device is {brief(device)}, which torch does not know; choose cpu, cuda, cuda:1 or mps"
        ) from None
    present = torch.cuda.device_count()
    if found.type == "cuda" and (found.index or 0) >= present:
        raise ValueError(
            f"device is {brief(device)}, but torch finds {present} CUDA devices here; choose one of them, or cpu"
        )


def _check_arguments(model: str, source: ModelSource, given: Mapping[str, Any]) -> None:
    for name in given:
        if name in source.parameters:
            continue
        near = get_close_matches(name, source.parameters, n=1, cutoff=CLOSE_ARGUMENT)
        if near or not source.takes_others:
            nearest = f"; did you mean {near[0]}" if near else f"; choose from: {', '.join(sorted(source.parameters))}"
            raise ValueError(f"--model_args has {name!r}, which {model} does not take{nearest}")
    if missing := [name for name in source.required if name not in given]:
        raise ValueError(f"--model_args lacks {missing[0]}, which {model} needs; add {missing[0]}=NAME_OR_FOLDER")
    for name in NUMBER_FORMATS:
        if name in source.parameters and name in given:
            _check_number_format(name, given[name])
    check_device(model, given.get("device"))
    if GIVES_TOKEN_SCORES in source.classes and "gguf_file" not in given:
        _check_weights(given.get("pretrained"))
    for name in PATHS if OF_A_SERVER not in source.classes else ():
        check_path(f"--model_args has {name}={given.get(name)}", given.get(name))


def _check_weights(folder: object) -> None:
    if isinstance(folder, str) and Path(folder).is_dir() and not any((Path(folder) / one).exists() for one in CONFIGS):
        raise ValueError(
            f"--model_args has pretrained={folder}, a folder without {CONFIGS[0]}; give the folder of a model as "
            "save_pretrained writes it"
        )


def check_path(told: str, value: object) -> None:
    """Raises ValueError for a folder that does not exist; a name of the Hub passes."""
    if _is_missing_folder(value):
        raise ValueError(
            f"{told}, but there is no such folder; check the path, or name a model of the Hugging Face Hub, "
            "such as gpt2"
        )


def _check_number_format(name: str, value: object) -> None:
    if value is None or value in USUAL_FORMATS:
        return
    import torch

    if not isinstance(value, torch.dtype) and not isinstance(getattr(torch, str(value), None), torch.dtype):
        nearest = did_you_mean(str(value), USUAL_FORMATS) or f"; choose one of: {', '.join(USUAL_FORMATS)}"
        raise ValueError(f"--model_args has {name}={brief(value)}, which is no number format of torch{nearest}")


def _is_missing_folder(value: object) -> bool:
    """Whether it can only be a path (names of the Hub have at most one slash), and nothing is there."""
    if not isinstance(value, str) or "://" in value:
        return False
    return (value.startswith(("/", ".", "~")) or value.count("/") > 1) and not Path(value).exists()


MOST_ROWS = 2_000  # of a file that a task's own code prepares; more take seconds
MOST_EXAMINED = 40  # tasks of a group; if none of them can be audited, the others are left to the command


def preflight(
    tasks: Sequence[str],
    models: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    audits: Sequence[str] = (),
    include_path: str | Path | None = None,
    data_files: object = None,
    files: Sequence[str | Path] = (),
    device: str | None = None,
    leaves_out: bool = False,
) -> None:
    """Raises ValueError, ImportError or OSError, in one sentence with the remedy, for an unknown task or model, an
    argument that a model does not take, a file without questions or whose right answers cannot be read; and if only
    audits are asked for, and no model can run any of them or a task cannot be audited.

    tasks: as the user names them; patterns and YAML files are not examined
    models: backends with their arguments
    audits: suffixes of the audits of these tasks, such as `leakage_perm`; empty where tasks are audits by name
    data_files: of `--metadata`: the file of questions that audits read instead of the tasks' own data
    files: of plain questions, instead of tasks
    device: of the models, where their arguments name none
    leaves_out: whether the command leaves out tasks that cannot be audited; then one that can is enough
    """
    check_task_names(tasks, include_path)
    for model, model_args in models:
        check_model(model, (), model_args)
        check_device(model, device)
    for file in files:
        _refuse_without_question(file, _questions_in(file))
    named = {task: _parted(task) for task in tasks}
    asked = [*audits, *dict.fromkeys(suffix for _, suffix in named.values() if suffix)]
    if not asked or not all(suffix or audits for _, suffix in named.values()):
        return
    _refuse_unable([model for model, _ in models], asked)
    index = _WrittenIndex(include_path)
    if data_files is not None:
        _refuse_file(data_files, [base for base, _ in named.values()], index)
    elif named:
        _refuse_unauditable([base for base, _ in named.values()], index, leaves_out)


def _parted(task: str) -> tuple[str, str]:
    """An audit's name as task and suffix; the suffix is empty for a task, and the task for an audit of a file."""
    return ("", task) if task in suffixes() else split_name(task) or (task, "")


def _refuse_unable(models: Sequence[str], audits: Sequence[str]) -> None:
    reasons = [(model, audit, why_not(model, audit)) for model in models for audit in audits]
    if reasons and all(reason for _, _, reason in reasons):
        model, audit, reason = reasons[0]
        able = ", ".join(f"TASK_{suffix}" for suffix in sorted(suffixes()) if not why_not(model, suffix))
        raise ValueError(
            f"{audit} cannot run: {reason}; choose another model, or an audit that it can run, such as "
            f"{able or 'none'}"
        )


def _refuse_file(file: object, bases: Sequence[str], index: _WrittenIndex) -> None:
    """Raises ValueError or OSError if the file or its right answers cannot be read, or it has no question that one of
    the tasks could read."""
    rows = _questions_in(file)
    others = [base for base in bases if base in index and not _is_own(base, index)]
    if not others:
        _refuse_without_question(file, rows)
    elif len(others) == 1 and len(rows) <= MOST_ROWS:
        _refuse_misfit(str(file), rows, index[others[0]])


def _refuse_misfit(file: str, rows: Any, entry: Any) -> None:
    """Raises ValueError if the task can read none of the rows, which are no plain questions either."""
    from lm_eval_leakage.harness.auditable import SentinelTask
    from lm_eval_leakage.harness.seams.tasks import Kind
    from lm_eval_leakage.harness.tasks.data import rows_of_file

    if entry.kind is not Kind.TASK:
        return
    try:
        task = SentinelTask(entry.cfg)
    except Exception:  # a task's own module may raise anything; the run says what
        return
    task.dataset, task.features = {}, list(rows.column_names)
    rows_of_file(task, rows, file)


def _questions_in(file: object) -> Any:
    from lm_eval_leakage.harness.tasks.data import read_questions  # imports datasets

    return read_questions(file)


def _refuse_without_question(file: object, rows: Any) -> None:
    from lm_eval_leakage.questions.fields import question_from_doc

    reason = ""
    for doc in rows:
        try:
            question_from_doc(doc)
        except UntestableQuestion as error:
            reason = reason or str(error)
        else:
            return
    raise ValueError(
        f"in the file {str(file)!r} no question can be read ({reason}); give each row the fields question, choices "
        "and answer"
    )


# ---------------------------------------------------------------------- the kind of a task


def _refuse_unauditable(tasks: Sequence[str], index: _WrittenIndex, leaves_out: bool) -> None:
    """Raises ValueError if one of the tasks cannot be audited (where the command `leaves_out` such tasks: if none can
    be), with the reason that `ls` gives."""
    reasons = {task: reason for task in tasks if (reason := _why_unauditable(task, index))}
    if not reasons or (leaves_out and len(reasons) < len(set(tasks))):
        return
    task, reason = next(iter(reasons.items()))
    remedy = "leave it out, or choose another benchmark" if len(set(tasks)) > 1 else "choose another benchmark"
    raise ValueError(
        f"{task} cannot be audited: {reason}; {remedy} (`lm-eval-leakage ls TASK` says whether one can be audited)"
    )


def _why_unauditable(name: str, index: _WrittenIndex) -> str:
    """The reason of the first task in it; empty if one may be audited or the name is not in any YAML."""
    from lm_eval_leakage.harness.auditable import NOT_AUDITED, judge, tasks_of

    if name not in index or _is_own(name, index):
        return ""
    first = ""
    leaves = list(islice(tasks_of(name, index), MOST_EXAMINED + 1))
    for task in leaves:
        status, reason = judge(index[task].cfg or {})
        if status != NOT_AUDITED or len(leaves) > MOST_EXAMINED:
            return ""
        first = first or reason
    return first


def _is_own(name: str, index: _WrittenIndex) -> bool:
    """Whether it is one of our own data sets, whose first audit has a YAML of its own and reads plain fields."""
    return f"{name}_{FIRST_AUDIT}" in index


class _WrittenIndex(dict[str, Any]):
    """lm_eval's index of tasks, groups and tags, read name by name from the YAML files that mention the name: building
    the whole index takes seconds."""

    def __init__(self, include_path: str | Path | None) -> None:
        super().__init__()
        self._texts = task_texts(include_path)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self[name] is not None
        except KeyError:
            return False

    def __missing__(self, name: str) -> Any:
        from lm_eval_leakage.harness.seams.tasks import Kind

        found = None
        for entry in self._entries(name):
            if found is not None and found.kind is Kind.TAG and entry.kind is Kind.TAG:
                found.tags.update(entry.tags)
            else:
                found = entry  # files that are read later have precedence, as in lm_eval
        if found is None:
            raise KeyError(name)
        self[name] = found
        return found

    def _entries(self, name: str) -> Iterator[Any]:
        from lm_eval_leakage.harness.seams.tasks import Entry, Kind, unresolved_settings

        for file in files_naming(name, self._texts):
            try:
                config = unresolved_settings(file)
            except Exception:  # lm_eval leaves out a YAML that cannot be read, whatever it raises
                continue
            tags, task = config.get("tag") or (), config.get("task")
            if "class" not in config and config.get("group") == name:
                yield Entry(name, Kind.GROUP, Path(file), config)
            elif task == name:
                yield Entry(name, Kind.PY_TASK if "class" in config else Kind.TASK, Path(file), config)
            elif isinstance(task, str) and name in ([tags] if isinstance(tags, str) else tags):
                yield Entry(name, Kind.TAG, None, tags={task})


USUAL_MODEL = "hf"  # of lm_eval, without --model
SET_BY_HARNESS = ("trust_remote_code",)  # added to the model's arguments by an option of its own


def check_before_index(options: Any) -> None:
    """Raises ValueError, ImportError or OSError, with the remedy, for what can be told without the index of tasks: a
    misspelled task, a model that does not exist, lacks a package or an argument or cannot run the audits, a file that
    does not exist, an output path that cannot be written, an invalid key of `--metadata`, a malformed shard.

    options: lm_eval's EvaluatorConfig, or the parsed command line
    """
    shard_in(options.metadata)
    tasks = _tasks(options)
    model_args = {name: value for name, value in (options.model_args or {}).items() if name not in SET_BY_HARNESS}
    models, audits = [(options.model or USUAL_MODEL, model_args)], [task for task in tasks if names_an_audit(task)]
    check_task_names(tasks, options.include_path)
    if audits:
        _check_metadata(options, tasks, audits)
    file = (options.metadata or {}).get("data_files") if audits else None
    preflight(tasks, models, include_path=options.include_path, data_files=file, device=options.device)
    if options.output_path:
        from lm_eval_leakage.harness.seams.results import refuse_unwritable  # imports lm_eval.utils

        refuse_unwritable(Path(options.output_path))


def check_run(config: Any, index: Mapping[str, Any]) -> None:
    """Raises Refusal for an unknown key of `--metadata`. Says what makes a run slow.

    config: the harness's EvaluatorConfig, in which the model's arguments and the user's keys are still separate
    """
    audits = [task for task in config.tasks if names_audit_or_group(task, index)]
    if not audits:
        return
    if refusal := refusal_of_keys(_keys(config), of_audits_only=len(audits) == len(config.tasks)):
        raise Refusal(refusal)
    warn_if_one_at_a_time(config.model or USUAL_MODEL, config.model_args or {})


def _tasks(options: Any) -> list[str]:
    given = options.tasks or []
    given = given.split(",") if isinstance(given, str) else given
    return [name for task in given if isinstance(task, str) for name in task.split(",")]


def _check_metadata(options: Any, tasks: Sequence[str], audits: Sequence[str]) -> None:
    metadata = options.metadata or {}
    for switch in SWITCHES:
        switch_of(metadata, switch)
    if "published_orders" in metadata:
        from lm_eval_leakage.harness.tasks.base_task import documented  # imports scipy

        documented(metadata)
    refusal = refusal_of_keys(_keys(options), of_audits_only=len(audits) == len(tasks))
    if refusal and not any(may_make_its_data(task, options.include_path) for task in audits):
        raise ValueError(refusal)
    _check_seal(metadata, audits)


def _check_seal(metadata: Mapping[str, Any], audits: Sequence[str]) -> None:
    if metadata.get(SEAL_KEY) is not None:
        from lm_eval_leakage.harness.tasks.sealed import seal_in  # imports scipy

        seal_in(metadata[SEAL_KEY])
        return
    for audit in audits:
        _, suffix = split_name(audit) or ("", audit)
        if needs_seal(suffix):
            raise ValueError(no_seal(audit))


def _keys(options: Any) -> list[str]:
    """The user's keys of `--metadata`, without the model's arguments, which lm_eval adds to them."""
    return sorted((options.metadata or {}).keys() - (options.model_args or {}))
