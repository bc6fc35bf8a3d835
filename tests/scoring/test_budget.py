from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lm_eval_leakage.scoring import scorers as budget
from lm_eval_leakage.scoring.scorers import TokenBudget, bytes_per_token, default_max_tokens

CPU, CUDA, OTHER = (torch.device(name) for name in ("cpu", "cuda:1", "xpu"))
OUT_OF_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def model(dtype: torch.dtype = torch.bfloat16, **config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(**config), dtype=dtype)


@pytest.mark.parametrize(
    ("free_tokens", "device", "expected"),
    [
        (2 * 1024, CPU, 1024),
        (2 * 2047, CPU, 1024),
        (2 * 5000, CPU, 4096),
        (2 * 5000, CUDA, 4096),
        (2 * 9000, CUDA, 8192),
        (2 * 50_000, CUDA, 16384),
        (2 * 50_000, OTHER, 4096),
        (2 * 10, CUDA, 256),
    ],
)
def test_half_of_the_free_memory_is_used_within_bounds(
    free_tokens: int, device: torch.device, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = model(hidden_size=1, intermediate_size=1)
    free = {str(device): free_tokens * bytes_per_token(tiny)}
    monkeypatch.setattr(budget, "free_memory", lambda asked: free[str(asked)])
    assert default_max_tokens(tiny, device) == expected


def test_a_budget_is_halved_down_to_the_fewest_tokens_and_then_the_error_is_raised(caplog) -> None:
    tokens = TokenBudget(100)
    found = []
    for _ in range(3):
        tokens.lower(OUT_OF_MEMORY)
        found.append(tokens.max_tokens)
    assert found == [50, 25, 16]
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory; continuing with max_tokens={n}" for n in found
    ]
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        tokens.lower(OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match="another"):
        TokenBudget(100).lower(RuntimeError("another"))


@pytest.mark.parametrize("reason", [*budget.SETTINGS, "another C library"])
def test_the_users_settings_of_memory_and_other_c_libraries_are_left_alone(reason, monkeypatch) -> None:
    monkeypatch.setattr(budget.platform, "libc_ver", lambda: ("glibc" if reason in budget.SETTINGS else "musl", "1"))
    monkeypatch.setenv(reason, "1000000")
    monkeypatch.setattr(budget.ctypes, "CDLL", lambda _: pytest.fail("the C library was told something"))
    assert not budget.keep_freed_memory()
