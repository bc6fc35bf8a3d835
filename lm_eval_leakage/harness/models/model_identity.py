"""The number of parameters of a model on disk, read from its files without loading it.

Identifies a model by everything that its answers depend on, to decide whether saved answers and runs can be reused.

Files are read whole, once: their digests are remembered in the user's cache folder by path, size, times and inode.
Not seen: what a server answers with, and edits of the hub's own cache.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import time
from collections.abc import Mapping
from contextlib import closing
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage.harness.seams.call_frames import Evaluation

SAFETENSORS, INDEX, CONFIG = "*.safetensors", "model.safetensors.index.json", "config.json"


def parameters_on_disk(arguments: Mapping[str, Any]) -> int | None:
    """Of the model that a backend's arguments name, from the headers of its safetensors files; None if it is not in a
    folder or in the cache of the hub, or has none."""
    name = str(arguments.get("pretrained") or arguments.get("model") or "")
    folder = _folder(name, str(arguments.get("revision") or "main"))
    files = sorted(folder.glob(SAFETENSORS)) if folder is not None else []
    try:
        indexed = json.loads((folder / INDEX).read_bytes()) if folder and (folder / INDEX).is_file() else {}
        if not files or not set(indexed.get("weight_map", {}).values()) <= {file.name for file in files}:
            return None
        return sum(map(_in_file, files))
    except (OSError, ValueError, KeyError, struct.error):
        return None


def _in_file(file: Path) -> int:
    """A safetensors file begins with the length of a JSON header, which has the shape of every tensor."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _folder(name: str, revision: str) -> Path | None:
    if Path(name).is_dir():
        return Path(name)
    try:
        found = try_to_load_from_cache(name, CONFIG, revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


# Backend arguments that affect how a model is run, but not its answers.
HOW_IT_RUNS = frozenset(
    (
        *("batch_size", "max_batch_size", "max_tokens", "device", "device_map", "parallelize", "tp_plan"),
        *("device_map_option", "max_memory_per_gpu", "max_cpu_memory", "offload_folder", "cache_dir"),
        *("gpu_memory_utilization", "swap_space", "enforce_eager", "max_num_seqs", "max_num_batched_tokens"),
        *("enable_prefix_caching", "block_size", "disable_log_stats", "distributed_executor_backend"),
        *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "tp_size", "dp_size", "gpus"),
        *("num_concurrent", "max_retries", "timeout", "verify_certificate", "trust_remote_code"),
        *("api_key", "auth_token", "token", "header", "headers", "use_fast_tokenizer"),
    )
)
OF_A_MODEL = (  # what a folder holds that answers depend on: weights, configuration, tokenizer, template, code
    *(".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".nemo"),
    *(".json", ".model", ".txt", ".jinja", ".py"),
)
CONFIGURATIONS = ("config.json", "adapter_config.json", "tokenizer_config.json")  # one of them is in any model's cache
OWN_REVISION = ("peft", "delta")  # arguments that `revision` does not apply to
BYTES_AT_ONCE = 2**22
SETTLED = 2.0  # seconds; a younger file may change again without a change of its times
VALUES = 64  # of each tensor of a model in memory


def identity_of(evaluation: Evaluation) -> dict[str, str] | None:
    """Identifying properties of a loaded model by name; None if nothing would reveal that the model has been replaced
    by another."""
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # unwraps the harness's response cache
    weights = _weights(getattr(lm, "model", None))
    if evaluation.model is None and weights is None:
        return None
    told = named_identity(evaluation)
    told.setdefault("backend", f"{type(lm).__module__}.{type(lm).__qualname__}")
    for name in ("softmax_dtype", "mixed_precision_dtype", "add_bos_token"):
        if getattr(lm, name, None) is not None:
            told.setdefault(name, str(getattr(lm, name)))
    dtype = getattr(getattr(lm, "model", None), "dtype", None)
    if dtype is not None:
        told["dtype"] = str(dtype)
    if weights is not None:
        told["weights"] = weights
    return told


def named_identity(evaluation: Evaluation) -> dict[str, str]:
    """What is known of a model without loading it: backend, arguments, the content of the files that they name, and
    how questions are put to it. Written into runs; empty for a model that was passed as an object."""
    if evaluation.model is None:
        return {}
    told = {"backend": evaluation.model}
    arguments = _arguments(evaluation.model_args)
    for name, value in sorted(arguments.items()):
        if name not in HOW_IT_RUNS:
            told[name] = _told(name, value, arguments)
    return told | {name: str(value) for name, value in sorted(evaluation.asked_with.items()) if value}


def _arguments(arguments: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        return dict(simple_parse_args_string(arguments))
    return arguments or {}


def _told(name: str, value: object, arguments: Mapping[str, Any]) -> str:
    """A value; for a local file or folder also a digest of its content, for a model of the hub also its commit."""
    if not isinstance(value, str):
        return repr(value)
    place, subfolder = Path(value).expanduser(), str(arguments.get("subfolder") or "")
    try:
        if place.exists():
            return f"{value} ({_files_digest(place, subfolder)})"
    except OSError:  # the value is not a path, for example a very long text
        return value
    revision = None if name in OWN_REVISION else arguments.get("revision")
    commit = _commit(value, str(revision or "main"))
    return f"{value} ({commit})" if commit else value


def _files_digest(place: Path, subfolder: str) -> str:
    folders = [place, place / subfolder] if subfolder and (place / subfolder).is_dir() else [place]
    digest = blake2b(digest_size=8)
    for file in [place] if place.is_file() else chain.from_iterable(map(_of_a_model, folders)):
        told = f"{file.relative_to(place.parent)} {_content(file.resolve())}\n"
        digest.update(told.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _of_a_model(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.is_file() and file.suffix in OF_A_MODEL)


def _content(file: Path) -> str:
    """A digest of all bytes of a file, computed again only if its size, times or inode are others."""
    key = _as_it_is(file)
    known = _remembered(key)
    if known is not None:
        return known
    digest = blake2b(digest_size=16)
    with file.open("rb") as stream:
        while part := stream.read(BYTES_AT_ONCE):
            digest.update(part)
    is_settled = time.time() - max(file.stat().st_mtime, file.stat().st_ctime) > SETTLED
    if is_settled and _as_it_is(file) == key:
        _remember(key, digest.hexdigest())
    return digest.hexdigest()


def _as_it_is(file: Path) -> str:
    """What changes with a file's content."""
    found = file.stat()
    return repr((str(file), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev))


def _digests() -> sqlite3.Connection:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lm_eval_leakage"
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / "digests.sqlite", timeout=1.0)
    database.execute("CREATE TABLE IF NOT EXISTS digests (key TEXT PRIMARY KEY, digest TEXT NOT NULL)")
    return database


def _remembered(key: str) -> str | None:
    """None also where nothing can be remembered, such as in a container without a home."""
    try:
        with closing(_digests()) as database:
            found = database.execute("SELECT digest FROM digests WHERE key = ?", (key,)).fetchone()
    except (sqlite3.Error, OSError):
        return None
    return None if found is None else str(found[0])


def _remember(key: str, digest: str) -> None:
    try:
        with closing(_digests()) as database, database:
            database.execute("INSERT OR REPLACE INTO digests VALUES (?, ?)", (key, digest))
    except (sqlite3.Error, OSError):
        return


def _commit(name: str, revision: str) -> str | None:
    """The commit of a model in the hub's local cache."""
    if name.count("/") != 1:
        return None
    for file in CONFIGURATIONS:
        try:
            from huggingface_hub import try_to_load_from_cache

            found = try_to_load_from_cache(name, file, revision=revision)
        except Exception:  # huggingface_hub is not installed, or the name is not one of the hub
            return None
        if isinstance(found, str):
            return Path(found).parent.name
    return None


def _weights(model: object) -> str | None:
    """A digest of some values of every weight tensor; None if there are none, or if this process has only parts."""
    named = getattr(model, "named_parameters", None)
    if named is None:
        return None
    import torch

    digest, seen = blake2b(digest_size=8), False
    for name, weight in named():
        if not isinstance(weight, torch.Tensor):  # an object that only resembles a torch model
            return None
        if weight.is_meta or hasattr(weight, "to_local"):
            return None
        values = weight.detach().reshape(-1)
        step = max(1, values.numel() // VALUES)
        told = values[::step][:VALUES].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + told)
        seen = True
    return digest.hexdigest() if seen else None
