"""Identify a model by everything that its answers depend on, to decide whether saved answers and runs can be reused.

An identity is a mapping from names of properties, mostly arguments of the backend, to texts. Local files count by
their content alone: the same weights under another path are the same model, and other weights under the same path are
another one. A model of the hub counts by its name and commit. Which model a server answers with is not seen, nor are
edits of the hub's own cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage.digests import content_digest
from lm_eval_leakage.harness.seams.evaluation import Evaluation
from lm_eval_leakage.logs.answer_store import NAMING
from lm_eval_leakage.logs.model_settings import HOW_IT_RUNS
from lm_eval_leakage.logs.run import LOCAL, OF_CHECK
from lm_eval_leakage.texts import texts_within

CONFIGURATIONS = ("config.json", "adapter_config.json", "tokenizer_config.json")  # one of them is in any model's cache
# What a model's folder may hold that no answer depends on: left by training and by evaluations, or written for people.
LEFTOVERS = (
    *("optimizer.*", "optimizer-*", "scheduler.*", "scaler.*", "rng_state*", "random_states_*", "sampler*.bin"),
    *("trainer_state.json", "training_args.bin", "*.tfevents.*", "*.log", "*.lock"),
    *("results_*.json", "samples_*.jsonl", "README*", "*.md", "LICENSE*", "NOTICE*", ".*"),
)
LEFTOVER_FOLDERS = (
    *("checkpoint-*", "global_step*", "optimizer_*", "runs", "logs", "wandb", "mlruns", "__pycache__"),
    *("leakage", "leakage_answers", ".*"),
)
BASE, CODE = "base", "code"  # what an argument's model refers to: the base of an adapter, a repository of code
FOLDER_ARGUMENTS = (*NAMING, "tokenizer", "lora_local_path", "gguf_file", BASE, CODE)  # a folder counts by its files
SERVER_ARGUMENTS = ("model", "engine")  # the value is sent to a server, so that it counts even if it is a path
REMOTE_CODE = "trust_remote_code"  # counts only if the model's configuration names code
FAST_TOKENIZER = "use_fast_tokenizer"  # counts only if it is False
VALUES_PER_TENSOR = 64  # that a digest of weights in memory rests on

_before_loading: dict[tuple[str, str], str] = {}  # local files of models, by argument and value: note_before_loading


def folder_in_cache(name: str, revision: object = None, files: Sequence[str] = CONFIGURATIONS) -> Path | None:
    """Return the folder in the local cache of the hub that has one of these files of a model; None if there is none.

    The folder's name is the commit that is cached.
    """
    try:
        paths = [try_to_load_from_cache(name, file, revision=str(revision or "main")) for file in files]
    except HFValidationError:  # the name is not one of the hub
        return None
    return next((Path(file).parent for file in paths if isinstance(file, str)), None)


def identity_of(evaluation: Evaluation, named: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the identity of a loaded model.

    It is None for a model that was passed as an object and whose weights cannot be read: nothing would show that it
    is another model next time.

    named: its `named_identity` when it was loaded; by default that of now
    """
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # unwraps the harness's response cache
    weights = _weights_digest(getattr(lm, "model", None))
    if evaluation.model is None and weights is None:
        return None
    identity = named_identity(evaluation) if named is None else dict(named)
    identity.setdefault("backend", f"{type(lm).__module__}.{type(lm).__qualname__}")
    for name in ("softmax_dtype", "mixed_precision_dtype", "add_bos_token"):
        if getattr(lm, name, None) is not None:
            identity.setdefault(name, str(getattr(lm, name)))
    dtype = getattr(getattr(lm, "model", None), "dtype", None)
    if dtype is not None:
        identity["dtype"] = str(dtype)
    if weights is not None:
        identity["weights"] = weights
    return identity


