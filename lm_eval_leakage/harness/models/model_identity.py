"""What a model is, as far as its answers depend on it: the measure of whose answers may be used again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from lm_eval.utils import simple_parse_args_string

from lm_eval_leakage.harness.patches.call_frames import Evaluation

# Arguments of backends that say how a model is run, not what it answers.
HOW_IT_RUNS = frozenset(
    (
        *("batch_size", "max_batch_size", "max_tokens", "device", "device_map", "parallelize", "tp_plan"),
        *("device_map_option", "max_memory_per_gpu", "max_cpu_memory", "offload_folder", "cache_dir"),
        *("gpu_memory_utilization", "swap_space", "enforce_eager", "max_num_seqs", "max_num_batched_tokens"),
        *("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "tp_size", "dp_size", "gpus"),
        *("num_concurrent", "max_retries", "timeout", "verify_certificate", "trust_remote_code"),
        *("api_key", "auth_token", "token", "header", "headers", "use_fast_tokenizer"),
    )
)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".nemo", ".json", ".model", ".txt")
CHUNKS, BYTES_AT_ONCE = 8, 4096  # bytes of a file that are looked at: weights that were trained on differ everywhere
VALUES = 64  # of each tensor


def identity_of(evaluation: Evaluation) -> dict[str, str] | None:
    """Names and values; None for a model of which nothing would tell that another one has taken its place."""
    lm = getattr(evaluation.lm, "lm", evaluation.lm)  # below the harness's response cache
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
    """A value; of a folder or file of this machine also what lies there, of a model of the hub the commit at hand."""
    if not isinstance(value, str):
        return repr(value)
    place = Path(value).expanduser()
    try:
        if place.exists():
            return f"{value} ({_files_digest(place)})"
    except OSError:  # a value that is no path, such as a very long text
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
    """Places all over a file, its beginning and end among them; all of a small one."""
    last = max(0, size - BYTES_AT_ONCE)
    yield from sorted({last * place // (CHUNKS - 1) for place in range(CHUNKS)})


def _commit(name: str) -> str | None:
    """Of a model that the hub's cache holds."""
    if name.count("/") != 1:
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except Exception:  # no hub package, or no name of the hub
        return None
    return Path(found).parent.name if isinstance(found, str) else None


def _weights(model: object) -> str | None:
    """A digest of some values of every tensor in this process; None where there are none, or only parts of them."""
    named = getattr(model, "named_parameters", None)
    if named is None:
        return None
    import torch

    digest, seen = blake2b(digest_size=8), False
    for name, weight in named():
        if not isinstance(weight, torch.Tensor):  # a model that only looks like one of torch's
            return None
        if weight.is_meta or hasattr(weight, "to_local"):
            return None
        values = weight.detach().reshape(-1)
        step = max(1, values.numel() // VALUES)
        told = values[::step][:VALUES].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        digest.update(f"{name} {tuple(weight.shape)}".encode() + told)
        seen = True
    return digest.hexdigest() if seen else None
