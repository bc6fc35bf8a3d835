"""The number of parameters of a model on disk, read from its files without loading it."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError

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
