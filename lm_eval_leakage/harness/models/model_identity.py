"""Identifies a model by everything that its answers depend on, to decide whether saved answers and runs can be reused.

Local files count by their content alone: the same weights under another path are the same model, and other weights
under the same path are another one. A model of the hub counts by its name and commit. Not seen: what a server answers
with, and edits of the hub's own cache.
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
from lm_eval_leakage.logs.run import LOCAL
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
OUTPUT_OF_CHECK = ("plan.yaml", "manifest.json")  # are in a folder that a check has written
OF_FOLDERS = (*NAMING, "tokenizer", "lora_local_path", "gguf_file", "base", "code")  # name folders of a model
OF_SERVERS = ("model", "engine")  # arguments whose value is sent to a server, so that it counts even if it is a path
CODE, SLOW = "trust_remote_code", "use_fast_tokenizer"  # arguments that answers depend on in some models
VALUES = 64  # of each tensor of a model in memory
_before_loading: dict[tuple[str, str], str] = {}  # local files of an identity, by the argument and its value


def folder_in_cache(name: str, revision: object = None, files: Sequence[str] = CONFIGURATIONS) -> Path | None:
    """Return where the local cache of the hub has one of these files of a model; the folder is named after the
    commit."""
    try:
        paths = [try_to_load_from_cache(name, file, revision=str(revision or "main")) for file in files]
    except HFValidationError:  # the name is not one of the hub
        return None
    return next((Path(file).parent for file in paths if isinstance(file, str)), None)


def identity_of(evaluation: Evaluation, named: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return identifying properties of a loaded model by name; None if nothing would show that the model has been
    replaced by another.

    named: its `named_identity` when it was loaded; by default the present one
    """
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # unwraps the harness's response cache
    weights = _weights(getattr(lm, "model", None))
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
    """Return what is known of a model without loading it, as it is written into runs: backend, arguments, the content
    of the files that they name, and the chat template; empty for a model that was passed as an object."""
    if evaluation.model is None:
        return {}
    arguments = model_arguments(evaluation.model_args)
    identity = {"backend": evaluation.model}
    for name, value in sorted(arguments.items()):
        if name not in HOW_IT_RUNS:
            identity[name] = _identified(name, value, arguments)
    identity |= _code_and_base(arguments)
    if str(arguments.get(SLOW)) == "False":
        identity[SLOW] = "False"
    return identity | {name: str(value) for name, value in sorted(evaluation.asked_with.items()) if value}


