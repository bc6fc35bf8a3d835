"""Attacks, and what they found."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Tally:
    """The counts of an attack.

    attack: in words; notes: of each thing that should not have been, what and where
    lost: answers that were given long enough before a kill and were asked again, or files that were no longer whole
    doubled: questions that stood twice in what was written
    wrong: results that differ from those of an undisturbed run, or are missing, without a word
    """

    attack: str
    tries: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    notes: list[str] = field(default_factory=list)

    def record(self, note: str, *, lost: int = 0, doubled: int = 0, wrong: int = 0) -> None:
        """Count one thing; nothing where all of them are 0."""
        if lost or doubled or wrong:
            self.lost, self.doubled, self.wrong = self.lost + lost, self.doubled + doubled, self.wrong + wrong
            self.notes.append(note)

    @property
    def held(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


Run = Callable[[Tally, Path, int, random.Random], None]


@dataclass(frozen=True)
class Attack:
    """An attack of the campaign.

    words: in the table; run: is given a folder that is not there yet, in one of its own
    tries: in the whole campaign; in_core: in its small core, 0 if it is not part of it
    """

    words: str
    tries: int
    in_core: int
    run: Run

    def tally(self, small: bool, seed: int) -> Tally:
        tally = Tally(self.words)
        with tempfile.TemporaryDirectory() as folder:
            tries = self.in_core if small else self.tries
            self.run(tally, Path(folder) / "place", tries, random.Random(f"{seed} {self.words}"))
        return tally


ATTACKS: dict[str, Attack] = {}


def attack(words: str, tries: int, in_core: int) -> Callable[[Run], Run]:
    """Makes a function an attack of its name; see `Attack`."""

    def added(run: Run) -> Run:
        ATTACKS[run.__name__] = Attack(words, tries, in_core, run)
        return run

    return added


def as_markdown(tallies: Iterable[Tally]) -> str:
    head = "| attack | tries | lost | doubled | silently wrong |\n|---|---|---|---|---|"
    rows = [
        f"| {tally.attack} | {tally.tries:,} | {tally.lost} | {tally.doubled} | {tally.wrong} |" for tally in tallies
    ]
    return "\n".join([head, *rows])
