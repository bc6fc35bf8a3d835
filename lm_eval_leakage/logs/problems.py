"""Problems met while reading runs, to be reported to the user: nothing is skipped silently."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.texts import visible

# Raised by reading a line that is valid JSON but not what its writer would have written.
NOT_AS_WRITTEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Problem:
    """Something that could not be used or was skipped, in words, with its file and line if it has one.

    incomplete: whether questions that were asked are, or may be, missing, so that the rest must not be judged
    """

    what: str
    file: Path | None = None
    line: int | None = None
    incomplete: bool = False

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}{'' if self.line is None else f', line {self.line}'}: "
        return visible(where + self.what)
