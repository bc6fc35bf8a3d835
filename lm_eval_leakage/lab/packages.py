"""Packages that only the lab needs, looked for before any work."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

TRAINING = ("transformers", "accelerate")
REPORT = ("matplotlib", "sklearn")
LORA = ("peft",)
SMOLLM2 = ("gguf", "tqdm")
INSTALLED_AS = {"sklearn": "scikit-learn"}


def need_packages(names: Iterable[str], extra: str = "lab") -> None:
    """Raises ImportError, with the remedy, where one of them is not installed. None is imported."""
    missing = [INSTALLED_AS.get(name, name) for name in names if not _is_there(name)]
    if missing:
        is_missing = "is" if len(missing) == 1 else "are"
        raise ImportError(
            f"{', '.join(missing)} {is_missing} needed and not installed; `pip install 'lm-eval-leakage[{extra}]'`"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # its import was blocked
        return False
