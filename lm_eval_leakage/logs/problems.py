"""What reading runs came upon that its reader must hear of: nothing is passed over in silence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lm_eval_leakage.texts import visible

# What reading a line raises that is JSON but not what its writer would have written.
NOT_AS_WRITTEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Problem:
    """One thing that could not be used, or was passed over, in words; with its place where it has one.

    incomplete: whether questions that were asked are missing, or may be, so that nothing can be judged by the rest
    """

    what: str
    file: Path | None = None
    line: int | None = None
    incomplete: bool = False

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}{'' if self.line is None else f', line {self.line}'}: "
        return visible(where + self.what)
