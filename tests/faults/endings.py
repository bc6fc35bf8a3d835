"""How commands end whose outputs are closed or whose disk is full, and what they claim about an inflation."""

from __future__ import annotations

import builtins
import errno
import io
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from lm_eval_leakage.jobs.outcome import CheckOutcome
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.columns import INFLATION
from lm_eval_leakage.results.exports import EXPORTS, exported
from lm_eval_leakage.results.page import render_page
from lm_eval_leakage.results.result_types import Annotation, Row
from lm_eval_leakage.results.tables import as_text, write
from lm_eval_leakage.results.verdict_record import checked_task
from tests.faults import changes, commands
from tests.faults.children import Ended, has_traceback
from tests.faults.commands import digests, folder_of_runs, undisturbed
from tests.faults.tally import Tally, attack
from tests.faults.weighed import Place
from tests.results.harness_files import answered, audited, confused, row, write_run

PROGRAM = (sys.executable, "-c", "from lm_eval_leakage.cli import main; main()")
CONDITIONS = ("flagged_rate>0.1", "flagged_rate>0.9", "nonsense")  # met, not met, refused
CLOSED = (">&-", "2>&-", ">&- 2>&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-")


@attack("outputs that are closed", 36, 1)
def closed_outputs(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Outputs of annotate, report, leaderboard and clean are closed, in interpreters of their own: exit status and
    files are those of the same command with open outputs, and there is no traceback."""
    source = folder_of_runs(folder / "source", n_rows=40)
    given = {
        **commands.commands(source),
        "tables": ["annotate", str(source / "runs"), "--dry_run", "--format", "json"],
    }
    for condition in CONDITIONS:
        given[f"annotate --fail-on {condition}"] = [*given["annotate"], "--fail-on", condition]
    right = {name: _ended(source, words, "") for name, words in given.items()}
    for number in range(tries):
        name, closed = list(given)[number % len(given)], rng.choice(CLOSED)
        code, files, output = _ended(source, given[name], closed)
        tally.tries += 1
        note = f"{name} {closed}: exit {code}: {output[-300:]}"
        tally.record(f"{note}, instead of {right[name][0]}", wrong=code != right[name][0])
        tally.record(f"{note}: other files", wrong=files != right[name][1])
        tally.record(f"{note}: a traceback", wrong="Traceback" in output)


def _ended(source: Path, words: list[str], closed: str) -> tuple[int, dict[str, str], str]:
    """Exit status, files and output of a command in a fresh folder; closed: as the shell has it."""
    shutil.rmtree(source / "out", ignore_errors=True)
    command = ["bash", "-c", f'"$@" {closed}', "bash", *PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, digests(source / "out"), done.stdout + done.stderr


# ---------------------------------------------------------------------- full disks


class OnFullDisk(io.FileIO):
    """A file on a disk that has no room at some of the writes of this process, in the middle of them.

    writes: number of writes until now; full: those that fail
    """

    writes = 0
    full = range(0)

    def write(self, content: Any) -> int:
        number, OnFullDisk.writes = OnFullDisk.writes, OnFullDisk.writes + 1
        if number not in self.full:
            return super().write(content)
        super().write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full_disk(folder: Path, full: range) -> Iterator[None]:
    """All files below `folder` that are opened for writing meanwhile, also by forks, are on such a disk."""
    original = io.open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *how: Any, **named: Any) -> Any:
        is_path = isinstance(file, (str, Path)) and str(file).startswith(f"{folder}{os.sep}")
        if not is_path or mode.rstrip("bt") == "r" or "opener" in named:
            return original(file, mode, buffering, *how, **named)
        raw = OnFullDisk(file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if raw.readable() else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *how, line_buffering=buffering == 1, **named)

    OnFullDisk.writes, OnFullDisk.full = 0, full
    io.open = builtins.open = opened
    try:
        yield
    finally:
        io.open = builtins.open = original


@attack("full disk at a write of annotate, report", 40, 1)
def full_at_a_write(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """The command says that there is no room and ends with exit status 2; no file under its name is cut, and with room
    the same command ends as ever."""
    source, right = undisturbed(folder)
    for number in range(tries):
        name = ("annotate", "report")[number % 2]
        command = commands.Attacked(folder, name, source, right[name][0])
        with full_disk(command.folder, full := _writes(rng, 23 if name == "annotate" else 1)):
            ended = command.run()
        tally.tries += 1
        note = f"{name}, {full}: exit {ended.code}: {ended.output[-300:]}"
        tally.record(note, wrong=not _is_reported(ended))
        command.check(tally, note)


@attack("full disk at a write of check, campaign", 60, 0)
def full_at_a_write_of_check(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """The command does without a file, as of the status or of kept answers, and its verdicts are the right ones, or it
    says that there is no room and ends with exit status 2; with room the same command ends as ever."""
    place = Place(folder)
    attacked = {is_campaign: changes.Attacked(place, is_campaign) for is_campaign in (False, True)}
    right = {is_campaign: target.fresh() for is_campaign, target in attacked.items()}
    for number in range(tries):
        target = attacked[number % 2 == 0]
        place.without_output()
        with full_disk(place.out, full := _writes(rng, 110)):
            ended = target.run()
        tally.tries += 1
        note = f"{'campaign' if target.is_campaign else 'check'}, {full}: exit {ended.code}: {ended.output[-500:]}"
        is_right = target.said(ended) == right[target.is_campaign] or _is_reported(ended)
        tally.record(note, wrong=has_traceback(ended) or not is_right)
        ended = target.run()
        tally.record(
            f"ends otherwise: {note}: {ended.output[-300:]}",
            wrong=target.said(ended) != right[target.is_campaign],
        )


def _writes(rng: random.Random, n: int) -> range:
    """One of the first `n` writes, or all from it on."""
    first = rng.randrange(n)
    return range(first, rng.choice([first + 1, 10**9]))


def _is_reported(ended: Ended) -> bool:
    return ended.code == 2 and os.strerror(errno.ENOSPC) in ended.output and not has_traceback(ended)


# ---------------------------------------------------------------------- inflation


CLAIM = re.compile(r"which adds [\d.]+")


@attack("inflation, and JSON of numbers that are not finite", 200, 5)
def inflation(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A model that remembers letters of none to all questions, some of which are copies: its page and its sentence to
    copy claim an inflation if the lower end of its interval is above 0 and only then, and all JSON is strict."""
    for _ in range(tries):
        shutil.rmtree(folder, ignore_errors=True)
        _remembered(folder, rng)
        (annotation,) = annotate([folder])
        (row,) = (row for row in annotation.rows if row.level == "task")
        added, checked = INFLATION.of(row), checked_task(row)
        told_in = {"figures": checked.figures, "citation": checked.citation, "page": render_page([annotation])}
        is_claimed = {name: bool(CLAIM.search(text)) for name, text in told_in.items() if text}
        tally.tries += 1
        note = f"inflation {added.value:.3f} ({added.low:.3f} to {added.high:.3f})"
        tally.record(f"{note}: {is_claimed}", wrong={*is_claimed.values()} != {added.low > 0})
        for name, text in _jsons(folder, annotation, row).items():
            tally.record(f"{note}: {name} is no strict JSON", wrong=not all(map(_is_strict, text)))


def _remembered(folder: Path, rng: random.Random) -> None:
    """A run and two audits; the run has numbers that are not finite beside its accuracy."""
    n, ability, memory = rng.randrange(5, 120), rng.random(), rng.choice([0.0, rng.random(), 1.0])
    docs = [row(number, answer=rng.randrange(4)) for number in range(n)]
    runs, confusions = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, doc in enumerate(docs):
        is_remembered, place = rng.random() < memory, rng.randrange(4)
        published = is_remembered or rng.random() < ability
        shuffled = place == doc["answer"] if is_remembered else rng.random() < ability
        runs.append({**answered(number, doc, published), "perplexity": rng.choice(STRANGE)})
        arms = {"shuffled": shuffled, "shuffled_place": place}
        confusions.append({**confused(doc, published, rng.random() < ability), **arms})
    place = write_run(folder, "m", {"bench": runs})
    (file,) = place.glob("results_*")
    content = json.loads(file.read_text())
    content["results"]["bench"] |= {"perplexity,none": rng.choice(STRANGE), "perplexity_stderr,none": math.nan}
    file.write_text(json.dumps(content))
    flagged = [audited(doc, rng.random() < memory) for doc in docs]
    write_run(folder, "m", {"bench_leakage_perm": flagged, "bench_choice_confusion": confusions})


STRANGE = (math.nan, math.inf, -math.inf, 1.5, None)


def _jsons(folder: Path, annotation: Annotation, row: Row) -> dict[str, list[str]]:
    """All JSON that is written of it, by lines where each is a text of its own."""
    texts, _ = exported([row], [*EXPORTS], datetime.now(timezone.utc))
    of_check = CheckOutcome((checked_task(row),), ()).as_json()
    jsons = {name: [text] for name, text in texts.items() if name.endswith(".json")}
    jsons |= {"table": [as_text(annotation.rows, "json")], "verdicts": [of_check]}
    for file in write(annotation, "0", folder / "copies"):
        text = file.read_text()
        jsons[file.name] = text.splitlines() if file.suffix == ".jsonl" else [text]
    return jsons


def _is_strict(text: str) -> bool:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True
