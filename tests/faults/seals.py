"""Writers with equal process ids, killed `seal`s, and seals that were tampered with."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from lm_eval_leakage import files
from lm_eval_leakage.files import atomic_write, try_to_write
from lm_eval_leakage.harness.sealing import sealing_of, write_sealing
from lm_eval_leakage.seal.drawn import Seal
from lm_eval_leakage.seal.folders import read_seal
from lm_eval_leakage.seal.looks_file import HEAD_FILE, LOOKS_FILE, add_looks, head_text, read_ledger
from lm_eval_leakage.stats.looks import Look
from tests.faults.children import KILLED, child, has_traceback, kill_at
from tests.faults.commands import typed
from tests.faults.tally import Tally, attack
from tests.sealed import rows

SIZE, WRITERS, WRITES = 60_000, 4, 15
N_LOOKS = 4
Lines = list[str]

# ---------------------------------------------------------------------- equal process ids


@attack("writers with equal process ids", 3000, 120)
def equal_process_ids(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Four processes that are number 1, as in containers, write one file; half the time, one of them is killed. A try
    is a write."""
    file = folder / "verdicts.json"
    while tally.tries < tries:
        atomic_write(file, "0" * SIZE)
        writers = [_writer(file, letter) for letter in "1234"[:WRITERS]]
        victim = rng.choice(writers) if rng.random() < 0.5 else None
        at_read, n_reads = rng.randrange(20), 0
        while any(os.waitid(os.P_PID, writer, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for writer in writers):
            text = file.read_text()
            tally.record(f"a file of {len(text)} characters", wrong=len(text) != SIZE or len(set(text)) != 1)
            if victim is not None and n_reads == at_read:
                os.kill(victim, signal.SIGKILL)
            n_reads += 1
        codes = [os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) for writer in writers]
        tally.record(f"exit codes {codes}", lost=sum(code not in (0, -signal.SIGKILL) for code in codes))
        try_to_write(folder)
        left = [path.name for path in folder.iterdir() if path != file]
        tally.record(f"left: {left}", wrong=len(left))
        tally.tries += WRITERS * WRITES


