"""What this package adds to the start of plain `lm_eval`, with the hook of `lm-eval-leakage enable` and without it.

    python benchmarks/startup.py --runs 20

Each command is run in turn with and without the hook, so that what else the machine does falls on both. Printed for
each: the median in seconds, the median over the pairs of with / without, and the same of two runs without the hook,
which is the noise of the measurement. `lm-eval-leakage --help` is timed alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lm_eval_leakage.harness.patches.pth_hook import hook_file, write_hook

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


def seconds(command: list[str], hooked: bool) -> float:
    """Of one process; the hook's file is there or not while it runs."""
    file = hook_file()
    if hooked:
        write_hook(file)
    else:
        file.unlink(missing_ok=True)
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    return time.perf_counter() - begun


def compare(name: str, command: list[str], n_runs: int) -> None:
    seconds(command, hooked=True)  # files into the cache, bytecode written
    without, with_hook, again = [], [], []
    for _ in range(n_runs):
        without.append(seconds(command, hooked=False))
        with_hook.append(seconds(command, hooked=True))
        again.append(seconds(command, hooked=False))
    ratio = statistics.median(hooked / plain for hooked, plain in zip(with_hook, without, strict=True))
    noise = statistics.median(second / first for second, first in zip(again, without, strict=True))
    print(
        f"{name}: {statistics.median(without):.3f} s without, {statistics.median(with_hook):.3f} s with the hook, "
        f"ratio {ratio:.3f} (without / without {noise:.3f})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--model_args", help="of `hf`; without them the model is lm_eval's `dummy`")
    args = parser.parse_args()
    before = hook_file().read_bytes() if hook_file().exists() else None
    folder = Path(tempfile.mkdtemp())
    (folder / "rows.jsonl").write_text(ROW)
    (folder / "startup_task.yaml").write_text(TASK.replace("FOLDER", str(folder)))
    model = ["--model", "hf", "--model_args", args.model_args] if args.model_args else ["--model", "dummy"]
    plain = str(BIN / "lm_eval")
    try:
        ours = [seconds([str(BIN / "lm-eval-leakage"), "--help"], hooked=False) for _ in range(args.runs)]
        print(f"lm-eval-leakage --help: {statistics.median(ours):.3f} s", flush=True)
        compare("lm_eval --help", [plain, "--help"], args.runs)
        compare("lm_eval run", [plain, *model, "--tasks", "startup_task", "--include_path", str(folder)], args.runs)
    finally:
        shutil.rmtree(folder)
        if before is None:
            hook_file().unlink(missing_ok=True)
        else:
            hook_file().write_bytes(before)


if __name__ == "__main__":
    main()
