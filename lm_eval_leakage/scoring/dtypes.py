"""Chooses the number format in which a model is computed on this machine, and times formats."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch

BFLOAT16, FLOAT32 = "bfloat16", "float32"
UNITS = ("amx_bf16", "avx512_bf16")  # of x86 processors, as torch and Linux call them
CPU_FLAGS = Path("/proc/cpuinfo")
ROWS, WIDTH, REPEATS = 256, 1024, 7  # of the product of matrices that is timed, half a billion multiplications
SEVERAL = 3.0  # times as long, from which a slow format is worth a sentence

Seconds = Callable[[str], float]


class DtypeChoice(NamedTuple):
    """A number format, and why it was chosen, as a clause."""

    name: str
    reason: str


def usual_dtype(device: str | None = None) -> DtypeChoice | None:
    """Return the format for a model that names none: bfloat16 where the processor has units for it, float32 on other
    CPUs; None for other accelerators, where that of the model's files is best.

    device: as lm_eval takes it
    """
    if is_on_cpu(device):
        if has_bfloat16_units():
            return DtypeChoice(BFLOAT16, "this CPU has units for it")
        return DtypeChoice(FLOAT32, f"this CPU has no units for {BFLOAT16}")
    is_cuda = torch.cuda.is_available() and (device or "cuda").startswith("cuda")
    if is_cuda and torch.cuda.is_bf16_supported(including_emulation=False):
        return DtypeChoice(BFLOAT16, "this GPU has units for it")
    return None


def is_on_cpu(device: str | None) -> bool:
    """Return whether `hf` computes on the CPU."""
    if device is None or device.startswith("cuda"):  # without one it uses the CPU
        return not torch.cuda.is_available()
    return device == "cpu"


def has_bfloat16_units() -> bool:
    """Return whether this x86 processor has units for bfloat16; False where that is not recorded."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch has none
    if capabilities:
        return any(capabilities.get(unit) for unit in UNITS)
    if platform.system() != "Linux" or not CPU_FLAGS.is_file():
        return False
    flags = CPU_FLAGS.read_text(encoding="utf-8", errors="replace").split()
    return any(unit in flags for unit in UNITS)


def seconds_of_product(dtype: str) -> float:
    """Return the seconds that a product of two matrices takes on the CPU: the shortest of several repetitions."""
    rows = torch.ones((ROWS, WIDTH), dtype=getattr(torch, dtype))
    weights = torch.ones((WIDTH, WIDTH), dtype=rows.dtype)
    seconds = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        torch.nn.functional.linear(rows, weights)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])  # the first product also sets up what the others need


def faster_dtype(dtype: str, seconds: Seconds = seconds_of_product) -> tuple[str, float] | None:
    """Return the other of bfloat16 and float32, and how many times as long `dtype` takes on the CPU; None if that
    is less than `SEVERAL` times.

    seconds: measures how long a piece of work takes in a format
    """
    if dtype not in (BFLOAT16, FLOAT32):
        return None
    other = FLOAT32 if dtype == BFLOAT16 else BFLOAT16
    times = seconds(dtype) / seconds(other)
    return (other, times) if times >= SEVERAL else None
