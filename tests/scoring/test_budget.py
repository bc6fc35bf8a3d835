from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from lm_eval_leakage.scoring import scorers as budget
from lm_eval_leakage.scoring.scorers import TokenBudget, bytes_per_token, default_max_tokens, free_memory

CPU, CUDA, OTHER = (torch.device(name) for name in ("cpu", "cuda:1", "xpu"))
OUT_OF_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def model(dtype: torch.dtype = torch.bfloat16, **config: Any) -> Any:
    return SimpleNamespace(config=SimpleNamespace(**config), dtype=dtype)


def test_a_token_needs_twice_its_activations_and_the_gathered_keys_and_values() -> None:
    """Twice 2 bytes for each of 16 hidden and 4 inner values."""
    assert bytes_per_token(model(hidden_size=100, intermediate_size=300)) == 4 * (1600 + 1200)
    assert bytes_per_token(model(torch.float32, hidden_size=100, intermediate_size=300)) == 8 * (1600 + 1200)
    assert bytes_per_token(model(hidden_size=100)) == 4 * (1600 + 4 * 400)
    assert bytes_per_token(model(hidden_size=100, intermediate_size=None)) == 4 * (1600 + 4 * 400)
    assert bytes_per_token(model()) == 4 * (16 + 16) * 1024


def test_keys_and_values_of_all_layers_count_as_they_may_be_passed_on() -> None:
    shape = {"hidden_size": 120, "intermediate_size": 300, "num_hidden_layers": 5, "num_attention_heads": 6}
    rest = 16 * 120 + 4 * 300
    assert bytes_per_token(model(**shape)) == 4 * (rest + 5 * 2 * 120)
    assert bytes_per_token(model(**shape, num_key_value_heads=2)) == 4 * (rest + 5 * 2 * 2 * 20)
    assert bytes_per_token(model(**shape, num_key_value_heads=2, head_dim=64)) == 4 * (rest + 5 * 2 * 2 * 64)


def test_for_a_multimodal_model_the_text_part_counts() -> None:
    text = SimpleNamespace(hidden_size=100, intermediate_size=300)
    assert bytes_per_token(model(hidden_size=1, get_text_config=lambda: text)) == 4 * (1600 + 1200)


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


def test_free_memory_counts_that_of_the_device_and_of_the_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, of_device in (("mem_get_info", (700, 1000)), ("memory_reserved", 200), ("memory_allocated", 150)):
        monkeypatch.setattr(torch.cuda, name, {CUDA: of_device}.__getitem__)
    assert free_memory(CUDA) == 700 + 200 - 150
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=12345.0, total=99999))
    assert free_memory(CPU) == 12345


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
