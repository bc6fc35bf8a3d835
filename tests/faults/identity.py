"""What a verdict is of, by content: files of tasks and of models that were edited, moved, copied or replaced."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from lm_eval_leakage import cli
from lm_eval_leakage.harness import task_shelf
from tests.campaign.campaigns import SHAPE
from tests.checking.conftest import GivenTasksOnly
from tests.faults.children import KILLED, Ended
from tests.faults.tally import Tally, attack
from tests.faults.weighed import DOCS, NAME, OF_ACCURACY, OF_ORDERS, Place, killed

Rows = Sequence[Mapping[str, Any]]
LETTERS = "ABCD"
ROWS = [
    {"question": doc["question"], **dict(zip("abcd", doc["choices"], strict=True)), "answer": doc["answer"]}
    for doc in DOCS
]
TEXT = "{{question}}" + "".join(f"\n{letter}. {{{{{letter.lower()}}}}}" for letter in LETTERS) + "\nAnswer:"
UTILS = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from wording import put


def prepared(doc):
    return {"question": put(doc)}


def process_docs(rows):
    return rows.map(prepared)
"""
WORDING = 'def put(doc):\n    return doc["question"] + " Say which one."\n'


def _as_lines(file: Path, rows: Rows) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _as_csv(file: Path, rows: Rows) -> None:
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, rows[0])
        table.writeheader()
        table.writerows(rows)


def _as_parquet(file: Path, rows: Rows) -> None:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pq.write_table(pa.table(columns), file, compression="none", use_dictionary=False, write_statistics=False)


