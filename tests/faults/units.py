"""Campaigns whose folders are damaged, forged, used twice at once, or left by kills at every rename."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from lm_eval_leakage import files
from tests.faults.children import KILLED, child, has_traceback, kill_at
from tests.faults.commands import typed
from tests.faults.tally import Tally, attack
from tests.faults.weighed import OF_ACCURACY, OF_ORDERS, Place, killed
from tests.logs.test_broken_files import damage

UNITS = ("a/quiz/run/0of1", "a/quiz/leakage_perm/0of1")
OTHER = "fedcba9876543210"
Change = Callable[[Path, random.Random], str]  # changes a campaign's folder, and tells what verify must name


def _whole(place: Place) -> str:
    ended = place.campaign()
    assert ended.code == 0, ended.output
    return place.table()


# ---------------------------------------------------------------------- verify


def _in_manifest(change: Callable[[dict, random.Random], object]) -> Change:
    def changed(out: Path, rng: random.Random) -> str:
        file = out / "manifest.json"
        manifest = json.loads(file.read_text())
        told = change(manifest, rng)
        file.write_text(json.dumps(manifest))
        return str(told or "")

    return changed


def _unit_digest(manifest: dict, rng: random.Random) -> str:
    told = manifest["units"][rng.choice(UNITS)]["files"]
    name = rng.choice(sorted(told))
    told[name] = OTHER * 4
    return Path(name).name


def _unit_model(manifest: dict, rng: random.Random) -> str:
    unit = rng.choice(UNITS)
    manifest["units"][unit]["identity"]["pretrained"] += f" ({OTHER})"
    return unit


def _without_unit(manifest: dict, rng: random.Random) -> str:
    unit = rng.choice(UNITS)
    del manifest["units"][unit]
    return unit.rpartition("/")[0]


def _other_plan(manifest: dict, rng: random.Random) -> str:
    key, value = rng.choice([("seed", 7), ("shards", 2), ("questions", 5), ("accuracy", False)])
    manifest["plan"][key] = value
    return "plan.yaml"


def _edited(out: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(file for file in (out / "runs").rglob("*") if file.is_file()))
    _damage(file, rng)
    return file.name


def _damage(file: Path, rng: random.Random) -> None:
    before = file.read_bytes()
    if file.suffix == ".json":  # in one line, since lines are damaged
        file.write_text(json.dumps(json.loads(before)))
    while file.read_bytes() == before:
        damage(file, rng)


def _forged(out: Path, rng: random.Random) -> str:
    depths = ("b/quiz/run/0of1", "a/quiz/run/0of2", "a/quiz/run/deeper/0of1", "a/elsewhere", "z", "a/x/y/z/u")
    where = rng.choice(depths)
    shutil.copytree(out / "runs" / rng.choice(UNITS), out / "runs" / where)
    return where.split("/")[0]


def _gone(out: Path, rng: random.Random) -> str:
    unit = rng.choice(UNITS)
    shutil.rmtree(out / "runs" / unit)
    return unit.rpartition("/")[0]


def _table(out: Path, rng: random.Random) -> str:
    file = out / rng.choice(["leaderboard.csv", "leaderboard.md", "leaderboard.json"])
    content = file.read_text()
    at = rng.choice([at for at, letter in enumerate(content) if letter.isdigit()])
    file.write_text(content[:at] + str((int(content[at]) + 1) % 10) + content[at + 1 :])
    return file.name


TAMPERED: dict[str, Change] = {
    "a digest in the manifest": _in_manifest(_unit_digest),
    "a model in the manifest": _in_manifest(_unit_model),
    "a unit out of the manifest": _in_manifest(_without_unit),
    "the plan in the manifest": _in_manifest(_other_plan),
    "a file of a unit": _edited,
    "a forged unit": _forged,
    "a unit removed": _gone,
    "a table": _table,
}


@attack("tampered campaigns", 96, 4)
def tampered_campaigns(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """One thing is changed: `check --verify` ends with an error, and names it."""
    place = Place(folder)
    _whole(place)
    source = place.out.rename(folder.with_name("campaign"))
    shutil.copytree(source, place.out)
    assert place.command("check", "--verify", str(place.out)).code == 0
    for number in range(tries):
        what = list(TAMPERED)[number % len(TAMPERED)]
        place.without_output()
        shutil.copytree(source, place.out)
        name = TAMPERED[what](place.out, rng)
        ended = place.command("check", "--verify", str(place.out))
        tally.tries += 1
        note = f"{what}: exit {ended.code}: {ended.output[-500:]}"
        tally.found(f"not named: {name}: {note}", wrong=ended.code == 0 or name not in ended.output)
        tally.found(f"traceback: {note}", wrong=has_traceback(ended))


# ---------------------------------------------------------------------- damage


@attack("damaged units of a campaign", 80, 1)
def damaged_units(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Files of a unit that is done, of one that was killed, or of the campaign itself are damaged or removed, and the
    same command is given: its table is the right one, or it says that something is amiss, as `verify` then does."""
    place = Place(folder)
    right = _whole(place)
    whole = place.out.rename(folder.with_name("whole"))
    assert place.campaign(at={OF_ACCURACY + OF_ORDERS // 2: killed}).code == KILLED
    half = place.out.rename(folder.with_name("half"))
    while tally.tries < tries:
        place.without_output()
        shutil.copytree(rng.choice([whole, half]), place.out)
        found = sorted(file for file in place.out.rglob("*") if file.is_file() and file.suffix != ".lock")
        file = rng.choice(found)
        name = file.relative_to(place.out)
        if rng.random() < 0.3 or file.suffix not in (".json", ".jsonl"):
            file.unlink()
        else:
            _damage(file, rng)
        ended = place.campaign()
        tally.tries += 1
        is_right = place.table() == right
        told = is_right or ended.code != 0 or place.command("check", "--verify", str(place.out)).code != 0
        note = f"{name}: exit {ended.code}: {ended.output[-400:]}"
        tally.found(f"{note}: another table without a word", wrong=not told)
        tally.found(f"{note}: traceback", wrong=has_traceback(ended))


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
        tally.found(f"exit codes {codes}: {ended.output[-300:]}", wrong=codes not in ([0, 0], [0, 2]))
        tally.found("another table", wrong=place.table() != right)
        results = list((place.out / "runs").rglob("results_*.json"))
        tally.found(f"runs: {results}", doubled=max(0, len(results) - len(UNITS)))
        verified = place.command("check", "--verify", str(place.out))
        tally.found(verified.output[-300:], wrong=verified.code != 0)


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
        tally.found(f"does not go on: {note}", lost=ended.code != 0)
        found = place.table() if is_campaign else (place.verdicts(), place.samples())
        tally.found(f"ends otherwise: {note}", wrong=found != right[is_campaign])
