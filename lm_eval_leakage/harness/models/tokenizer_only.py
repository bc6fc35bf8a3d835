"""The harness's `hf` without its weights: encodes requests as a run would, for counting their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import resolve_max_length
from transformers import AutoConfig, AutoTokenizer

NAMED_BY = ("tokenizer", "pretrained", "model")  # arguments of models, the first one given is taken
OF_A_TOKENIZER = ("tokenizer_config.json", "tokenizer.json")


class TokenizerOnly(HFLM):  # type: ignore[misc]
    """Everything of `hf` that needs no weights: encoding, chat template, the length of the window.

    name: a folder, or a name of the Hugging Face Hub
    arguments: those of `hf` that the tokenizer depends on (revision, add_bos_token, max_length, ...)

    Raises OSError or ValueError if there is no such tokenizer.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        super(HFLM, self).__init__()  # past that of `hf`, which loads the weights
        loading: dict[str, Any] = {
            "revision": str(arguments.get("revision") or "main"),
            "trust_remote_code": bool(arguments.get("trust_remote_code")),
            "subfolder": arguments.get("subfolder") or "",
        }
        self.add_bos_token = arguments.get("add_bos_token")
        bos = {} if self.add_bos_token is None else {"add_bos_token": self.add_bos_token}
        fast = arguments.get("use_fast_tokenizer", True)
        self.tokenizer = AutoTokenizer.from_pretrained(name, use_fast=fast, **loading, **bos)
        self.window = int(arguments.get("max_length") or resolve_max_length(_config(name, loading), self.tokenizer))
        self.custom_prefix_token_id = arguments.get("prefix_token_id")
        self.backend, self.enable_thinking = "causal", arguments.get("enable_thinking")
        self.chat_template_args = dict(arguments.get("chat_template_args") or {})

    @property
    def max_length(self) -> int:
        return self.window


def _config(name: str, loading: Mapping[str, Any]) -> Any:
    """The model's configuration, which tells the window; an empty one where there is only a tokenizer."""
    try:
        return AutoConfig.from_pretrained(name, **loading)
    except (OSError, ValueError):
        return SimpleNamespace()


def tokenizer_on_disk(arguments: Mapping[str, Any]) -> TokenizerOnly | None:
    """The tokenizer that a model's arguments name, if it is in a folder or in the cache of the hub; None if it would
    have to be downloaded, or cannot be loaded."""
    name = next((str(arguments[key]) for key in NAMED_BY if arguments.get(key)), "")
    folder = _folder(name, str(arguments.get("revision") or "main"))
    if folder is None:
        return None
    try:
        return TokenizerOnly(str(folder), {key: value for key, value in arguments.items() if key != "revision"})
    except Exception:  # a tokenizer's own code may raise anything; the run itself will say so
        return None


def _folder(name: str, revision: str) -> Path | None:
    if Path(name).is_dir():
        return Path(name) if any(Path(name, file).is_file() for file in OF_A_TOKENIZER) else None
    try:
        found = [try_to_load_from_cache(name, file, revision=revision) for file in OF_A_TOKENIZER]
    except HFValidationError:
        return None
    return next((Path(file).parent for file in found if isinstance(file, str)), None)
