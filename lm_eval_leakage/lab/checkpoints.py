"""Checkpoints from which an interrupted training resumes; incomplete ones are not used.

The trainer writes a checkpoint file by file. A list of its files, with their sizes, is written after all of them are
on disk, and only then is the previous checkpoint removed: after the first, there is always a complete one.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import atomic_remove, atomic_write, set_aside, to_disk

logger = logging.getLogger(__name__)

CHECKPOINT = re.compile(r"checkpoint-(\d+)")
LIST = "files_of_checkpoint.json"


def newest_whole(state: Path, before: int) -> Path | None:
    """The newest complete checkpoint after fewer than `before` epochs; incomplete ones are renamed."""
    for checkpoint in _checkpoints(state):
        if _epoch(checkpoint) is None:
            aside = set_aside(checkpoint, "broken")
            logger.warning("%s was not saved completely; it is renamed to %s", checkpoint, aside.name)
    found = {epoch: checkpoint for epoch, checkpoint in _whole(state).items() if epoch < before}
    if not found:
        return None
    logger.warning("the training resumes after epoch %d, from %s", max(found), found[max(found)])
    return found[max(found)]


def remove_used(state: Path, up_to: int) -> None:
    """Removes the checkpoints of a finished training of `up_to` epochs, but not those of a longer one."""
    if max(_whole(state), default=0) <= up_to:
        atomic_remove(state)


def seal(checkpoint: Path, epoch: int) -> None:
    """Marks `checkpoint` as complete, once all of it is on disk, and removes the other checkpoints."""
    to_disk(checkpoint)
    sizes = {file.relative_to(checkpoint).as_posix(): file.stat().st_size for file in _files(checkpoint)}
    atomic_write(checkpoint / LIST, json.dumps({"epoch": epoch, "files": sizes}))
    for other in _checkpoints(checkpoint.parent):
        if other != checkpoint:
            atomic_remove(other)


def sealing() -> Any:
    """A trainer callback that seals every checkpoint that the trainer saves."""
    from transformers import TrainerCallback

    class Sealing(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
            if state.is_world_process_zero:
                seal(Path(args.output_dir) / f"checkpoint-{state.global_step}", round(state.epoch))

    return Sealing()


def _checkpoints(state: Path) -> list[Path]:
    return [entry for entry in sorted(state.glob("*")) if CHECKPOINT.fullmatch(entry.name)]


def _whole(state: Path) -> dict[int, Path]:
    """The complete checkpoints, by epoch."""
    return {epoch: place for place in _checkpoints(state) if (epoch := _epoch(place)) is not None}


def _epoch(checkpoint: Path) -> int | None:
    """The number of epochs after which a checkpoint was saved; None if it is incomplete."""
    try:
        sealed = json.loads((checkpoint / LIST).read_text(encoding="utf-8"))
        whole = all((checkpoint / name).stat().st_size == size for name, size in sealed["files"].items())
        return int(sealed["epoch"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _files(checkpoint: Path) -> list[Path]:
    return [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != LIST]
