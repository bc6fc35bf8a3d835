"""The ledger of a seal: every look at a model, one JSON line each, in the private folder.

Looks are numbered by who writes them, under a lock, so that two authors who look at the same time never get the same
number. The file is replaced as a whole: a kill loses no look that was told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.inference.looks import Look, check_alpha, from_ranges, numbered
from lm_eval_leakage.inference.pooling import NAN

LOOKS_FILE, LOOKS_LOCK = "looks.jsonl", "looks.lock"
LOCK_SECONDS = 60.0
NUMBERS, TEXTS = ("alpha", "pvalue", "log_evalue"), ("model", "digest", "places", "time")


def read_looks(folder: Path) -> list[Look]:
    """The looks so far. Raises ValueError, with the remedy, if the ledger is not as it was written: a lost look would
    make later claims look surer than they are."""
    file = folder / LOOKS_FILE
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    looks = [_look(file, place, line) for place, line in enumerate(lines, 1)]
    for place, look in enumerate(looks, 1):
        if look.number != place:
            raise ValueError(_changed(file, place, f"it is look {look.number}"))
    return looks


def add_looks(folder: Path, looks: Sequence[Look]) -> list[tuple[Look, bool]]:
    """Each look with its number, and whether it is new; new ones are in the ledger when this returns.

    Raises ValueError if the ledger was changed, is being written for a minute, or cannot be written.
    """
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / LOOKS_LOCK, timeout=LOCK_SECONDS):
            earlier, found = read_looks(folder), []
            known = [*earlier]
            for look in looks:
                own, is_new = numbered(known, look)
                known += [own] if is_new else []
                found.append((own, is_new))
            if len(known) > len(earlier):
                atomic_write(folder / LOOKS_FILE, "".join(f"{_line(look)}\n" for look in known))
    except Timeout as error:
        raise ValueError(
            f"another process has been writing {folder / LOOKS_FILE} for {LOCK_SECONDS:.0f} seconds; try again, or "
            f"remove {folder / LOOKS_LOCK} if none is"
        ) from error
    except OSError as error:
        raise ValueError(
            f"{folder / LOOKS_FILE} cannot be written ({error.strerror}), and a look that is not counted would spoil "
            "the error of all others; make the private folder writable"
        ) from error
    return found


def _line(look: Look) -> str:
    kept: dict[str, object] = asdict(look) | {"level": look.level}
    undefined = [key for key, value in kept.items() if isinstance(value, float) and math.isnan(value)]
    return json.dumps(kept | dict.fromkeys(undefined))


def _look(file: Path, place: int, line: str) -> Look:
    try:
        kept: dict[str, Any] = json.loads(line)
        alpha, pvalue, log_evalue = (NAN if kept[key] is None else float(kept[key]) for key in NUMBERS)
        model, digest, places, time = (str(kept[key]) for key in TEXTS)
        look = Look(int(kept["number"]), model, digest, alpha, pvalue, log_evalue, places, time)
        list(from_ranges(look.places))
        check_alpha(look.alpha)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(_changed(file, place, repr(error))) from error
    return look


def _changed(file: Path, place: int, why: str) -> str:
    return f"{file}, line {place} is not as this package wrote it ({why}); restore the file from a backup"
