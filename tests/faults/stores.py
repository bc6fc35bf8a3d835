"""Kept answers of a run that was killed, damaged in every way that disks, programs and people have."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from tests.faults.children import KILLED
from tests.faults.tally import Tally, attack
from tests.faults.weighed import OF_ACCURACY, OF_ORDERS, Place, killed

Damage = Callable[[Path, random.Random], None]


def _flip(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 1, 10, 100])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)


def _cut(file: Path, rng: random.Random) -> None:
    file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])


def _page_of_zeros(file: Path, rng: random.Random) -> None:
    content = bytearray(file.read_bytes())
    at = 4096 * rng.randrange(len(content) // 4096)
    content[at : at + 4096] = bytes(4096)
    file.write_bytes(content)


def _in_tables(command: str) -> Damage:
    def damage(file: Path, rng: random.Random) -> None:
        with closing(sqlite3.connect(file)) as database, database, suppress(sqlite3.OperationalError):
            database.execute(command)

    return damage


def _swap(*columns: str) -> Damage:
    """Each row gets what another one has."""
    changed = ", ".join(f"{column} = ?" for column in columns)

    def damage(file: Path, rng: random.Random) -> None:
        with closing(sqlite3.connect(file)) as database, database, suppress(sqlite3.OperationalError):
            rows = database.execute(f"SELECT key, {', '.join(columns)} FROM answers").fetchall()
            for (key, *_), (_, *others) in zip(rows, rows[1:] + rows[:1], strict=True):
                database.execute(f"UPDATE answers SET {changed} WHERE key = ?", (*others, key))

    return damage


def _with_journal(file: Path, rng: random.Random) -> None:
    """Write a journal as a process that was killed may leave it; this one is of nothing."""
    file.with_name(f"{file.name}-journal").write_bytes(rng.randbytes(rng.choice([0, 100, 5000])))


def _as_folder(file: Path, _: random.Random) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Damage] = {
    "flipped": _flip,
    "cut": _cut,
    "a page of zeros": _page_of_zeros,
    "empty": lambda file, _: file.write_bytes(b""),
    "noise": lambda file, rng: file.write_bytes(rng.randbytes(5000)),
    "a folder": _as_folder,
    "gone": lambda file, _: file.unlink(),
    "journal": _with_journal,
    "answers swapped": _swap("answer"),
    "checksums swapped": _swap("checksum"),
    "both swapped": _swap("answer", "checksum"),
    "an answer for all": _in_tables("UPDATE answers SET answer = '[-1.0, false]'"),
    "texts": _in_tables("UPDATE answers SET answer = 'x', checksum = 'y'"),
    "no table": _in_tables("DROP TABLE answers"),
    "no model": _in_tables("DELETE FROM model"),
}


@attack("damaged store of answers", 45, 1)
def damaged_answers(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A check is killed in its accuracy or its audit; then its kept answers are damaged. The verdict and the samples
    are those of an undisturbed check, whatever has to be asked again."""
    place = Place(folder)
    assert place.check().code == 0
    right, samples = place.verdicts(), place.samples()
    sources = [_killed(place, request) for request in (OF_ACCURACY - 10, OF_ACCURACY + 2 * OF_ORDERS // 3)]
    for number in range(tries):
        how = list(DAMAGE)[number % len(DAMAGE)]
        place.without_output()
        shutil.copytree(rng.choice(sources), place.out)
        for file in sorted(place.out.rglob("*.sqlite")):
            DAMAGE[how](file, rng)
        ended = place.check()
        note = f"{how}: exit {ended.code}: {ended.output[-300:]}"
        tally.tries += 1
        tally.record(note, lost=ended.code == 2)
        same = place.verdicts() == right and place.samples() == samples
        tally.record(f"otherwise: {note}", wrong=ended.code != 2 and not same)


def _killed(place: Place, request: int) -> Path:
    place.without_output()
    assert place.check(at={request: killed}).code == KILLED
    return place.out.rename(place.folder.with_name(f"killed_{request}"))
