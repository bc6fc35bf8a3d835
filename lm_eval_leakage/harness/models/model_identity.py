"""Identifies a model by everything that its answers depend on, to decide whether saved answers can be reused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage.harness.patches.call_frames import Evaluation

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
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".nemo", ".json", ".model", ".txt")
CHUNKS, BYTES_AT_ONCE = 8, 4096  # bytes of a file that are compared: further training changes weights everywhere
VALUES = 64  # of each tensor


def identity_of(evaluation: Evaluation) -> dict[str, str] | None:
    """Identifying properties by name; None if nothing would reveal that the model has been replaced by another."""
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # unwraps the harness's response cache
    weights = _weights(getattr(lm, "model", None))
    if evaluation.model is None and weights is None:
        return None
    told = {"backend": evaluation.model or f"{type(lm).__module__}.{type(lm).__qualname__}"}
    for name, value in sorted(_arguments(evaluation.model_args).items()):
        if name not in HOW_IT_RUNS:
            told[name] = _told(value)
    for name in ("softmax_dtype", "mixed_precision_dtype", "add_bos_token"):
        if getattr(lm, name, None) is not None:
            told.setdefault(name, str(getattr(lm, name)))
    dtype = getattr(getattr(lm, "model", None), "dtype", None)
    if dtype is not None:
        told["dtype"] = str(dtype)
    if weights is not None:
        told["weights"] = weights
    return told


def _arguments(arguments: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        return dict(simple_parse_args_string(arguments))
    return arguments or {}


def _told(value: object) -> str:
    """A value; for a local file or folder also a digest of its content, for a model of the hub also its commit."""
    if not isinstance(value, str):
        return repr(value)
    place = Path(value).expanduser()
    try:
        if place.exists():
            return f"{value} ({_files_digest(place)})"
    except OSError:  # the value is not a path, for example a very long text
        return value
    commit = _commit(value)
    return f"{value} ({commit})" if commit else value


def _files_digest(place: Path) -> str:
    digest = blake2b(digest_size=8)
    files = [place] if place.is_file() else sorted(f for f in place.iterdir() if f.is_file() and f.suffix in WEIGHTS)
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode("utf-8", "surrogateescape"))
        with file.open("rb") as stream:
            for start in _starts(size):
                stream.seek(start)
                digest.update(stream.read(BYTES_AT_ONCE))
    return digest.hexdigest()


def _starts(size: int) -> Iterator[int]:
    """Offsets spread over a file, including its beginning and end; cover all of a small file."""
    last = max(0, size - BYTES_AT_ONCE)
    yield from sorted({last * place // (CHUNKS - 1) for place in range(CHUNKS)})


def _commit(name: str) -> str | None:
    """The commit of a model in the hub's local cache."""
    if name.count("/") != 1:
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except Exception:  # huggingface_hub is not installed, or the name is not one of the hub
        return None
    return Path(found).parent.name if isinstance(found, str) else None


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