def named_identity(evaluation: Evaluation) -> dict[str, str]:
    """Return the part of a model's identity that needs no loading, as runs record it.

    It has the backend, the arguments, digests of the files that these name, and the settings of prompts such as the
    chat template. It is empty for a model that was passed as an object.
    """
    if evaluation.model is None:
        return {}
    arguments = model_arguments(evaluation.model_args)
    identity = {"backend": evaluation.model}
    for name, value in sorted(arguments.items()):
        if name not in HOW_IT_RUNS:
            identity[name] = _identified_value(name, value, arguments)
    identity |= _base_model(arguments) | _remote_code(arguments)
    if str(arguments.get(FAST_TOKENIZER)) == "False":
        identity[FAST_TOKENIZER] = "False"
    return identity | {name: str(value) for name, value in sorted(evaluation.asked_with.items()) if value}


def as_loaded(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the `named_identity` of a model at the time of its loading.

    The digests of local files are those from before it was loaded, since the files may have been replaced since then.
    All else is that of now, since a model of the hub may have been downloaded, and so got its commit, by loading it.

    before, now: `named_identity` before the model was loaded, and now
    """
    return {**now, **{name: value for name, value in before.items() if LOCAL.fullmatch(value)}}


def refuse_replaced(
    before: Mapping[str, str], now: Mapping[str, str], model_args: str | Mapping[str, Any] | None
) -> None:
    """Raise ValueError if local files of a model changed while it was loaded, since it may have the old or the new.

    before, now: `named_identity` before the model was loaded, and now
    model_args: the arguments that name the files
    """
    arguments = model_arguments(model_args)
    for name, value in before.items():
        if LOCAL.fullmatch(value) and now.get(name) != value:
            raise ValueError(
                f"{name} is {str(arguments.get(name, name))!r}, whose files changed while the model was loaded, so "
                "that its answers may be of neither; start the same command again when nothing writes to them"
            )


def model_arguments(model_args: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a model's arguments as lm_eval reads them."""
    return dict(simple_parse_args_string(model_args)) if isinstance(model_args, str) else {**(model_args or {})}


def note_before_loading(model: str, model_args: str | Mapping[str, Any] | None) -> None:
    """Remember the files of a model that lm_eval is about to load, for `refuse_replaced_since_noted`."""
    arguments = model_arguments(model_args)
    for name, value in named_identity(Evaluation(None, model=model, model_args=arguments)).items():
        if LOCAL.fullmatch(value):
            _before_loading[name, str(arguments.get(name, ""))] = value


def refuse_replaced_since_noted(now: Mapping[str, str], model_args: str | Mapping[str, Any] | None) -> None:
    """Raise ValueError if files of the model changed since `note_before_loading`, and forget what that noted.

    now: `named_identity` of the loaded model
    """
    arguments = model_arguments(model_args)
    before = {name: _before_loading.pop((name, str(arguments.get(name, ""))), "") for name in now}
    refuse_replaced(before, now, arguments)


def _identified_value(name: str, value: object, arguments: Mapping[str, Any]) -> str:
    """Return the value of an argument as an identity has it.

    A local file or folder counts by a digest of its content instead of its path, a model of the hub by its name and
    commit, and anything else as it is.
    """
    if not isinstance(value, str | os.PathLike):
        return repr(value)
    value, subfolder = os.fspath(value), str(arguments.get("subfolder") or "")
    path = _local_path(value)
    if path is None and name == "gguf_file":
        path = _local_path(str(Path(str(arguments.get("pretrained", "")), subfolder, value)))
    if path is not None and (path.is_file() or name in FOLDER_ARGUMENTS or _has_configuration(path)):
        digest = f"({_files_digest(path, subfolder)})"
        return f"{value} {digest}" if name in SERVER_ARGUMENTS else f"files {digest}"
    commit = folder_in_cache(value, arguments.get("revision"))
    return f"{value} ({commit.name})" if commit else value


def _has_configuration(folder: Path) -> bool:
    """Return whether a folder is that of a model, an adapter or a tokenizer.

    The files of other folders, such as one for output, do not count, since they may change while a model runs.
    """
    return any((folder / file).is_file() for file in CONFIGURATIONS)


def _local_path(value: str) -> Path | None:
    """Return the local file or folder that a text names; None if there is none."""
    path = Path(value).expanduser()
    try:
        return path if value and path.exists() else None
    except (OSError, ValueError):  # not a path, for example a very long text
        return None


def _base_model(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the base model of an adapter that is named as the model, as a property; empty if there is none."""
    value = arguments.get("pretrained")
    if not isinstance(value, str | os.PathLike):
        return {}
    adapter = _configurations(value, arguments).get("adapter_config.json", {})
    base = adapter.get("base_model_name_or_path")
    return {f"pretrained.{BASE}": _identified_value(BASE, base, {})} if isinstance(base, str) and base else {}


def _remote_code(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return whether code that comes with the model is run, as a property with the other repositories that have code.

    It is empty if the arguments do not allow such code, or the model has none.
    """
    if str(arguments.get(REMOTE_CODE)).lower() not in ("true", "1"):
        return {}
    repositories: dict[str, None] = {}  # the model's own is ""
    for name, value in arguments.items():
        if name in HOW_IT_RUNS or not isinstance(value, str | os.PathLike):
            continue
        for configuration in _configurations(value, arguments).values():
            for reference in texts_within(configuration.get("auto_map")):  # module.Class or repository--module.Class
                repositories[reference.partition("--")[0] if "--" in reference else ""] = None
    if not repositories:
        return {}
    others = [_identified_value(CODE, repository, {}) for repository in repositories if repository]
    return {REMOTE_CODE: ", ".join(["True", *others])}


def _configurations(value: str | os.PathLike[str], arguments: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the contents of CONFIGURATIONS of the model that a value names; empty if it names no model."""
    name = os.fspath(value)
    folder = _local_path(name) or folder_in_cache(name, arguments.get("revision"))
    return {file: _json_object(folder / file) for file in CONFIGURATIONS} if folder else {}


def _json_object(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; empty if it cannot be read or holds no object."""
    try:
        settings = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


def _files_digest(path: Path, subfolder: str) -> str:
    """Return a digest of the content of a file, or of the model's files in a folder and their paths below it."""
    digest = blake2b(digest_size=8)
    if path.is_file():
        digest.update(content_digest(path).encode())
    else:
        for name, file in sorted(_model_files(path, subfolder)):
            digest.update(f"{name} {content_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _model_files(folder: Path, subfolder: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a model, at any depth, with their paths below its folder.

    Leftovers and the outputs of a check are left out. Where a subfolder is named, other subfolders are left out, too.
    """
    inner = folder / subfolder
    if subfolder and inner.is_dir():
        yield from ((f"{subfolder}/{name}", file) for name, file in _model_files(inner, ""))
    visited = set[str]()
    for parent, folders, names in os.walk(folder, followlinks=True):
        is_output = parent != str(folder) and {*names} >= OF_CHECK
        real = os.path.realpath(parent)
        if is_output or real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [] if subfolder else [name for name in folders if not _is_any(name, LEFTOVER_FOLDERS)]
        for name in names:
            file = Path(parent, name)
            if file.is_file() and not _is_any(name, LEFTOVERS):
                yield file.relative_to(folder).as_posix(), file


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _weights_digest(model: object) -> str | None:
    """Return a digest of some values of every weight tensor of a torch model.

    It is None if there are no weights, or if this process has only parts of them.
    """
    named_parameters = getattr(model, "named_parameters", None)
    if named_parameters is None:
        return None
    import torch

    digest, weights = blake2b(digest_size=8), [*named_parameters()]
    # The weights of an object that only resembles a torch model are no tensors; those with `to_local` are sharded.
    if not weights or any(
        not isinstance(weight, torch.Tensor) or weight.is_meta or hasattr(weight, "to_local") for _, weight in weights
    ):
        return None
    for name, weight in weights:
        values = weight.detach().reshape(-1)
        step = max(1, values.numel() // VALUES_PER_TENSOR)
        sample = values[::step][:VALUES_PER_TENSOR].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + sample)
    return digest.hexdigest()
