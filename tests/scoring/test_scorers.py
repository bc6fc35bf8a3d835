"""Tree attention against the model itself, row by row; memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from lm_eval_leakage.scoring import scorers as budget
from lm_eval_leakage.scoring.pieces import Piece, UnsuitedModelError
from lm_eval_leakage.scoring.prefix_tree import Text, prefix_tree
from lm_eval_leakage.scoring.scorers import (
    TokenBudget,
    TreeScorer,
    bytes_per_token,
    default_max_tokens,
    plain_score,
)
from lm_eval_leakage.scoring.tree_model import TreeModel, logprobs_and_greedy
from tests.scoring.trees import (
    EXCHANGEABLE,
    TINY,
    orders_of_options,
    texts,
    tiny_model,
)

CPU, CUDA, OTHER = (torch.device(name) for name in ("cpu", "cuda:1", "xpu"))


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny_model("llama", TINY)


def assert_agrees(model: Any, scorer: Any, some: list[Text], tolerance: float = 1e-4) -> None:
    answers = {answer.text: answer for answer in scorer.answers(some)}
    assert sorted(answers) == list(range(len(some)))
    for index, text in enumerate(some):
        loglikelihood, greedy = plain_score(model, CPU, text)
        assert answers[index].loglikelihood == pytest.approx(loglikelihood, abs=tolerance)
        assert answers[index].greedy == greedy


# ---------------------------------------------------------------------- tree attention


@settings(max_examples=40)
@given(some=texts(), max_tokens=st.integers(1, 40))
def test_a_tree_is_read_exactly_in_as_few_pieces_as_fit_whose_sizes_differ_by_one_at_most(
    llama, some, max_tokens: int
) -> None:
    sizes: list[int] = []

    class Recorded(TreeModel):
        def score(self, piece: Piece, device: torch.device) -> Any:
            sizes.append(piece.stop - piece.first)
            return super().score(piece, device)

    scorer = TreeScorer(llama, CPU, TokenBudget(max_tokens))
    scorer.model = Recorded(llama)
    assert_agrees(llama, scorer, some)
    n_nodes = len(prefix_tree(some).node_tokens)
    assert sum(sizes) == n_nodes
    assert len(sizes) == -(-n_nodes // max_tokens)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", EXCHANGEABLE)
def test_tree_attention_is_exact_for(name: str) -> None:
    model = tiny_model(name, EXCHANGEABLE[name])
    assert_agrees(model, TreeScorer(model, CPU, TokenBudget(48)), orders_of_options())


def test_long_texts_are_exact_where_blocks_are_larger_than_the_smallest(llama) -> None:
    long = [Text([3 + (7 * step) % 50 for step in range(230)] + [last], 40) for last in (5, 6)]
    assert_agrees(llama, TreeScorer(llama, CPU, TokenBudget(130)), [*long, *orders_of_options(1)])


def test_the_models_own_attention_is_restored(llama) -> None:
    before = llama.config._attn_implementation
    (text, *_) = orders_of_options(1)
    usual = plain_score(llama, CPU, text)
    list(TreeScorer(llama, CPU, TokenBudget(32)).answers([text]))
    assert llama.config._attn_implementation == before != "lm_eval_leakage_prefix_tree"
    assert "forward" not in llama.model.__dict__
    assert plain_score(llama, CPU, text) == usual


def test_bfloat16_differs_from_float32_no_more_than_for_single_rows() -> None:
    exact, rounded = (tiny_model("llama", TINY, dtype) for dtype in (torch.float32, torch.bfloat16))
    some = orders_of_options(12)
    truth = [plain_score(exact, CPU, text)[0] for text in some]
    rows = [plain_score(rounded, CPU, text)[0] for text in some]
    in_tree = {
        answer.text: answer.loglikelihood for answer in TreeScorer(rounded, CPU, TokenBudget(256)).answers(some)
    }
    rms = [
        torch.tensor([value - true for value, true in zip(values, truth, strict=True)]).square().mean().sqrt()
        for values in (rows, [in_tree[index] for index in range(len(some))])
    ]
    assert rms[1] <= 1.1 * rms[0]


def test_a_model_whose_head_cannot_be_distinguished_from_its_layers_is_refused() -> None:
    with pytest.raises(UnsuitedModelError, match="its output head cannot be distinguished from its layers"):
        TreeModel(torch.nn.Linear(2, 2))


# ---------------------------------------------------------------------- memory


OUT_OF_MEMORY = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


def test_a_scorer_continues_with_fewer_tokens_when_memory_runs_out(caplog) -> None:
    model, budget, some = tiny_model("llama", TINY), TokenBudget(200), orders_of_options()
    plain, usual = [plain_score(model, CPU, text)[0] for text in some], model.model.forward

    def forward(*args: Any, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        if input_ids.numel() > 30:
            raise OUT_OF_MEMORY
        return usual(*args, input_ids=input_ids, **kwargs)

    model.model.forward = forward
    scores = {answer.text: answer.loglikelihood for answer in TreeScorer(model, CPU, budget).answers(some)}
    assert budget.max_tokens <= 50
    assert f"continuing with max_tokens={budget.max_tokens}" in caplog.text
    assert [scores[index] for index in range(len(some))] == pytest.approx(plain, abs=1e-4)


# ---------------------------------------------------------------------- from logits


@given(st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=6), st.data())
def test_greedy_is_argmax_even_if_logits_tie(rows, data: st.DataObject) -> None:
    logits = torch.tensor(rows, dtype=torch.bfloat16)
    places = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8))
    tokens = data.draw(st.lists(st.integers(0, 4), min_size=len(places), max_size=len(places)))
    logprobs, greedy = logprobs_and_greedy(logits, torch.tensor(places), torch.tensor(tokens))
    expected = logits.float().log_softmax(1)
    assert torch.allclose(logprobs, expected[places, tokens])
    assert greedy.tolist() == [
        int(expected[place].argmax()) == token for place, token in zip(places, tokens, strict=True)
    ]


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
    monkeypatch.setattr(budget, "free_memory", lambda device_of_call: free[str(device_of_call)])
    assert default_max_tokens(tiny, device) == expected


@pytest.mark.parametrize(
    ("n_parameters", "device", "expected"),
    [
        (135_000_000, CPU, 4096),
        (494_000_000, CPU, 1024),
        (1_540_000_000, CPU, 512),
        (7_000_000_000, CPU, 256),
        (7_000_000_000, CUDA, 16384),
    ],
)
def test_a_large_model_reads_fewer_tokens_at_once_on_a_cpu_so_that_progress_is_seen(
    n_parameters: int, device: torch.device, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = model(hidden_size=1, intermediate_size=1)
    large.num_parameters = lambda: n_parameters
    monkeypatch.setattr(budget, "free_memory", lambda device: 10**12)
    assert default_max_tokens(large, device) == expected


def test_a_budget_is_halved_down_to_the_fewest_tokens_and_then_the_error_is_raised(caplog) -> None:
    tokens = TokenBudget(100)
    budgets = []
    for _ in range(3):
        tokens.lower(OUT_OF_MEMORY)
        budgets.append(tokens.max_tokens)
    assert budgets == [50, 25, 16]
    assert [record.getMessage() for record in caplog.records] == [
        f"out of memory; continuing with max_tokens={n}" for n in budgets
    ]
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        tokens.lower(OUT_OF_MEMORY)
    with pytest.raises(RuntimeError, match="another"):
        TokenBudget(100).lower(RuntimeError("another"))


@pytest.mark.parametrize(
    ("units", "device", "dtype", "slows"),
    [
        ("AVX2", "cpu", torch.bfloat16, True),
        ("AVX512", "cpu", torch.bfloat16, False),
        ("DEFAULT", "cpu", torch.bfloat16, False),
        ("AVX2", "cpu", torch.float32, False),
        ("AVX2", "meta", torch.bfloat16, False),
    ],
)
def test_a_processor_that_emulates_bfloat16_is_distinguished_from_others(
    monkeypatch, units, device, dtype, slows
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: units)
    assert budget.slows_down(dtype, torch.device(device)) is slows
