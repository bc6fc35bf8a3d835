"""Shared by benchmarks that measure in separate processes: how these are run, times, memory."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
T = TypeVar("T")


def in_process(
    python: str, script: str, spec: Mapping[str, object], variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return what `python script --worker SPEC FOUND` writes. variables: of the environment, unless they are set
    already"""
    with tempfile.TemporaryDirectory() as scratch:
        question, answer = Path(scratch, "spec.json"), Path(scratch, "found.json")
        question.write_text(json.dumps(spec))
        environment = {**(variables or {}), **os.environ}
        if python != sys.executable:
            environment["PYTHONPATH"] = str(ROOT)
        command = [python, script, "--worker", str(question), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if not answer.exists():
            sys.exit(f"{Path(script).name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        figures: dict[str, Any] = json.loads(answer.read_text())
        return figures


def is_worker(measure: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
    """Return whether this is a process of `in_process`; it then measures what the specification names."""
    if sys.argv[1:2] != ["--worker"]:
        return False
    question, answer = map(Path, sys.argv[2:])
    answer.write_text(json.dumps(measure(json.loads(question.read_text()))))
    return True


def timed(call: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def forget_peak() -> None:
    """Reset the peak, so that it is that of scoring: loading a checkpoint takes more than most runs."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """Peak of the process since `forget_peak`, or of the GPU where there is one, in MiB."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated() / 2**20)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def differences(truth: Sequence[float], values: Sequence[float]) -> dict[str, float]:
    off = [b - a for a, b in zip(truth, values, strict=True)]
    return {"rms": math.sqrt(sum(difference**2 for difference in off) / len(off)), "largest": max(map(abs, off))}
