"""Checks that a model that transformers reads is there, with all files that it needs, before anything loads it.

A model is a folder, or a name of the Hugging Face Hub. A name whose files are not in the hub's cache is looked up by
one short request, so that a misspelled path does not end in a minute of retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

from lm_eval_leakage.texts import did_you_mean

CONFIG, ADAPTER = "config.json", "adapter_config.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.ckpt*", "*.h5", "*.msgpack", "*.index.json")
TOKENIZERS = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "tekken.json"),
    *("*.model", "*.spm", "*.tiktoken", "*.py"),
)
WITHOUT_FILES = b'"tokenizer_class"'  # in a config.json: some classes, such as that of ByT5, read no file
ELSEWHERE = ("subfolder", "gguf_file", "delta", "autogptq", "gptqmodel", "config", "cache_dir")  # change what is read
SECONDS = 5.0  # that the hub may take to answer
HUB = "the Hugging Face Hub"
OFFLINE = ", and HF_HUB_OFFLINE is set; check the path, or unset HF_HUB_OFFLINE, so that the model is downloaded"


def check_model_files(model_args: Mapping[str, Any]) -> None:
    """Raise ValueError if a model that transformers reads, its tokenizer or its adapter is neither a whole folder nor
    in the hub's cache, nor a name of the hub."""
    if any(model_args.get(name) for name in ELSEWHERE):
        return
    has_tokenizer = bool(model_args.get("tokenizer"))
    parts = {
        "pretrained": [_lacks_config, _lacks_weights, *([] if has_tokenizer else [_lacks_tokenizer])],
        "tokenizer": [_lacks_tokenizer],
        "peft": [_lacks_adapter],
    }
    for name, lacks in parts.items():
        value = model_args.get(name)
        if not isinstance(value, str) or not value or "://" in value:
            continue
        folder, setting = Path(value), f"--model_args has {name}={value}"
        if folder.is_dir():
            for reason in filter(None, (lack(folder) for lack in lacks)):
                raise ValueError(f"{setting}, a folder {reason}")
        elif name != "pretrained" or not folder.exists():
            check_path(setting, value)
            if name == "pretrained":
                _check_name(setting, value, str(model_args.get("revision") or "main"))


def check_path(setting: str, value: object) -> None:
    """Raise ValueError for a path that does not exist; a name of the hub passes, which has at most one slash."""
    if not isinstance(value, str) or "://" in value or Path(value).exists():
        return
    if value.startswith(("/", ".", "~")) or value.count("/") > 1:
        remedy = _similar_folder(value) or f"; check the path, or name a model of {HUB}, such as gpt2"
        raise ValueError(f"{setting}, but there is no such folder{remedy}")


def _similar_folder(value: str) -> str:
    """Return the question whether a folder of a similar name is meant, to end a sentence with; empty without one."""
    try:
        siblings = [str(folder) for folder in Path(value).parent.iterdir() if folder.is_dir()]
    except OSError:
        return ""
    return did_you_mean(str(Path(value)), siblings)


# ---------------------------------------------------------------------- folders


def _has_any(folder: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(file.name, pattern) for file in folder.iterdir() for pattern in patterns)


def _lacks_config(folder: Path) -> str:
    if (folder / CONFIG).exists():
        return ""
    if (folder / ADAPTER).exists():
        return f"of an adapter; give the model that it was trained on, and the adapter as peft={folder}"
    inner = sorted(file.parent for file in folder.glob(f"*/{CONFIG}"))
    remedy = f"; did you mean {inner[-1]}" if inner else "; name the folder to which a model was saved"
    return f"without {CONFIG}{remedy}"


def _lacks_weights(folder: Path) -> str:
    if _has_any(folder, WEIGHTS):
        return ""
    return "without weights, such as model.safetensors; download or save them into it"


def _lacks_tokenizer(folder: Path) -> str:
    config = folder / CONFIG
    if _has_any(folder, TOKENIZERS) or (config.exists() and WITHOUT_FILES in config.read_bytes()):
        return ""
    return "without a tokenizer, such as tokenizer.json; save it there too, or name where it is as tokenizer=FOLDER"


def _lacks_adapter(folder: Path) -> str:
    return "" if (folder / ADAPTER).exists() else f"without {ADAPTER}; name the folder to which an adapter was saved"


# ---------------------------------------------------------------------- names of the hub


def _check_name(setting: str, name: str, revision: str) -> None:
    from huggingface_hub import constants, try_to_load_from_cache

    try:
        files = [try_to_load_from_cache(name, file, revision=revision) for file in (CONFIG, ADAPTER)]
    except ValueError as error:  # the hub has no such names
        raise ValueError(f"{setting}, which is no folder, and cannot be a name of {HUB}; check the path") from error
    if any(isinstance(file, str) for file in files):
        return
    reason = OFFLINE if constants.HF_HUB_OFFLINE else why_not_on_hub(name, revision)
    if reason:
        remedy = _similar_folder(name) or reason
        raise ValueError(f"{setting}, which is no folder and not in the hub's cache{remedy}")


@lru_cache(maxsize=256)
def why_not_on_hub(name: str, revision: str) -> str:
    """Return why the hub does not give a model, with the remedy, to end a sentence with; empty if it does."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    url = hf_hub_url(name, CONFIG, revision=revision)
    try:
        get_hf_file_metadata(url, timeout=SECONDS)
    except GatedRepoError:
        return f", and {HUB} gives it only to those who have accepted its terms; accept them, and run `hf auth login`"
    except RevisionNotFoundError:
        return f", and has no revision {revision!r} on {HUB}; check revision"
    except RepositoryNotFoundError:
        return f", and {HUB} has no such model; check the path, or run `hf auth login` if the model is private"
    except Exception as error:  # of whatever HTTP library the hub's package uses
        if getattr(error, "response", None) is not None:
            return ""  # the hub has the model, if not this file
        return f", and {HUB} cannot be reached ({type(error).__name__}); check the path, or the connection"
    return ""
