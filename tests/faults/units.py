"""Campaigns whose folders are damaged, used twice at once, or left by kills at every rename."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

from lm_eval_leakage import files
from tests.faults.children import KILLED, child, has_traceback, kill_at
from tests.faults.commands import typed
from tests.faults.tally import Tally, attack
from tests.faults.weighed import OF_ACCURACY, OF_ORDERS, Place, killed
from tests.logs.test_broken_files import damage

UNITS = ("a/quiz/run", "a/quiz/leakage_perm")
NO_VERDICT, NOTE = "NO VERDICT", "note: "


def _whole(place: Place) -> str:
    ended = place.campaign()
    assert ended.code == 0, ended.output
    assert NOTE not in ended.output
    return place.table()


# ---------------------------------------------------------------------- damage


def _damage(file: Path, rng: random.Random) -> None:
    before = file.read_bytes()
    if file.suffix == ".json":  # in one line, since lines are damaged
        file.write_text(json.dumps(json.loads(before)))
    while file.read_bytes() == before:
        damage(file, rng)


@attack("damaged units of a campaign", 80, 1)
def damaged_units(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Files of a unit that was killed, or of the campaign itself, are damaged or removed, those of a unit that is done
    cut or removed, and the same command is given: its table is the right one, or it says that something is amiss. A
    value in a log that was edited into another one cannot be recognised."""
    place = Place(folder)
    right = _whole(place)
    whole = place.out.rename(folder.with_name("whole"))
    assert place.campaign(at={OF_ACCURACY + OF_ORDERS // 2: killed}).code == KILLED
    half = place.out.rename(folder.with_name("half"))
    while tally.tries < tries:
        place.without_output()
        shutil.copytree(rng.choice([whole, half]), place.out)
        files = sorted(file for file in place.out.rglob("*") if file.is_file() and file.suffix != ".lock")
        file = rng.choice(files)
        name = file.relative_to(place.out)
        if rng.random() < 0.3 or file.suffix not in (".json", ".jsonl"):
            file.unlink()
        elif name.parts[0] == "runs":
            file.write_bytes(file.read_bytes()[: rng.randrange(file.stat().st_size)])
        else:
            _damage(file, rng)
        ended = place.campaign()
        tally.tries += 1
        is_reported = (
            place.table() == right or ended.code != 0 or any(word in ended.output for word in (NO_VERDICT, NOTE))
        )
        note = f"{name}: exit {ended.code}: {ended.output[-400:]}"
        tally.record(f"{note}: another table without a word", wrong=not is_reported)
        tally.record(f"{note}: traceback", wrong=has_traceback(ended))


@attack("two campaigns in one folder at once", 5, 1)
def two_campaigns_at_once(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """Two commands start the same campaign at once: one does it, the other one is refused or finds it done."""
    place = Place(folder)
    right = _whole(place)
    for _ in range(tries):
        place.without_output()
        pid = os.fork()
        if pid == 0:
            words = ["check", str(place.folder / "plan.yaml"), "--output_path", str(place.out)]
            os._exit(child(typed(words), place.folder / "other").code)
        ended = place.campaign()
        other = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tally.tries += 1
        codes = sorted((ended.code, other))
        tally.record(f"exit codes {codes}: {ended.output[-300:]}", wrong=codes not in ([0, 0], [0, 2]))
        tally.record("another table", wrong=place.table() != right)
        results = list((place.out / "runs").rglob("results_*.json"))
        tally.record(f"runs: {results}", doubled=max(0, len(results) - len(UNITS)))


# ---------------------------------------------------------------------- kills at renames


RENAMES = ((files.Path, "replace"), (files.Path, "rename"), (files.os, "fsync"), (files.os, "link"))


@attack("kill of check and campaign at a rename or a flush", 40, 1)
def kills_at_renames(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A check or a campaign is killed before or after one of the calls that give a file or folder its name or flush it
    to disk, all of which come after the first saved answers, and is then continued."""
    place = Place(folder)
    right: dict[bool, object] = {True: _whole(place)}
    place.without_output()
    place.check()
    right[False] = (place.verdicts(), place.samples())
    while tally.tries < tries:
        place.without_output()
        is_campaign = rng.random() < 0.5
        what, name = rng.choice(RENAMES)
        call = rng.randint(1, 25 if name == "fsync" else 8)
        with kill_at(what, name, call, after=rng.random() < 0.5):
            ended = place.campaign() if is_campaign else place.check()
        tally.tries += int(ended.code == KILLED)
        ended = place.campaign() if is_campaign else place.check()
        note = f"{name}, call {call}: {ended.output[-400:]}"
        tally.record(f"does not go on: {note}", lost=ended.code != 0)
        ending = place.table() if is_campaign else (place.verdicts(), place.samples())
        tally.record(f"ends otherwise: {note}", wrong=ending != right[is_campaign])
