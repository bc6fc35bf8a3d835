"""Writers that cannot be told apart by process id, killed `seal`s, and seals that were tampered with."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path

from lm_eval_leakage import files
from lm_eval_leakage.files import atomic_write, try_to_write
from lm_eval_leakage.harness.sealing import sealing_of, write_sealing
from lm_eval_leakage.seal.folders import read_seal
from lm_eval_leakage.seal.looks_file import add_looks
from lm_eval_leakage.stats.looks import Look
from tests.faults.children import KILLED, child, has_traceback, kill_at
from tests.faults.commands import typed
from tests.faults.tally import Tally
from tests.sealed import rows

SIZE, WRITERS, WRITES = 60_000, 4, 15
N_LOOKS = 4

# ---------------------------------------------------------------------- equal process ids


def equal_process_ids(folder: Path, tries: int, rng: random.Random) -> Tally:
    """Four processes that are number 1, as in containers, write one file; half the time, one of them is killed. A try
    is a write."""
    tally = Tally("writers with equal process ids")
    file = folder / "verdicts.json"
    while tally.tries < tries:
        atomic_write(file, "0" * SIZE)
        writers = [_writer(file, letter) for letter in "1234"[:WRITERS]]
        victim = rng.choice(writers) if rng.random() < 0.5 else None
        at_read, n_reads = rng.randrange(20), 0
        while any(os.waitid(os.P_PID, one, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None for one in writers):
            text = file.read_text()
            tally.found(f"a file of {len(text)} characters", wrong=int(len(text) != SIZE or len(set(text)) != 1))
            if victim is not None and n_reads == at_read:
                os.kill(victim, signal.SIGKILL)
            n_reads += 1
        codes = [os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]) for one in writers]
        tally.found(f"exit codes {codes}", lost=sum(code not in (0, -signal.SIGKILL) for code in codes))
        try_to_write(folder)
        left = [path.name for path in folder.iterdir() if path != file]
        tally.found(f"left: {left}", wrong=len(left))
        tally.tries += WRITERS * WRITES
    return tally


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


def killed_seals(folder: Path, tries: int, rng: random.Random) -> Tally:
    """At every flush to disk and rename. The same command completes it, and no key lies outside the private folder."""
    tally = Tally("kill of seal")
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
        tally.found(f"{name}: {again.output[-300:]}", lost=int(again.code not in (0, 2) or not is_there))
        keys = [path for path in place.rglob("key.json") if path.parent.parent.name != "sealed"]
        tally.found(f"{name}: keys {keys}", wrong=len(keys))
    return tally


def _questions(file: Path) -> Path:
    atomic_write(file, "".join(f"{json.dumps(one)}\n" for one in rows(6)))
    return file


# ---------------------------------------------------------------------- tampered seals


def tampered_seals(folder: Path, tries: int, rng: random.Random) -> Tally:
    """`seal verify` of the folder of both, after one file of it was changed: never verified, and named."""
    tally = Tally("tampered seals")
    source = folder / "source"
    write_sealing(sealing_of(str(_questions(folder / "mine.jsonl")), None, "keep", None), source)
    seal = read_seal(source / "private")
    for number in range(N_LOOKS):
        add_looks(source / "private", seal, [Look(0, f"org/{number}", f"{number}", 0.01, 0.3, 0.5, "0-5")])
    attacked = [file for file in sorted(source.rglob("*")) if file.is_file() and file.suffix not in (".lock", ".txt")]
    attacked = [file for file in attacked if file.name != ".gitignore"]
    while tally.tries < tries:
        place = folder / "sealed"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        file = place / rng.choice(attacked).relative_to(source)
        name, note = file.name, _tamper(file, rng)
        ended = child(typed(["seal", "verify", str(place)]), folder / "log")
        tally.tries += 1
        told = f"{name}, {note}: exit {ended.code}: {ended.output[-300:]}"
        is_told = f"{name} was compared row by row" in ended.output  # the name of its writer was changed
        tally.found(f"verified: {told}", wrong=int(ended.code == 0 and not is_told))
        tally.found(f"traceback: {told}", wrong=int(has_traceback(ended)))
        is_named = name in ended.output or "private" in ended.output
        tally.found(f"not named: {told}", wrong=int(not is_named))
    return tally


def _tamper(file: Path, rng: random.Random) -> str:
    """Changes what the file says, and tells how."""
    if rng.random() < 0.1:
        file.unlink()
        return "deleted"
    content = file.read_bytes()
    if not content or (rng.random() < 0.2 and file.parent.name == "public"):
        file.write_bytes(content + rng.choice([b"\n", b"import os; os.system('id')\n", b"{}\n"]))
        return "added to"
    letters = [at for at, byte in enumerate(content) if chr(byte).isalnum()]
    at = rng.choice(letters)
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    return f"byte {at}"
