"""Attempts that workers elsewhere have recorded since one last looked."""

from __future__ import annotations

import os
from pathlib import Path

from lm_eval_leakage.campaign.attempts import Attempt, attempt_of


class NewAttempts:
    """Looks at the sizes of the files of attempts, and reads only what was added to them: one listing of one folder,
    however many workers there are.

    folder: that of the files; what they hold at first is not new
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, int] = {}  # bytes, up to the end of a line, by file
        self.look()

    def look(self) -> list[Attempt]:
        """Those that are new, oldest first."""
        if not self._folder.is_dir():
            return []
        with os.scandir(self._folder) as entries:
            grown = [entry.name for entry in entries if entry.stat().st_size > self._read.get(entry.name, 0)]
        found = [attempt for name in sorted(grown) for attempt in self._of(name)]
        return sorted(found, key=lambda attempt: attempt.time)

    def _of(self, name: str) -> list[Attempt]:
        begun = self._read.get(name, 0)
        with (self._folder / name).open("rb") as stream:
            stream.seek(begun)
            whole = stream.read().rpartition(b"\n")[0]
        self._read[name] = begun + len(whole) + bool(whole)
        found = []
        for line in whole.splitlines():
            try:
                found.append(attempt_of(line))
            except ValueError:  # left incomplete by a worker that was killed
                continue
        return found
