"""What attacks found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """attack: in words; notes: of each thing that should not have been, what and where
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

    def found(self, note: str, *, lost: int = 0, doubled: int = 0, wrong: int = 0) -> None:
        """Counts one thing; nothing where all of them are 0."""
        if lost or doubled or wrong:
            self.lost, self.doubled, self.wrong = self.lost + lost, self.doubled + doubled, self.wrong + wrong
            self.notes.append(note)

    @property
    def held(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


def as_markdown(tallies: Iterable[Tally]) -> str:
    head = "| attack | tries | lost | doubled | silently wrong |\n|---|---|---|---|---|"
    rows = [f"| {one.attack} | {one.tries:,} | {one.lost} | {one.doubled} | {one.wrong} |" for one in tallies]
    return "\n".join([head, *rows])
