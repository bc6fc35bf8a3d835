"""Checks, before any work, that the optional packages of the lab are installed."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

TRAINING = ("transformers", "accelerate")
REPORT = ("matplotlib", "sklearn")
LORA = ("peft",)
SMOLLM2 = ("gguf",)
INSTALLED_AS = {"sklearn": "scikit-learn"}


def need_packages(names: Iterable[str]) -> None:
    """Raises ImportError, with the remedy, if one of them is not installed. Imports none of them."""
    missing = [INSTALLED_AS.get(name, name) for name in names if not _is_there(name)]
    if missing:
        is_missing = "is" if len(missing) == 1 else "are"
        raise ImportError(
            f"{', '.join(missing)} {is_missing} needed but not installed; `pip install 'lm-eval-leakage[lab]'`"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # its import was blocked
        return False
