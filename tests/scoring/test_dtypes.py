"""Which number format this machine computes fast in; clocks and processors are given."""

from __future__ import annotations

import pytest
import torch

from lm_eval_leakage.scoring import dtypes
from lm_eval_leakage.scoring.dtypes import faster_dtype, has_bfloat16_units, is_on_cpu, seconds_of_product, usual_dtype


@pytest.fixture
def processor(monkeypatch):
    """Sets what the CPU has, and whether there is a GPU, with or without units for bfloat16."""

    def has(*units: str, gpu: bool | None = None) -> None:
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: {"avx2": True} | dict.fromkeys(units, True), raising=False
        )
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu is not None)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bool(gpu))

    return has


@pytest.mark.parametrize(
    ("units", "gpu", "device", "expected"),
    [
        (("avx512_bf16",), None, None, ("bfloat16", "this CPU has units for it")),
        (("amx_bf16",), None, "cpu", ("bfloat16", "this CPU has units for it")),
        (("amx_bf16",), None, "cuda:0", ("bfloat16", "this CPU has units for it")),
        (("avx512_f",), None, None, ("float32", "this CPU has no units for bfloat16")),
        ((), True, None, ("bfloat16", "this GPU has units for it")),
        ((), True, "cuda:1", ("bfloat16", "this GPU has units for it")),
        ((), True, "cpu", ("float32", "this CPU has no units for bfloat16")),
        ((), False, None, None),
        ((), None, "mps", None),
    ],
)
def test_the_format_is_one_for_which_the_processor_has_units(processor, units, gpu, device, expected) -> None:
    processor(*units, gpu=gpu)
    assert usual_dtype(device) == expected
    assert is_on_cpu(device) == (expected is not None and "CPU" in expected[1])


@pytest.mark.parametrize(("flags", "has_units"), [("fma avx512_bf16 avx2", True), ("fma avx512f avx2", False)])
def test_an_older_torch_is_replaced_by_what_linux_says(monkeypatch, tmp_path, flags, has_units) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : {flags}\n")
    monkeypatch.setattr(dtypes, "CPU_FLAGS", file)
    monkeypatch.setattr(dtypes.platform, "system", lambda: "Linux")
    assert has_bfloat16_units() is has_units
    monkeypatch.setattr(dtypes.platform, "system", lambda: "Darwin")
    assert not has_bfloat16_units()


@pytest.mark.parametrize(
    ("dtype", "seconds", "expected"),
    [
        ("bfloat16", {"bfloat16": 8.0, "float32": 1.0}, ("float32", 8.0)),
        ("bfloat16", {"bfloat16": 2.9, "float32": 1.0}, None),
        ("float32", {"bfloat16": 1.0, "float32": 3.0}, ("bfloat16", 3.0)),
        ("float16", {}, None),
        ("", {}, None),
    ],
)
def test_a_format_is_slow_if_it_takes_three_times_as_long_as_another(dtype, seconds, expected) -> None:
    assert faster_dtype(dtype, seconds.__getitem__) == expected


def test_a_product_takes_some_time_in_either_format() -> None:
    assert seconds_of_product("float32") > 0
    assert seconds_of_product("bfloat16") > 0
