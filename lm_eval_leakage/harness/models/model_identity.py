"""Identifies a model by everything that its answers depend on, to decide whether saved answers and runs can be reused.

Files are read whole, once: their digests are remembered in the user's cache folder by path, size, times and inode.
Not seen: what a server answers with, and edits of the hub's own cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.harness.seams.evaluation import Evaluation
from lm_eval_leakage.logs.model_settings import HOW_IT_RUNS

CONFIGURATIONS = ("config.json", "adapter_config.json", "tokenizer_config.json")  # one of them is in any model's cache


def folder_in_cache(name: str, revision: object = None, files: Sequence[str] = CONFIGURATIONS) -> Path | None:
    """Where the local cache of the hub has one of these files of a model; the folder is named after the commit."""
    try:
        found = [try_to_load_from_cache(name, file, revision=str(revision or "main")) for file in files]
    except HFValidationError:  # the name is not one of the hub
        return None
    return next((Path(file).parent for file in found if isinstance(file, str)), None)


OF_A_MODEL = (  # what a folder holds that answers depend on: weights, configuration, tokenizer, template, code
    *(".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".nemo"),
    *(".json", ".model", ".txt", ".jinja", ".py"),
)
OWN_REVISION = ("peft", "delta")  # arguments that `revision` does not apply to
BYTES_AT_ONCE, DIGEST_SIZE = 2**22, 16
SETTLED = 2.0  # seconds; a younger file may change again without a change of its times
VALUES = 64  # of each tensor of a model in memory


def identity_of(evaluation: Evaluation, named: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Identifying properties of a loaded model by name; None if nothing would reveal that the model has been replaced
    by another.

    named: its `named_identity` when it was loaded, if that is known; that of now otherwise
    """
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # unwraps the harness's response cache
    weights = _weights(getattr(lm, "model", None))
    if evaluation.model is None and weights is None:
        return None
    told = named_identity(evaluation) if named is None else dict(named)
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
    given = evaluation.model_args or {}
    arguments = dict(simple_parse_args_string(given)) if isinstance(given, str) else given
    for name, value in sorted(arguments.items()):
        if name not in HOW_IT_RUNS:
            told[name] = _told(name, value, arguments)
    return told | {name: str(value) for name, value in sorted(evaluation.asked_with.items()) if value}


def as_loaded(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The `named_identity` of a model in memory, of those before it was loaded and now: one of the hub gets its commit
    when it is loaded, and a local one may have got other files since then."""
    is_local = {name: Path(told.partition(" (")[0]).expanduser().exists() for name, told in before.items()}
    return {**now, **{name: told for name, told in before.items() if is_local[name]}}


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
    commit = folder_in_cache(value, None if name in OWN_REVISION else arguments.get("revision"))
    return f"{value} ({commit.name})" if commit else value


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
    remembered = _remembered_in(file)
    try:
        known = remembered.read_text()
    except (OSError, ValueError):
        known = ""
    if len(known) == 2 * DIGEST_SIZE:
        return known
    digest = blake2b(digest_size=DIGEST_SIZE)
    with file.open("rb") as stream:
        while part := stream.read(BYTES_AT_ONCE):
            digest.update(part)
    is_settled = time.time() - max(file.stat().st_mtime, file.stat().st_ctime) > SETTLED
    if is_settled and _remembered_in(file) == remembered:
        with suppress(OSError):  # such as in a container without a home
            atomic_write(remembered, digest.hexdigest())
    return digest.hexdigest()


def _remembered_in(file: Path) -> Path:
    """The file of the user's cache that has the digest, named by what changes with a file's content."""
    found = file.stat()
    as_it_is = (str(file), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lm_eval_leakage" / "digests"
    return cache / blake2b(repr(as_it_is).encode("utf-8", "surrogateescape"), digest_size=DIGEST_SIZE).hexdigest()


def _weights(model: object) -> str | None:
    """A digest of some values of every weight tensor; None if there are none, or if this process has only parts."""
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
        told = values[::step][:VALUES].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + told)
    return digest.hexdigest()
