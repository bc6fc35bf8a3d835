"""Runs that are cut, dated wrongly, read while they are written, or that a model without memory leaves."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from tests.checking.conftest import written
from tests.faults.changes import CHANGES, Attacked
from tests.faults.children import Ended, has_traceback
from tests.faults.tally import Tally, attack
from tests.faults.weighed import DOCS, OF_ACCURACY, OF_ORDERS, Place, Weighed

DAY = 24 * 60 * 60.0
LONG = 100 * 2**20  # characters of a line
ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("CUDA error: out of memory"),
    MemoryError("cannot allocate"),
)


def _raising(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


@attack("model out of memory", 24, 1)
def out_of_memory(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A model is out of memory at one request, at several, or from one on. The results are of all questions, or say
    what is missing; with memory, the same command ends as ever."""
    place = Place(folder)
    attacked = {True: Attacked(place, True), False: Attacked(place, False)}
    right = {is_campaign: attacked_place.fresh() for is_campaign, attacked_place in attacked.items()}
    for number in range(tries):
        attacked_place, error = attacked[number % 2 == 0], ERRORS[number % len(ERRORS)]
        place.without_output()
        first, n = rng.randrange(OF_ACCURACY + OF_ORDERS), rng.choice([1, 5, 5000])
        ended = attacked_place.run(at=dict.fromkeys(range(first, first + n), _raising(error)))
        tally.tries += 1
        note = f"{error!r}, {n} from {first}: exit {ended.code}: {ended.output[-500:]}"
        is_reported = ended.code == 2 or "skipped" in ended.output or "left out" in ended.output
        sentence = attacked_place.said(ended)
        tally.record(
            f"another result: {note}", wrong=sentence != right[attacked_place.is_campaign] and not is_reported
        )
        ended = attacked_place.run()
        sentence, is_reported = attacked_place.said(ended), "skipped" in ended.output
        tally.record(
            f"ends otherwise: {note}", wrong=sentence != right[attacked_place.is_campaign] and not is_reported
        )


@attack("check --runs of cut logs", 40, 1)
def cut_runs(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """`check --runs` of logs that end within a line, or lack lines, or files: the verdict is that of whole ones, since
    what is missing is asked again, or the command says why there is none."""
    place = Place(folder)
    place.check()
    right = place.verdicts()
    whole, given = place.out.rename(folder.with_name("whole")), folder.with_name("given")
    while tally.tries < tries:
        place.without_output()
        shutil.rmtree(given, ignore_errors=True)
        shutil.copytree(whole / "runs", given)
        for file in rng.sample(sorted(given.rglob("*.json*")), rng.choice([1, 1, 3])):
            _cut(file, rng)
        place.asked_with = ["--runs", str(given)]
        ended = place.check()
        tally.tries += 1
        is_right = place.verdicts() == right or ended.code == 2
        tally.record(f"exit {ended.code}: {ended.output[-500:]}", wrong=not is_right)
        tally.record(f"traceback: {ended.output[-500:]}", wrong=has_traceback(ended))


def _cut(file: Path, rng: random.Random) -> None:
    content, lines = file.read_bytes(), file.read_bytes().splitlines(keepends=True)
    how = rng.randrange(4)
    if how == 0:
        file.write_bytes(content[: rng.randrange(len(content))])
    elif how == 1:
        file.write_bytes(b"".join(lines[: rng.randrange(len(lines))]))
    elif how == 2:
        file.write_bytes(b"".join(line for line in lines if rng.random() < 0.9))
    else:
        file.unlink()


@attack("clock set back, wrong times of files", 12, 1)
def clocks_set_back(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """The second command's clock is behind the first one's, or files have other times; meanwhile something was
    changed, or nothing: the verdict is that of a fresh folder."""
    attacked = Attacked(Place(folder), is_campaign=False)
    place = attacked.place
    names = ["", "keys", "weights", "fewer questions"]
    for number in range(tries):
        name = names[number % len(names)]
        place.as_new()
        CHANGES.get(name, lambda _: None)(place)
        after = attacked.fresh()
        place.as_new()
        place.clock = rng.choice([DAY, 1000 * DAY, 90.0])
        attacked.run()
        CHANGES.get(name, lambda _: None)(place)
        place.clock = rng.choice([0.0, -DAY, -9000 * DAY])
        for file in place.folder.rglob("*"):
            if rng.random() < 0.5:
                time = rng.uniform(0, 2e9)
                os.utime(file, (time, time))
        ended = attacked.run()
        tally.tries += 1
        sentence = attacked.said(ended)
        tally.record(f"{name}: exit {ended.code}: {ended.output[-500:]}", wrong=sentence != after)


@attack("annotate while a run writes", 40, 2)
def read_while_written(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """`annotate` of the folder that a check writes, again and again: whatever accuracy it shows is the right one, or
    it says that something is missing; and the check is not disturbed. A try is an `annotate`."""
    place = Place(folder)
    place.check()
    right, accuracies = place.verdicts(), _accuracies(_annotated(place))
    while tally.tries < tries:
        place.without_output()
        pid = os.fork()
        if pid == 0:
            Weighed.pace = 0.002
            place.log = place.folder / "other"
            os._exit(place.check().code)
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            ended = _annotated(place)
            tally.tries += 1
            note = f"exit {ended.code}: {ended.output[-500:]}"
            tally.record(f"traceback: {note}", wrong=has_traceback(ended) or ended.code not in (0, 2))
            strange = _accuracies(ended) - accuracies
            tally.record(f"{strange}: {note}", wrong=bool(strange) and "question" not in ended.output)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        tally.record(f"the check ends with {code}", wrong=code != 0 or place.verdicts() != right)


def _annotated(place: Place) -> Ended:
    return place.command("annotate", str(place.out / "runs"), "--dry_run", "--format", "csv")


def _accuracies(ended: Ended) -> set[str]:
    lines = ended.output.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("model,")), len(lines))
    rows = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    return {row["accuracy"] for row in rows if row.get("accuracy")} if start < len(lines) else set()


@attack("lines of 100 MB", 5, 0)
def long_lines(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    """A line of 100 MB among the questions, or in a log: the rest counts, or the file is refused in a sentence."""
    place = Place(folder)
    place.check()
    right, log = place.verdicts(), next(place.out.rglob("samples_quiz_2*.jsonl"))
    accuracies, whole = _accuracies(_annotated(place)), log.read_text()
    first = json.loads(whole.splitlines()[0])
    for line in (" " * LONG, "x" * LONG, json.dumps(first | {"more": "x" * LONG}), "[" * LONG, '"' + "y" * LONG)[
        :tries
    ]:
        log.write_text(whole + line + "\n")
        ended = _annotated(place)
        tally.tries += 1
        note = f"a log with {line[:20]!r}: exit {ended.code}: {ended.output[-300:]}"
        is_reported = ended.code == 2 or "cannot be read" in ended.output or "line" in ended.output
        tally.record(note, wrong=has_traceback(ended) or (_accuracies(ended) != accuracies and not is_reported))
    for line in (" " * LONG, "x" * LONG, json.dumps(DOCS[0] | {"more": "x" * LONG}))[:tries]:
        place.without_output()
        written(place.folder, DOCS if line.isspace() or line[0] == "x" else DOCS[1:])
        with place.quiz.open("a") as stream:
            stream.write(line + "\n")
        ended = place.check()
        tally.tries += 1
        note = f"questions with {line[:20]!r}: exit {ended.code}: {ended.output[-300:]}"
        is_right = place.verdicts() == right or ended.code == 2 or line[0] == "{"
        tally.record(note, wrong=has_traceback(ended) or not is_right)