def _writer(file: Path, letter: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.getpid = lambda: 1
    try:
        for _ in range(WRITES):
            atomic_write(file, letter * SIZE)
    except BaseException:
        os._exit(1)
    os._exit(0)


# ---------------------------------------------------------------------- kills of seal


@attack("kill of seal", 40, 3)
def killed_seals(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A `seal` is killed at every flush to disk and rename. The same command completes it, and no key lies outside the
    private folder."""
    for _ in range(tries):
        place = folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        source = _questions(place / "mine.jsonl")
        seal = typed(["seal", str(source), "--output_path", str(place / "sealed")])
        what, name = rng.choice([(files.os, "fsync"), (files.Path, "rename")])
        with kill_at(what, name, rng.randint(1, 8 if name == "fsync" else 1), after=rng.random() < 0.5):
            ended = child(seal, folder / "log")
        tally.tries += int(ended.code == KILLED)
        again = child(seal, folder / "log")
        is_there = (place / "sealed" / "private" / "key.json").is_file()
        tally.record(f"{name}: {again.output[-300:]}", lost=again.code not in (0, 2) or not is_there)
        keys = [path for path in place.rglob("key.json") if path.parent.parent.name != "sealed"]
        tally.record(f"{name}: keys {keys}", wrong=len(keys))


def _questions(file: Path) -> Path:
    atomic_write(file, "".join(f"{json.dumps(row)}\n" for row in rows(6)))
    return file


# ---------------------------------------------------------------------- tampered seals


def _without(place: int) -> Callable[[Lines, random.Random], Lines]:
    return lambda lines, _: [*lines[:place], *lines[place + 1 :]] if place >= 0 else lines[:place]


def _renumbered(lines: Lines, _: random.Random) -> Lines:
    """Remove the first line, as if there had never been more."""
    looks = [json.loads(line) for line in lines[1:]]
    return [json.dumps(look | {"number": number}) + "\n" for number, look in enumerate(looks, 1)]


def _edited(lines: Lines, rng: random.Random) -> Lines:
    place = rng.randrange(len(lines))
    look = json.loads(lines[place])
    key = rng.choice(["pvalue", "log_evalue", "model", "places", "alpha"])
    value = {"model": "org/other", "places": "5"}.get(key, 0.0002)
    return [*lines[:place], json.dumps(look | {key: value}) + "\n", *lines[place + 1 :]]


def _swapped(lines: Lines, rng: random.Random) -> Lines:
    first, other = rng.sample(range(len(lines)), 2)
    lines[first], lines[other] = lines[other], lines[first]
    return lines


LEDGER: Mapping[str, Callable[[Lines, random.Random], Lines]] = {
    "deleted, first": _without(0),
    "deleted, last": _without(-1),
    "went back": lambda lines, rng: lines[: rng.randrange(len(lines))],
    "renumbered": _renumbered,
    "edited": _edited,
    "swapped": _swapped,
    "doubled": lambda lines, rng: [*lines, rng.choice(lines)],
}


@attack("tampered seals", 500, 10)
def tampered_seals(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """`seal verify` of the folder of both, after one file of it was changed: never verified, and named."""
    source = folder / "source"
    write_sealing(sealing_of(str(_questions(folder / "mine.jsonl")), None, "keep", None), source)
    seal = read_seal(source / "private")
    for number in range(N_LOOKS):
        add_looks(source / "private", seal, [Look(0, f"org/{number}", f"{number}", 0.01, 0.3, 0.5, "0-5")])
    head = read_ledger(source / "private", seal).head
    attacked = [file for file in sorted(source.rglob("*")) if file.is_file() and file.suffix not in (".lock", ".txt")]
    attacked = [file for file in attacked if file.name != ".gitignore"]
    while tally.tries < tries:
        place = folder / "sealed"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        words = ["seal", "verify", str(place)]
        if rng.random() < 0.1:
            name, note = HEAD_FILE, "both files of the ledger as they once were"
            _go_back(place / "private", seal, rng)
            words += ["--head", head]
        else:
            file = place / rng.choice(attacked).relative_to(source)
            name, note = file.name, _tamper(file, rng)
        ended = child(typed(words), folder / "log")
        tally.tries += 1
        note_of_seal = f"{name}, {note}: exit {ended.code}: {ended.output[-300:]}"
        is_reported = f"{name} was compared row by row" in ended.output  # the name of its writer was changed
        tally.record(f"verified: {note_of_seal}", wrong=ended.code == 0 and not is_reported)
        tally.record(f"traceback: {note_of_seal}", wrong=has_traceback(ended))
        is_named = name in ended.output or "private" in ended.output or note.startswith("both")
        tally.record(f"not named: {note_of_seal}", wrong=not is_named)


def _go_back(private: Path, seal: Seal, rng: random.Random) -> None:
    """Restore an earlier state, as from a backup of that day or as the owner would write it."""
    looks = read_ledger(private, seal).looks
    (private / LOOKS_FILE).unlink()
    atomic_write(private / HEAD_FILE, head_text(seal))
    add_looks(private, seal, looks[: rng.randrange(len(looks))])


def _tamper(file: Path, rng: random.Random) -> str:
    """Change what the file says, and return how."""
    if rng.random() < 0.1:
        file.unlink()
        return "deleted"
    if file.name == LOOKS_FILE:
        how, change = rng.choice(list(LEDGER.items()))
        file.write_text("".join(change(file.read_text().splitlines(keepends=True), rng)))
        return how
    content = file.read_bytes()
    if not content or (rng.random() < 0.2 and file.parent.name == "public"):
        file.write_bytes(content + rng.choice([b"\n", b"import os; os.system('id')\n", b"{}\n"]))
        return "added to"
    letters = [at for at, byte in enumerate(content) if chr(byte).isalnum()]
    at = rng.choice(letters)
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    return f"byte {at}"
