"""Whether freed memory is kept for the next forward pass."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from lm_eval_leakage.scoring import scorers as kept_memory

# in a process of its own, since the setting is the whole process's
FAULTS_OF_LATER_TENSORS = """
import resource, sys
import numpy as np
from lm_eval_leakage.scoring.scorers import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
sizes = [2**22 + 4096 * number for number in range(20)]  # bytes, in turn: as the tensors of a layer
np.ones(2**23, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for size in sizes:
    np.ones(size, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")


def faults_of_later_tensors(way: str) -> int:
    run = [sys.executable, "-c", FAULTS_OF_LATER_TENSORS, way]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


@glibc
def test_memory_of_a_freed_tensor_is_used_again_without_asking_the_system_for_it() -> None:
    kept, returned = faults_of_later_tensors("kept"), faults_of_later_tensors("returned")
    assert kept < 100
    assert returned > 10 * kept + 100


@glibc
@pytest.mark.parametrize("name", kept_memory.SETTINGS)
def test_settings_of_the_users_environment_are_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1000000")
    monkeypatch.setattr(kept_memory.ctypes, "CDLL", lambda _: pytest.fail("the C library was told something"))
    assert not kept_memory.keep_freed_memory()


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory.platform, "libc_ver", lambda: ("musl", "1.2"))
    monkeypatch.setattr(kept_memory.ctypes, "CDLL", lambda _: pytest.fail("the C library was told something"))
    assert not kept_memory.keep_freed_memory()
