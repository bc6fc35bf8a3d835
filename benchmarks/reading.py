"""Time and memory of `annotate` and `report` on logs of all of MMLU, compared with reading all lines at once.

    python benchmarks/reading.py [--folder FOLDER]

Writes logs of 57 subjects (14,042 questions; 5-shot answers, and 24 option orders judged by two statistics; 680 MB)
as lm_eval does, with synthetic log-likelihoods, and reads them: with `annotate`, with `report`, and with the loop of a
simple script (`json.loads` of every line, all kept). Each runs in a separate process, whose peak memory is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from itertools import permutations
from pathlib import Path
from typing import Any

from lm_eval_leakage.logs.audit_line import LINE_VERSION, VERSION_KEY

N_QUESTIONS, N_SUBJECTS = 14_042, 57
TIME = "2026-01-01T00-00-00.000000"
TEXT = "which of the following best describes a process by which an organism responds to change in its own world"
WORDS = TEXT.split()
SCRIPT = """
import json, pathlib, sys
kept = [json.loads(line) for file in pathlib.Path(sys.argv[1]).rglob("*.jsonl") for line in file.open()]
"""
WAYS = {
    "all lines at once": [sys.executable, "-c", SCRIPT, "{folder}"],
    "annotate": ["lm-eval-leakage", "annotate", "{folder}", "--output_path", "{folder}/annotated"],
    "report": ["lm-eval-leakage", "report", "{folder}", "--output_path", "{folder}/page.html"],
}


def question(number: int, rng: random.Random) -> dict[str, Any]:
    stem = " ".join(rng.choices(WORDS, k=60)) + f" {number}?"
    options = [" ".join(rng.choices(WORDS, k=8)) + f" {letter}" for letter in "abcd"]
    return {"question": stem, "subject": f"subject_{number % N_SUBJECTS}", "choices": options, "answer": number % 4}


def common(number: int, doc: dict[str, Any]) -> dict[str, Any]:
    """Return what the harness writes for every question."""
    hashes = {f"{what}_hash": f"{number:064x}" for what in ("doc", "prompt", "target")}
    return {"doc_id": number // N_SUBJECTS, "doc": doc, "target": str(doc["answer"]), **hashes}


def answered(number: int, doc: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    context = " ".join(rng.choices(WORDS, k=600))
    arguments = {f"gen_args_{i}": {"arg_0": context, "arg_1": f" {letter}"} for i, letter in enumerate("ABCD")}
    responses = [[[str(rng.gauss(-2, 1)), "False"]] for _ in "ABCD"]
    line = {"arguments": arguments, "resps": responses, "filtered_resps": [r[0] for r in responses]}
    return {**common(number, doc), **line, "filter": "none", "metrics": ["acc"], "acc": float(rng.random() < 0.5)}


def audited(number: int, doc: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    orders = list(permutations(doc["choices"]))
    arguments = {
        f"gen_args_{i}": {
            "arg_0": doc["question"],
            "arg_1": "".join(f"\n{letter}. {option}" for letter, option in zip("ABCD", order, strict=True)),
        }
        for i, order in enumerate(orders)
    }
    scores = [rng.gauss(-60, 3) for _ in orders]
    responses = [[[str(score), "False"]] for score in scores]
    margin = scores[0] - max(scores[1:])
    shared = {**common(number, doc), "arguments": arguments, "resps": responses, "metrics": ["flagged_rate"]}
    shared |= {"filtered_resps": [r[0] for r in responses], "guards": "", "reason": None, "n_orders": len(orders)}
    shared |= {VERSION_KEY: LINE_VERSION, "benchmark": "mmlu"}
    rank = 1 + sum(score >= scores[0] for score in scores[1:])
    orders_line = {
        "filter": "max_order",
        "detector": "max_order",
        "flagged": margin > 0,
        "margin": margin,
    }
    outlier_line = {"filter": "outlier", "detector": "outlier", "flagged": rng.random() < 0.36}
    ranked = {"ranks_by": "statistic", "statistic": margin, "pvalue": rank / len(orders)}
    return [
        shared | orders_line | ranked | {"null_rate": 1 / 24},
        shared | outlier_line | ranked | {"null_rate": 0.355},
    ]


def write_logs(folder: Path) -> None:
    rng = random.Random(0)
    place = folder / "model"
    place.mkdir(parents=True)
    tasks = [f"mmlu_subject_{i}" for i in range(N_SUBJECTS)]
    logs = [(place / f"samples_{task}_{TIME}.jsonl").open("w") for task in tasks]
    with (place / f"samples_mmlu_leakage_perm_{TIME}.jsonl").open("w") as audit:
        for number in range(N_QUESTIONS):
            doc = question(number, rng)
            logs[number % N_SUBJECTS].write(json.dumps(answered(number, doc, rng)) + "\n")
            for line in audited(number, doc, rng):
                audit.write(json.dumps(line) + "\n")
    for log in logs:
        log.close()
    counts = {task: len(range(i, N_QUESTIONS, N_SUBJECTS)) for i, task in enumerate(tasks)}
    results = {
        "results": {task: {"alias": task, "acc,none": 0.5, "acc_stderr,none": 0.03} for task in tasks}
        | {"mmlu_leakage_perm": {"skipped,max_order": 0.0}},
        "groups": {"mmlu": {"acc,none": 0.5, "acc_stderr,none": 0.004}},
        "group_subtasks": {"mmlu": tasks},
        "n-shot": dict.fromkeys(tasks, 5),
        "n-samples": {task: {"original": count, "effective": count} for task, count in counts.items()},
        "model_name": "model",
        "lm_eval_version": "0.4.13",
    }
    (place / f"results_{TIME}.json").write_text(json.dumps(results))


MEASURED = """
import resource, subprocess, sys, time
start = time.perf_counter()
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, code)
"""


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak MiB; measured from a separate process, since the peak is that of all its children."""
    ran = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True)
    seconds, peak, code = ran.stdout.split()[-3:]
    if code != "0":
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{ran.stderr}")
    return float(seconds), float(peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="folder for the logs (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary) / "runs"
        if not folder.exists():
            write_logs(folder)
        size = sum(file.stat().st_size for file in folder.glob("model/*.jsonl")) / 1e6
        print(f"{N_QUESTIONS} questions, {size:.0f} MB of samples\n\n| way | seconds | peak MiB |\n|---|---|---|")
        for name, command in WAYS.items():
            seconds, peak = measure([part.format(folder=folder / "model") for part in command])
            print(f"| {name} | {seconds:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
