"""The tokenizer that a model's arguments name, loaded without the model: it encodes requests as `hf` would."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lm_eval_leakage.harness.models.model_identity import folder_in_cache

NAMED_BY = ("tokenizer", "pretrained", "model")  # arguments of models, the first one given is taken
TOKENIZER_CONFIG, TOKENIZER_FILE, CONFIG = "tokenizer_config.json", "tokenizer.json", "config.json"
WINDOW_KEYS = ("n_positions", "max_position_embeddings", "n_ctx")
UNLIMITED, DEFAULT_WINDOW = 10**9, 2048  # tokens


class TokenizerOnly:
    """The part of `hf` that needs no weights: encoding, chat template, the length of the window.

    name: a folder, or a name of the Hugging Face Hub
    arguments: those of `hf` that the tokenizer depends on (revision, add_bos_token, max_length, ...)

    Raises OSError or ValueError if there is no such tokenizer.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        loading: dict[str, Any] = {
            "revision": str(arguments.get("revision") or "main"),
            "trust_remote_code": bool(arguments.get("trust_remote_code")),
            "subfolder": arguments.get("subfolder") or "",
        }
        self.add_bos_token = arguments.get("add_bos_token")
        self.tokenizer = _tokenizer(name, loading, self.add_bos_token, arguments.get("use_fast_tokenizer", True))
        self.max_length = int(arguments.get("max_length") or _window(_config(name, loading), self.tokenizer))
        self.chat_template_args = dict(arguments.get("chat_template_args") or {})
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        prefix = arguments.get("prefix_token_id")
        self.prefix_token_id = next((token for token in (prefix, bos) if token is not None), eos)

    def tok_encode(self, text: str) -> list[int]:
        """Return the tokens of a text; one that begins with the prefix token gets no second one."""
        starts_with_prefix = text.startswith(self.tokenizer.decode(self.prefix_token_id))
        special = False if starts_with_prefix else self.add_bos_token
        tokens: list[int] = self.tokenizer.encode(text, **({} if special is None else {"add_special_tokens": special}))
        return tokens

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return turns as text, by `hf`'s rules for templates that refuse a system turn."""
        from lm_eval.models.huggingface import HFLM  # takes two seconds

        return str(HFLM.apply_chat_template(self, chat_history, add_generation_prompt))


def tokenizer_on_disk(arguments: Mapping[str, Any]) -> TokenizerOnly | None:
    """Return the tokenizer that a model's arguments name, if it is in a folder or in the cache of the hub.

    None if it would have to be downloaded, or cannot be loaded.
    """
    name = next((str(arguments[key]) for key in NAMED_BY if arguments.get(key)), "")
    files = (TOKENIZER_CONFIG, TOKENIZER_FILE)
    folder: Path | None = Path(name)
    if not any((Path(name) / file).is_file() for file in files):
        folder = None if Path(name).is_dir() else folder_in_cache(name, arguments.get("revision"), files)
    if folder is None:
        return None
    try:
        return TokenizerOnly(str(folder), {key: value for key, value in arguments.items() if key != "revision"})
    except Exception:  # a tokenizer's own code may raise anything; the run itself will say so
        return None


def _tokenizer(name: str, loading: Mapping[str, Any], add_bos_token: bool | None, fast: bool) -> Any:
    """Return the tokenizer; AutoTokenizer takes two seconds of imports, and is used where a file is not enough."""
    is_whole = (Path(name) / loading["subfolder"] / TOKENIZER_FILE).is_file()
    if is_whole and fast and add_bos_token is None and not loading["trust_remote_code"]:
        from transformers import PreTrainedTokenizerFast  # half a second

        tokenizer = PreTrainedTokenizerFast.from_pretrained(name, **loading)
        if tokenizer.eos_token_id is not None:  # else it is in the code of the model's class, as with GPT-2
            return tokenizer
    from transformers import AutoTokenizer

    bos = {} if add_bos_token is None else {"add_bos_token": add_bos_token}
    return AutoTokenizer.from_pretrained(name, use_fast=fast, **loading, **bos)


def _config(name: str, loading: Mapping[str, Any]) -> Any:
    """Return the model's configuration, which has the window; an empty one where there is only a tokenizer."""
    try:
        content = json.loads((Path(name) / loading["subfolder"] / CONFIG).read_text(encoding="utf-8"))
        config = SimpleNamespace(**(content.get("text_config") or content))
        if any(getattr(config, key, None) for key in WINDOW_KEYS):
            return config
    except (OSError, ValueError):
        pass
    from transformers import AutoConfig  # two seconds, for models whose file leaves the window to their class

    try:
        return AutoConfig.from_pretrained(name, **loading)
    except (OSError, ValueError):
        return SimpleNamespace()


def _window(config: Any, tokenizer: Any) -> int:
    """Return the longest text, in tokens, by `hf`'s rules; lm_eval 0.4.12 has no function for it."""
    config = getattr(config, "text_config", None) or config
    windows = [getattr(config, key, None) for key in WINDOW_KEYS]
    limit = tokenizer.model_max_length
    return next((window for window in windows if window), limit if limit < UNLIMITED else DEFAULT_WINDOW)