FORMATS: Mapping[str, Callable[[Path, Rows], None]] = {"json": _as_lines, "csv": _as_csv, "parquet": _as_parquet}
NAMED: Mapping[str, Callable[[Path], Any]] = {  # how a task names its two files of rows
    "files": lambda folder: {"data_files": {"test": [str(folder / "first"), str(folder / "second")]}},
    "links": lambda folder: {"data_files": {"test": [str(folder / "link"), str(folder / "second")]}},
    "pattern": lambda folder: {"data_files": {"test": str(folder / "*[td]")}},
}
MEANWHILE = "while it runs"
MOMENTS = {"after a whole run": None, "within a part": OF_ACCURACY + OF_ORDERS // 2, MEANWHILE: OF_ACCURACY // 2}


class Edited:
    """A check of a task whose rows or code are edited with size and modification time kept."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.place, self.tasks = Place(folder), folder / "tasks"
        self.format, self.named = rng.choice([*FORMATS]), rng.choice([*NAMED])
        self.is_code = rng.random() < 1 / 3
        self.as_new()

    def __str__(self) -> str:
        return "a module that a module imports" if self.is_code else f"{self.format}, named by {self.named}"

    def as_new(self) -> None:
        """The task as it was first."""
        rows = self.tasks / "rows"
        rows.mkdir(parents=True, exist_ok=True)
        self._write_rows(ROWS)
        if not (rows / "link").exists():
            (rows / "link").symlink_to(rows / "first")
        (self.tasks / "utils.py").write_text(UTILS)
        (self.tasks / "wording.py").write_text(WORDING)
        settings = {"task": "quiz", **SHAPE, "dataset_path": self.format, "dataset_kwargs": NAMED[self.named](rows)}
        more = "process_docs: !function utils.process_docs\n"
        text = yaml.safe_dump(settings | {"doc_to_text": TEXT, "doc_to_choice": [*LETTERS]})
        (self.tasks / "quiz.yaml").write_text(text + more * self.is_code)

    def _write_rows(self, rows: Rows) -> None:
        for name, part in (("first", rows[:20]), ("second", rows[20:])):
            FORMATS[self.format](self.tasks / "rows" / name, part)

    def edit(self) -> None:
        file = self.tasks / "wording.py" if self.is_code else self.tasks / "rows" / "first"
        was = file.stat()
        if self.is_code:
            file.write_text(WORDING.replace("Say which", "Tell that"))
        else:
            self._write_rows([row | {"question": row["question"].replace("Which", "Whose")} for row in ROWS])
        assert file.stat().st_size == was.st_size, str(self)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))

    def check(self, **how: Any) -> Ended:
        words = ["check", "--model", NAME, "--model_args", f"pretrained={self.place.model}", "--tasks", "quiz"]
        words += ["--include_path", str(self.tasks), "--output_path", str(self.place.out), "--fail-on", "evidence"]
        return self.place.run(["lm-eval-leakage", *words], self._program, **how)

    def _program(self) -> None:
        datasets.config.HF_DATASETS_CACHE = self.place.folder / "datasets"
        task_shelf.TaskManager = GivenTasksOnly
        cli.main()

    def fresh(self) -> list[dict[str, Any]]:
        self.place.without_output()
        shutil.rmtree(self.place.folder / "datasets", ignore_errors=True)
        ended = self.check()
        assert self.place.verdicts(), ended.output
        return self.place.verdicts()


@attack("rows and code of a task edited with size and time kept", 48, 1)
def edits_that_keep_size_and_time(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """JSON, CSV or Parquet files, named one by one, by symbolic links or by a pattern, and modules that a task's
    module imports are edited after a run, within one that was killed, and while it runs: the next verdict is that of a
    fresh folder, and that of the command itself is of one of both, or it ends with 2."""
    while tally.tries < tries:
        shutil.rmtree(folder, ignore_errors=True)
        edited = Edited(folder, rng)
        edited.edit()
        after = edited.fresh()
        edited.as_new()
        before = edited.fresh()
        assert before != after, str(edited)
        edited.place.without_output()
        moment = rng.choice([*MOMENTS])
        request, note = MOMENTS[moment], f"{edited}, edited {moment}"
        if moment == MEANWHILE:
            ended = edited.check(at={request: edited.edit})
            is_reported = edited.place.verdicts() in (before, after) or ended.code == 2
            tally.record(f"{note}: of neither: {ended.output[-400:]}", wrong=not is_reported)
        else:
            ended = edited.check(at={} if request is None else {request: killed})
            tally.record(f"{note}: not killed", lost=(ended.code == KILLED) != (request is not None))
            edited.edit()
        ended = edited.check()
        tally.tries += 1
        tally.record(f"{note}: {ended.output[-600:]}", wrong=edited.place.verdicts() != after)


# ---------------------------------------------------------------------- models

MORE_FILES = ("qwen.tiktoken", "vocab.bpe", "source.spm", "vocab", "tokenizer/vocab", "a/b/adapter.bin")
SPELLINGS: Mapping[str, Callable[[Path], str]] = {  # of a model's folder, seen from the folder that it is in
    "relative": lambda model: model.name,
    "dotted": lambda model: f"./{model.name}",
    "as a folder": lambda model: f"{model}/",
    "absolute": str,
    "a symbolic link": lambda model: str(_linked(model)),
    "a copy": lambda model: str(shutil.copytree(model, model.with_name("copy"), dirs_exist_ok=True)),
}


def _linked(model: Path) -> Path:
    link = model.with_name("link")
    if not link.is_symlink():
        link.symlink_to(model)
    return link


def _said(place: Place, ended: Ended) -> tuple[int, list[dict[str, Any]]]:
    """Return the output of a check, by whatever path its model is called."""
    text = json.dumps(place.verdicts())
    for path in sorted((spell(place.model) for spell in SPELLINGS.values()), key=len, reverse=True):
        text = text.replace(path, "MODEL")
    return ended.code, json.loads(text)


@attack("models by other paths, and with other files", 60, 1)
def models_by_content(tally: Tally, folder: Path, tries: int, rng: random.Random) -> None:
    """A model has some files of every kind. Under another path it is the same one: nothing is asked again, and the
    verdict on more questions is a second look. With one file changed it is another one."""

    def check(place: Place, spelled: str, n_questions: int) -> Ended:
        words = ["check", "--model", NAME, "--model_args", f"pretrained={spelled}", "--tasks", str(place.quiz)]
        words += ["--questions", str(n_questions), "--output_path", str(place.out), "--fail-on", "evidence"]

        def program() -> None:
            os.chdir(folder)
            cli.main()

        return place.run(["lm-eval-leakage", *words], program)

    while tally.tries < tries:
        place = Place(folder)
        for name in rng.sample(MORE_FILES, 3):
            (place.model / name).parent.mkdir(parents=True, exist_ok=True)
            (place.model / name).write_text("as it was")
        place.weights(b"memory %.1f " % rng.choice([0.0, 0.5, 4.0]))
        first, second = rng.choice([*SPELLINGS]), rng.choice([*SPELLINGS])
        by_path = {name: SPELLINGS[name](place.model) for name in (first, second)}
        same = [_said(place, check(place, by_path[first], n)) for n in (20, 40)]
        n_same = place.n_asked()
        place.without_output()
        place.notes.unlink()
        mixed = [_said(place, check(place, by_path[name], n)) for name, n in ((first, 20), (second, 40))]
        n_mixed = place.n_asked()
        note = f"{first}, then {second}"
        tally.tries += 1
        tally.record(f"{note}: {n_mixed} requests instead of {n_same}", wrong=n_mixed != n_same)
        tally.record(f"{note}: {mixed[1]} instead of {same[1]}", wrong=mixed != same)
        changed = rng.choice([file for file in place.model.rglob("*") if file.is_file()])
        changed.write_bytes(changed.read_bytes()[::-1])
        place.notes.unlink()
        check(place, by_path[second], 40)
        is_asked = second == "a copy" or place.n_asked() > 0
        tally.tries += 1
        tally.record(f"{note}: {changed.name} changed, and nothing was asked", wrong=not is_asked)
