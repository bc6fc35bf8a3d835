"""Reads and writes the ledger of a seal: every look at a model, one JSON line each, in the private folder.

Looks get their numbers under a lock, when they are written, so that two authors who look at the same time never get
the same number. The file is replaced as a whole: a kill loses no look that was reported.

Claim: without the key, no line can be changed, added, removed or moved unnoticed. The lines are a chain:
each ends with the HMAC-SHA256, by the seal's key, of its own content and of the code before (of the commitment, in
the first line). The last code is the *head*. A second file holds the number of looks and the head, with a code, too.

Limits: the owner has the key and can write another chain, and restoring older copies of both files removes later
looks. Only a head that was published before, where nothing can be changed later, shows either of them.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_write
from lm_eval_leakage.seal.drawn import Seal, canonical_json
from lm_eval_leakage.stats.looks import Look, look_of, look_record, number_together

LOOKS_FILE, HEAD_FILE, LOOKS_LOCK = "looks.jsonl", "looks_head.json", "looks.lock"
LOCK_SECONDS = 60.0
CODE = "code"  # key of the code of a line, and of the file with the head
BROKEN = "this line, or one before it, was changed, added, removed or moved"


@dataclass(frozen=True)
class Ledger:
    """Holds the looks of a seal and the codes that chain them.

    looks: the looks so far, in the order of their numbers
    heads: hexadecimal codes of the chain: without a look, after the first one, and so on; one more than looks
    """

    looks: tuple[Look, ...]
    heads: tuple[str, ...]

    @property
    def head(self) -> str:
        return self.heads[-1]


def read_ledger(folder: Path, seal: Seal) -> Ledger:
    """Return the looks so far.

    Raises ValueError, with the remedy, if the ledger is not as it was written: a lost look would make later claims
    look surer than they are.
    """
    n_recorded, recorded_head = _recorded_head(folder, seal)  # read first, since a look's line is written first
    file = folder / LOOKS_FILE
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    looks, heads = list[Look](), [_code(seal, "ledger", seal.commitment)]
    for place, line in enumerate(lines, 1):
        try:
            kept: dict[str, Any] = json.loads(line)
            code = kept.pop(CODE)
            if code != _code(seal, heads[-1], kept):
                raise ValueError(BROKEN)
            looks.append(look_of(kept))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            why = str(error) if isinstance(error, ValueError) else repr(error)
            raise ValueError(
                f"{file}, line {place} is not as this package wrote it ({why}); restore it and {HEAD_FILE} from the "
                "newest backup"
            ) from error
        heads.append(code)
    if len(looks) < n_recorded or heads[n_recorded] != recorded_head:
        raise ValueError(
            f"{file} has {len(looks)} of the {n_recorded} looks that {HEAD_FILE} counts; looks that are lost would "
            "make later claims look surer than they are: restore both files from the newest backup"
        )
    return Ledger(tuple(looks), tuple(heads))


def add_looks(folder: Path, seal: Seal, looks: Sequence[Look]) -> list[tuple[Look, Look | None]]:
    """Add looks that are reported together, and return each with its number and the earlier look at the same answers.

    The earlier look is None if these answers are new. New looks are in the ledger when this returns.

    Raises ValueError if the ledger was changed, is being written for a minute, or cannot be written.
    """
    from filelock import FileLock

    try:
        with FileLock(folder / LOOKS_LOCK, timeout=LOCK_SECONDS):
            earlier = read_ledger(folder, seal).looks
            results = number_together(earlier, looks)
            new = [look for look, written in results if written is None]
            if new:
                _write(folder, seal, [*earlier, *new])
    except OSError as error:  # also if another process writes for too long
        raise ValueError(
            f"{folder / LOOKS_FILE} cannot be written ({error.strerror or error}), and a look that is not counted "
            "would spoil the error of all others; wait until no other command writes it, or make the private folder "
            "writable"
        ) from error
    return results


def head_text(seal: Seal, head: str | None = None, n_looks: int = 0) -> str:
    """Return the content of the file with the head; by default, that before the first look."""
    record = {"looks": n_looks, "head": head or _code(seal, "ledger", seal.commitment)}
    return json.dumps(record | {CODE: _code(seal, "head", record)}, indent=1) + "\n"


def _write(folder: Path, seal: Seal, looks: Sequence[Look]) -> None:
    head, lines = _code(seal, "ledger", seal.commitment), []
    for look in looks:
        kept = look_record(look)
        head = _code(seal, head, kept)
        lines.append(json.dumps(kept | {CODE: head}) + "\n")
    atomic_write(folder / LOOKS_FILE, "".join(lines))
    atomic_write(folder / HEAD_FILE, head_text(seal, head, len(looks)))


def _code(seal: Seal, before: str, content: object) -> str:
    """Return the code of some content. It is no draw: messages of draws begin with their purpose and a zero byte."""
    return hmac.new(seal.key, canonical_json(["looks", before, content]), "sha256").hexdigest()


def _recorded_head(folder: Path, seal: Seal) -> tuple[int, str]:
    """Return the number of looks and the head in the file with the head. Raise ValueError if it was changed."""
    file = folder / HEAD_FILE
    try:
        record = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        n_looks, head = int(record["looks"]), str(record["head"])
        if record != json.loads(head_text(seal, head, n_looks)):
            raise ValueError("it was changed")
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = "it is missing" if isinstance(error, FileNotFoundError) else str(error)
        raise ValueError(
            f"{file}, which counts the looks in {LOOKS_FILE}, is not as this package wrote it ({why}); restore both "
            "from the newest backup"
        ) from error
    return n_looks, head
