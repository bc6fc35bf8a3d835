"""Demo: audits a real model and a copy of it that was trained on half of the benchmark `fresh`.

`fresh` is bundled with this package, was written for it and never published before. So flags on the original model are
due to chance, and flags on the half that the copy was trained on are due to leakage, by construction.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lm_eval_leakage import question_from_doc, task_configs_path
from lm_eval_leakage.files import check_writable
from lm_eval_leakage.inference.pooling import rate_and_stderr
from lm_eval_leakage.lab.exposure_text import ExposureText
from lm_eval_leakage.lab.packages import SMOLLM2, TRAINING, need_packages
from lm_eval_leakage.lab.smollm2 import smollm2
from lm_eval_leakage.lab.training import Recipe, train
from lm_eval_leakage.logs.audit_line import AuditLine, read_line
from lm_eval_leakage.records import Question
from lm_eval_leakage.results.data_verdict import data_verdict

DEMO_TASK = "fresh_leakage_perm"
FEWEST_QUESTIONS, N_FRESH = 8, 200
EXPOSURES, LEARNING_RATE = 3, 2e-4


def fresh_questions() -> list[Question]:
    text = (task_configs_path() / "fresh" / "fresh.jsonl").read_text(encoding="utf-8")
    return [question_from_doc(json.loads(line)) for line in text.splitlines()]


def audit_side_by_side(models: Mapping[str, Path], folder: Path, n_questions: int) -> dict[str, list[AuditLine]]:
    """The samples log of `lm_eval --tasks fresh_leakage_perm` on each model; an existing one is reused.

    A small model leaves CPU cores idle, so all run in parallel, each on its share of the cores. Only the last one's
    progress is shown, as all have the same requests.
    """
    outputs = {name: folder / f"audit_{name}_{n_questions}" for name in models}
    missing = [name for name, output in outputs.items() if not _logs(output)]
    threads = max(1, (os.cpu_count() or 1) // max(1, len(missing)))
    running = {}
    for name in missing:
        command = _audit_command(models[name], outputs[name], n_questions)
        print("$ lm_eval", *command[4:], flush=True)
        quiet = None if name == missing[-1] else subprocess.DEVNULL
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
        running[name] = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)
    for name, process in running.items():
        if process.wait() != 0:
            sys.exit(f"the audit of {name} failed; run the command above by itself to see why")
    return {name: _lines(max(_logs(output))) for name, output in outputs.items()}


def _audit_command(model: Path, output: Path, n_questions: int) -> list[str]:
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf-prefix-tree", "--tasks", DEMO_TASK]
    command += ["--model_args", f"pretrained={model},dtype=bfloat16"]
    return [*command, "--limit", str(n_questions), "--log_samples", "--output_path", str(output)]


def _logs(output: Path) -> list[Path]:
    return list(output.rglob(f"samples_{DEMO_TASK}_*.jsonl"))


def _lines(log: Path) -> list[AuditLine]:
    return [read_line(json.loads(line), DEMO_TASK) for line in log.read_text(encoding="utf-8").splitlines()]


def table(audits: Mapping[str, Sequence[AuditLine]], trained: set[str]) -> str:
    """One row per statistic, model and half of the questions: flagged rate with its error, rate by chance."""
    head = "| statistic | model | half | n | flagged | by chance |\n|---|---|---|---|---|---|"
    rows = [
        _row(statistic, model, half, [line for line in lines if line.filter == statistic])
        for statistic in ("max_order", "outlier")
        for model, whole in audits.items()
        for half, lines in _halves(whole, trained)
    ]
    return "\n".join([head, *rows])


def _halves(lines: Sequence[AuditLine], trained: set[str]) -> Iterable[tuple[str, list[AuditLine]]]:
    yield "trained", [line for line in lines if line.doc["id"] in trained]
    yield "held out", [line for line in lines if line.doc["id"] not in trained]


def _row(statistic: str, model: str, half: str, lines: Sequence[AuditLine]) -> str:
    tested = [line for line in lines if line.flagged is not None]
    rate, error = rate_and_stderr([bool(line.flagged) for line in tested])
    nulls = [line.null_rate for line in tested if line.null_rate is not None]
    chance = sum(nulls) / len(nulls)
    return f"| {statistic} | {model} | {half} | {len(tested)} | {rate:.3f} ± {error:.3f} | {chance:.3f} |"


def verdicts(audits: Mapping[str, Sequence[AuditLine]], trained: set[str]) -> str:
    """The verdict on each half as if it were a benchmark of its own."""
    found = [
        f"{model}, {half} half: {data_verdict(one for line in lines if (one := line.orders)).sentence}"
        for model, whole in audits.items()
        for half, lines in _halves(whole, trained)
    ]
    return "\n".join(found)


def _asked_for(value: str) -> int:
    if not value.isdecimal() or not FEWEST_QUESTIONS <= int(value) <= N_FRESH:
        sys.exit(f"DEMO_QUESTIONS is {value!r}; choose a whole number from {FEWEST_QUESTIONS} to {N_FRESH}")
    return int(value)


def main() -> None:
    n_questions = _asked_for(os.environ.get("DEMO_QUESTIONS", "80"))
    folder = Path(os.environ.get("DEMO_FOLDER", ".demo")).resolve()
    try:
        need_packages([*TRAINING, *SMOLLM2])
        check_writable(folder, folder=True)
    except (ImportError, ValueError) as error:
        sys.exit(str(error))
    asked = fresh_questions()[:n_questions]
    seen = random.Random(0).sample(asked, n_questions // 2)
    original = smollm2(folder / "smollm2")
    print(f"training a copy of SmolLM2-135M on {len(seen)} of the {n_questions} questions", flush=True)
    texts = [ExposureText().write(question) for question in seen]
    place = folder / f"contaminated_{n_questions}"
    copy = train(original, place, texts, Recipe(learning_rate=LEARNING_RATE), [EXPOSURES])[EXPOSURES]
    audits = audit_side_by_side({"original": original, "contaminated": copy}, folder, n_questions)
    trained = {question.id for question in seen}
    print("\n" + table(audits, trained))
    print(
        "\nOnly the contaminated model has seen the trained half: only there is the published order preferred.\n"
        "The outlier test looks for any preferred order, and its published threshold flags a third by chance.\n"
    )
    print(verdicts(audits, trained))


if __name__ == "__main__":
    main()
