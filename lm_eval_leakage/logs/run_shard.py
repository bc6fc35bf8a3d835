"""A shard of a run: every n-th question of what the whole run would ask, as `--metadata shard=i/n` names it.

The results file records it in `configs`, in each task's `metadata`: the shard as it was given, and how many questions
all shards have together. Only our code writes the latter, so a run without it asked all questions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARD = "shard"  # key of `metadata`
OF_ALL_SHARDS = "questions_of_all_shards"  # key of `metadata`, written by us
WRITTEN = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True, order=True)
class RunShard:
    """Questions `index`, `index + n`, `index + 2 n` ... of a run, counted from 0."""

    index: int
    n: int

    @classmethod
    def of(cls, written: object) -> RunShard:
        """Raises ValueError, with the rule, for anything but `i/n` with i from 0 to n - 1."""
        found = WRITTEN.fullmatch(written.strip()) if isinstance(written, str) else None
        index, n = map(int, found.groups()) if found else (0, 0)
        if not index < n:
            last = f"; its last shard is {n - 1}/{n}" if n else ""
            raise ValueError(
                f"shard is {written!r}; give i/n, such as 0/4 for every fourth question from the first one on, with i "
                f"from 0 to n - 1{last}"
            )
        return cls(index, n)

    def __str__(self) -> str:
        return f"{self.index}/{self.n}"

    def n_own(self, n_questions: int) -> int:
        """How many of the run's questions are in this shard."""
        return len(range(self.index, n_questions, self.n))


def shard_in(metadata: Mapping[str, Any] | None) -> RunShard | None:
    """The shard that `metadata` asks for; None if it asks for all questions. Raises ValueError as above."""
    written = (metadata or {}).get(SHARD)
    return None if written is None else RunShard.of(written)


@dataclass(frozen=True)
class TaskShard:
    """One shard of a task that was done.

    results: the sections of its results file
    n_asked: number of its questions
    log: its samples log; None if it kept none
    """

    results: Mapping[str, Any]
    n_asked: int
    results_file: Path
    log: Path | None


@dataclass(frozen=True)
class ShardSet:
    """What there is of a task that was done in shards.

    n: number of shards
    n_questions: of all shards together
    found: those that there are, by their number, in order
    """

    n: int
    n_questions: int
    found: Mapping[int, TaskShard]

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(one.log for one in self.found.values() if one.log is not None)

    @property
    def results_file(self) -> Path:
        """Of the first shard."""
        return next(iter(self.found.values())).results_file

    @property
    def n_asked(self) -> int:
        return sum(one.n_asked for one in self.found.values())

    @property
    def missing(self) -> list[RunShard]:
        """Shards that have questions, but no results."""
        every = (RunShard(index, self.n) for index in range(min(self.n, self.n_questions)))
        return [shard for shard in every if shard.index not in self.found]

    @property
    def lacking(self) -> str:
        """Which shards are missing, in words; empty if none is."""
        if not (missing := self.missing):
            return ""
        *others, last = map(str, missing)
        named = f"shards {', '.join(others)} and {last} are" if others else f"shard {last} is"
        return f"{named} missing: {self.n_asked:,} of {self.n_questions:,} questions are here"
