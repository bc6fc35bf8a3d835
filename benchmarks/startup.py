"""Startup time of plain `lm_eval`, with and without the hook of `lm-eval-leakage plugin enable`.

    python benchmarks/startup.py --runs 20

Each command is run alternately with and without the hook, so that other load on the machine affects both; times are
CPU time, user and system. Printed for each: the medians in seconds, the ratio with / without over all runs, and the
same ratio of two series without the hook, which is the noise. `lm-eval-leakage --help` is timed by the wall clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lm_eval_leakage.harness.seams.pth_hook import hook_file, write_hook

TASK = """task: startup_task
dataset_path: json
dataset_kwargs: {data_files: FOLDER/rows.jsonl}
test_split: train
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
"""
ROW = '{"question": "Which?", "choices": ["a", "b"], "answer": 0}\n'
BIN = Path(sys.executable).parent


def seconds(command: list[str], hooked: bool) -> tuple[float, float]:
    """Wall and CPU seconds of one process, run with or without the hook's file."""
    file = hook_file()
    if hooked:
        write_hook(file)
    else:
        file.unlink(missing_ok=True)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, used


def compare(name: str, command: list[str], n_runs: int) -> None:
    seconds(command, hooked=True)  # warm-up: file cache, bytecode
    without, with_hook, again = [], [], []
    for _ in range(n_runs):
        without.append(seconds(command, hooked=False)[1])
        with_hook.append(seconds(command, hooked=True)[1])
        again.append(seconds(command, hooked=False)[1])
    ratio = 2 * sum(with_hook) / (sum(without) + sum(again))
    noise = sum(again) / sum(without)
    print(
        f"{name}: {statistics.median(without):.3f} s without, {statistics.median(with_hook):.3f} s with the hook, "
        f"ratio {ratio:.3f} (without / without {noise:.3f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=20, help="runs of `lm_eval run`, some 60 s each")
    parser.add_argument("--model_args", help="those of `hf`; without them the model is lm_eval's `dummy`")
    args = parser.parse_args()
    before = hook_file().read_bytes() if hook_file().exists() else None
    folder = Path(tempfile.mkdtemp())
    (folder / "rows.jsonl").write_text(ROW)
    (folder / "startup_task.yaml").write_text(TASK.replace("FOLDER", str(folder)))
    model = ["--model", "hf", "--model_args", args.model_args] if args.model_args else ["--model", "dummy"]
    plain = str(BIN / "lm_eval")
    try:
        ours = [seconds([str(BIN / "lm-eval-leakage"), "--help"], hooked=False)[0] for _ in range(args.runs)]
        print(f"lm-eval-leakage --help: {statistics.median(ours):.3f} s", flush=True)
        compare("lm_eval --help", [plain, "--help"], args.runs)
        compare(
            "lm_eval run", [plain, *model, "--tasks", "startup_task", "--include_path", str(folder)], args.evaluations
        )
    finally:
        shutil.rmtree(folder)
        if before is None:
            hook_file().unlink(missing_ok=True)
        else:
            hook_file().write_bytes(before)


if __name__ == "__main__":
    main()
