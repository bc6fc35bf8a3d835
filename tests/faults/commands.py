"""The commands that read runs, under kills, full disks and damaged files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from lm_eval_leakage import cli, files
from lm_eval_leakage.files import PART
from lm_eval_leakage.results.annotate import annotate
from lm_eval_leakage.results.leaderboard import leaderboard
from lm_eval_leakage.results.leaderboard import leaderboard_as_markdown as board_of
from lm_eval_leakage.results.tables import as_text
from tests.faults.children import KILLED, child, has_traceback, kill_at
from tests.faults.tally import Tally, attack
from tests.logs.test_broken_files import damage
from tests.results.harness_files import answered, audited, confused, row, write_run

N_ROWS = 400
YAML = "task: bench\ndataset_path: json\ntest_split: test\noutput_type: multiple_choice\n"


def folder_of_runs(folder: Path, model: str = "m", n_rows: int = N_ROWS) -> Path:
    """A run, its audits, and the base task that `clean` needs."""
    docs = [row(number) for number in range(n_rows)]
    flags = [number % 3 == 0 for number in range(n_rows)]
    write_run(folder / "runs", model, {"bench": [answered(i, doc, flags[i]) for i, doc in enumerate(docs)]})
    audits = {
        "bench_leakage_perm": [audited(doc, flags[i]) for i, doc in enumerate(docs)],
        "bench_choice_confusion": [confused(doc, flags[i], i % 5 == 0) for i, doc in enumerate(docs)],
    }
    write_run(folder / "runs", model, audits)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "bench.yaml").write_text(YAML)
    return folder


def commands(folder: Path) -> dict[str, list[str]]:
    runs, out = str(folder / "runs"), folder / "out"
    return {
        "annotate": ["annotate", runs, "--output_path", str(out / "copies")],
        "report": ["report", runs, "--output_path", str(out / "page.html")],
        "leaderboard": ["leaderboard", runs, "--output_path", str(out / "board.html")],
        "clean": ["clean", runs, "--output_path", str(out / "clean"), "--include_path", str(folder / "tasks")],
    }


def typed(words: Sequence[str]) -> Callable[[], None]:
    def run() -> None:
        sys.argv = ["lm-eval-leakage", *words]
        cli.main()

    return run


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file that is not the leftover of a kill."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith(PART) and "leakage.json" not in file.name
    }


class Attacked:
    """One command in a fresh folder, beside what it gives undisturbed."""

    def __init__(self, folder: Path, name: str, source: Path, right: Mapping[str, str]) -> None:
        self.folder, self.name, self.right = folder / "same_for_all", name, right  # pages name their folders
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(source, self.folder)
        self.before = digests(self.folder / "runs")

    def run(self, **how: Any) -> Any:
        return child(typed(commands(self.folder)[self.name]), self.folder.with_suffix(".log"), **how)

    def made(self) -> dict[str, str]:
        return digests(self.folder / "out")

    def check(self, tally: Tally, note: str) -> None:
        """Nothing that was there is changed; what is there of the outputs is whole; the command ends it."""
        tally.record(f"{note}: originals changed", lost=digests(self.folder / "runs") != self.before)
        broken = [name for name, digest in self.made().items() if digest != self.right.get(name)]
        tally.record(f"{note}: not whole: {broken}", wrong=len(broken))
        ended = self.run()
        tally.record(f"{note}: does not go on: {ended.output[-300:]}", lost=ended.code != 0)
        tally.record(f"{note}: ends otherwise", wrong=self.made() != self.right)


def undisturbed(folder: Path) -> tuple[Path, dict[str, tuple[dict[str, str], float]]]:
    """The source folder; of each command what is right, and the seconds it takes."""
    source = folder_of_runs(folder / "source")
    results = {}
    for name in commands(source):
        attacked = Attacked(folder, name, source, {})
        ended = attacked.run()
        assert ended.code == 0, ended.output[-2000:]
        results[name] = attacked.made(), ended.seconds
    return source, results


@attack("kill of annotate, report, leaderboard, clean", 40, 2)
def command_kills(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Commands are killed at random, and aimed at the writing of files."""
    source, right = undisturbed(folder)
    for number in range(tries):
        name = list(right)[number % len(right)]
        digest, seconds = right[name]
        attacked = Attacked(folder, name, source, digest)
        if number % 2:
            with kill_at(files.Path, "replace", rng.randint(1, 3), after=rng.random() < 0.5):
                ended = attacked.run()
        else:
            ended = attacked.run(kill_after=rng.uniform(0.3, 1.0) * seconds)
        tally.tries += int(ended.code == KILLED)
        attacked.check(tally, f"{name}, kill {number}")


@attack("full disk under annotate, report, leaderboard, clean", 4, 1)
def command_full_disk(tally: Tally, folder: Path, tries: int, _: random.Random) -> None:
    source, right = undisturbed(folder)
    for limit, (name, (digest, _)) in product((0, 2_000, 20_000, 100_000)[:tries], right.items()):
        attacked = Attacked(folder, name, source, digest)
        ended = attacked.run(size_limit=limit)
        tally.tries += 1
        is_silent = ended.code == 0 and attacked.made() != digest
        tally.record(f"{name}, {limit}: exit 0 though not whole", wrong=is_silent)
        tally.record(f"{name}, {limit}: a traceback", wrong=has_traceback(ended))
        attacked.check(tally, f"{name}, {limit}")


@attack("damaged files", 500, 20)
def damaged_files(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """Folders are read of which each file is damaged or lost lines: the results are right, or they say what is
    missing."""
    source = folder_of_runs(folder / "damaged_source", n_rows=12) / "runs"
    right = _answers(annotate([source]))
    while tally.tries < tries:
        place = folder / "damaged"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(source, place)
        for file in sorted(place.rglob("*.json*")):
            lines = file.read_text().splitlines(keepends=True)
            if rng.random() < 0.4 and len(lines) > 1:
                file.write_text("".join(line for line in lines if rng.random() < 0.8))
            else:
                damage(file, rng)
            tally.tries += 1
        _read_damaged(tally, place, right)


def _answers(annotations: Iterable[Any]) -> dict[Any, Any]:
    return {
        (question.task, question.doc_hash): (question.scores, question.audited and question.audited.flagged)
        for annotation in annotations
        for question in annotation.questions
    }


def _read_damaged(tally: Tally, place: Path, right: Mapping[Any, Any]) -> None:
    note = f"damaged files {tally.tries}"
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            annotations = annotate([place])
            for annotation in annotations:
                as_text(annotation.rows, "table")
            board_of(leaderboard(annotations))
    except ValueError as error:
        tally.record(f"{note}: refused without a word", wrong=not str(error))
        return
    except Exception as error:
        tally.record(f"{note}: {error!r}", wrong=1)
        return
    is_reported = any(annotation.problems for annotation in annotations)
    tally.record(f"{note}: differs without a word", wrong=_answers(annotations) != right and not is_reported)
    if len(annotations) == 1:
        hashes = [question.doc_hash for question in annotations[0].questions if question.task == "bench"]
        tally.record(f"{note}: questions stand twice", doubled=len(hashes) - len(set(hashes)))
