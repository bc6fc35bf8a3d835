"""Whether freed memory is kept for the next forward pass."""

from __future__ import annotations

import platform

import pytest

from lm_eval_leakage.scoring import scorers as kept_memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")


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