def as_loaded(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return the `named_identity` of a loaded model, given those before it was loaded and now.

    A model of the hub gets its commit when it is loaded; a local one may have got other files since then.
    """
    return {**now, **{name: value for name, value in before.items() if LOCAL.fullmatch(value)}}


def refuse_replaced(
    before: Mapping[str, str], now: Mapping[str, str], model_args: str | Mapping[str, Any] | None
) -> None:
    """Raise ValueError if local files of a model changed while it was loaded: nobody knows which of them it has.

    before, now: `named_identity` of these times; model_args: in which the files are named
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
    """Raise ValueError if files of the model changed while lm_eval loaded it. What was noted is compared once."""
    arguments = model_arguments(model_args)
    before = {name: _before_loading.pop((name, str(arguments.get(name, ""))), "") for name in now}
    refuse_replaced(before, now, arguments)


# ---------------------------------------------------------------------- arguments


def _identified(name: str, value: object, arguments: Mapping[str, Any]) -> str:
    """Return the value of an argument as an identity has it: a digest of the content instead of a local path, and the
    commit beside the name of a model of the hub."""
    if not isinstance(value, str | os.PathLike):
        return repr(value)
    value = os.fspath(value)
    place = _place(value)
    if place is None and name == "gguf_file":
        place = _place(str(Path(str(arguments.get("pretrained", "")), str(arguments.get("subfolder") or ""), value)))
    if place is not None and (place.is_file() or name in OF_FOLDERS or _has_configuration(place)):
        digest = f"({_files_digest(place, str(arguments.get('subfolder') or ''))})"
        return f"{value} {digest}" if name in OF_SERVERS else f"files {digest}"
    commit = folder_in_cache(value, arguments.get("revision"))
    return f"{value} ({commit.name})" if commit else value


def _has_configuration(folder: Path) -> bool:
    """Return whether a folder is that of a model, an adapter or a tokenizer; others may be written to while a model
    runs."""
    return any((folder / file).is_file() for file in CONFIGURATIONS)


def _place(value: str) -> Path | None:
    """Return the local file or folder that a text names; None if there is none."""
    place = Path(value).expanduser()
    try:
        return place if value and place.exists() else None
    except (OSError, ValueError):  # not a path, for example a very long text
        return None


def _code_and_base(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield whether the model's own code is run, with the repository that has it if it is another one, and the base
    model of an adapter that is named as the model."""
    code: dict[str, None] = {}
    for name, value in arguments.items():
        if name in HOW_IT_RUNS or not isinstance(value, str | os.PathLike):
            continue
        value = os.fspath(value)
        folder = _place(value) or folder_in_cache(value, arguments.get("revision"))
        configs = [_settings(folder / file) for file in CONFIGURATIONS] if folder else []
        for config in configs:
            classes = texts_within(config.get("auto_map"))
            code |= dict.fromkeys(text.partition("--")[0] if "--" in text else "" for text in classes)
        base = configs[1].get("base_model_name_or_path") if configs else None
        if name == "pretrained" and isinstance(base, str) and base:
            yield f"{name}.base", _identified("base", base, {})
    if code and str(arguments.get(CODE)).lower() in ("true", "1"):
        yield CODE, ", ".join(["True", *(_identified("code", repository, {}) for repository in code if repository)])


def _settings(file: Path) -> Mapping[str, Any]:
    """Return what a JSON file holds; empty if it cannot be read or is no object."""
    try:
        settings = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return settings if isinstance(settings, dict) else {}


# ---------------------------------------------------------------------- files


def _files_digest(place: Path, subfolder: str) -> str:
    """Return a digest of a file, or of the files in a folder by the paths below it."""
    digest = blake2b(digest_size=8)
    if place.is_file():
        digest.update(content_digest(place).encode())
    else:
        for name, file in sorted(_of_a_model(place, subfolder)):
            digest.update(f"{name} {content_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _of_a_model(folder: Path, subfolder: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of a model with their paths below its folder: all but leftovers, at any depth. Where a subfolder
    is named, other subfolders do not count."""
    inner = folder / subfolder
    if subfolder and inner.is_dir():
        yield from ((f"{subfolder}/{name}", file) for name, file in _of_a_model(inner, ""))
    visited = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        is_output = place != str(folder) and {*OUTPUT_OF_CHECK} <= {*names}
        real = os.path.realpath(place)
        if is_output or real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders[:] = [] if subfolder else [name for name in folders if not _is_any(name, LEFTOVER_FOLDERS)]
        for name in names:
            file = Path(place, name)
            if file.is_file() and not _is_any(name, LEFTOVERS):
                yield file.relative_to(folder).as_posix(), file


def _is_any(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _weights(model: object) -> str | None:
    """Return a digest of some values of every weight tensor; None if there are none, or if this process has only
    parts."""
    named = getattr(model, "named_parameters", None)
    if named is None:
        return None
    import torch

    digest, weights = blake2b(digest_size=8), [*named()]
    # the weights of an object that only resembles a torch model are no tensors
    if not weights or any(
        not isinstance(weight, torch.Tensor) or weight.is_meta or hasattr(weight, "to_local") for _, weight in weights
    ):
        return None
    for name, weight in weights:
        values = weight.detach().reshape(-1)
        step = max(1, values.numel() // VALUES)
        sample = values[::step][:VALUES].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + sample)
    return digest.hexdigest()
