"""Checkpoints from which a training that was killed goes on: each is whole, or it is not used.

The trainer writes a checkpoint file by file. A list of its files, with their sizes, is written after them all are on
disk, and only then is the one before removed: after the first, there is a whole one at any moment.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from lm_eval_leakage.files import remove_whole, set_aside, to_disk, write_whole

logger = logging.getLogger(__name__)

CHECKPOINT = re.compile(r"checkpoint-(\d+)")
LIST = "files_of_checkpoint.json"


def newest_whole(state: Path, before: int) -> Path | None:
    """The newest whole checkpoint after fewer than `before` epochs; those that are not whole are set aside."""
    for checkpoint in _checkpoints(state):
        if _epoch(checkpoint) is None:
            aside = set_aside(checkpoint, "broken")
            logger.warning("%s was not saved whole; it is set aside as %s", checkpoint, aside.name)
    found = {epoch: checkpoint for epoch, checkpoint in _whole(state).items() if epoch < before}
    if not found:
        return None
    logger.warning("the training goes on after epoch %d, from %s", max(found), found[max(found)])
    return found[max(found)]


def remove_used(state: Path, up_to: int) -> None:
    """Removes the checkpoints of a training of `up_to` epochs that is done; those of a longer one stay."""
    if max(_whole(state), default=0) <= up_to:
        remove_whole(state)


def seal(checkpoint: Path, epoch: int) -> None:
    """Says that all of `checkpoint` is on disk, and removes the ones beside it."""
    to_disk(checkpoint)
    sizes = {file.relative_to(checkpoint).as_posix(): file.stat().st_size for file in _files(checkpoint)}
    write_whole(checkpoint / LIST, json.dumps({"epoch": epoch, "files": sizes}))
    for other in _checkpoints(checkpoint.parent):
        if other != checkpoint:
            remove_whole(other)


def sealing() -> Any:
    """Seals what the trainer saves, as a callback of it."""
    from transformers import TrainerCallback

    class Sealing(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
            if state.is_world_process_zero:
                seal(Path(args.output_dir) / f"checkpoint-{state.global_step}", round(state.epoch))

    return Sealing()


def _checkpoints(state: Path) -> list[Path]:
    return [entry for entry in sorted(state.glob("*")) if CHECKPOINT.fullmatch(entry.name)]


def _whole(state: Path) -> dict[int, Path]:
    """The whole checkpoints, by epoch."""
    return {epoch: place for place in _checkpoints(state) if (epoch := _epoch(place)) is not None}


def _epoch(checkpoint: Path) -> int | None:
    """After how many epochs a checkpoint is, None where it is not whole."""
    try:
        sealed = json.loads((checkpoint / LIST).read_text(encoding="utf-8"))
        whole = all((checkpoint / name).stat().st_size == size for name, size in sealed["files"].items())
        return int(sealed["epoch"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _files(checkpoint: Path) -> list[Path]:
    return [file for file in sorted(checkpoint.rglob("*")) if file.is_file() and file.name != LIST]
