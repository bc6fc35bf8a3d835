"""`vllm-prefix-tree` against `vllm` on a real engine, in the environment of a vLLM (CPU or GPU) with this package.

VLLM_CPU_KVCACHE_SPACE=2 VLLM_ENABLE_V1_MULTIPROCESSING=0 pytest tests/model/test_vllm.py
"""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance

from tests.harness.test_prefix_tree_lm import checkpoint

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed"),
    pytest.mark.filterwarnings("ignore"),  # those of vllm
]
BLOCK = 32  # the smallest of vLLM's CPU build
HEADER = "The following are questions about rivers, bakers and the days of the week, with their answers.\n\n"
QUESTIONS = [
    (
        "Question: Which of these flows into the Mediterranean Sea?\n",
        ["the Nile", "Mount Everest", "a baker", "Monday"],
    ),
    ("Question: What is put into the oven of a bakery every morning?\n", ["loaves", "letters", "rivers", "years"]),
]
ORDERS = [
    (stem, "".join(f"{letter}. {option}\n" for letter, option in zip("ABCD", order, strict=True)))
    for stem, options in QUESTIONS
    for order in itertools.permutations(options)
]
FIVE_SHOT = [
    (f"{HEADER}{''.join(stem + block for stem, block in ORDERS[:5])}{stem}Answer:", f" {letter}")
    for stem, _ in QUESTIONS
    for letter in "ABCD"
]
EDGES = [
    (QUESTIONS[0][0], "the Nile"),
    (QUESTIONS[0][0], "the Nile"),  # the same again
    (QUESTIONS[0][0], "the Nile and others"),  # begins with another text
    ("", "No context at all"),
    ("", "N"),
    ("The sky is ", "blue"),
    *((HEADER[:length], HEADER[length : length + 20]) for length in range(BLOCK - 2, BLOCK + 3)),
    *((HEADER[:BLOCK], f"{letter} ends where a block does") for letter in "xyz"),
    ("A" * 700, "B" * 40),  # longer than the window
]


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(tmp_path_factory.mktemp("llama"))


def loaded(folder: Path, **arguments: Any) -> Any:
    """A tiny model in float32; 64 tokens per step, so that texts are computed in chunks."""
    from lm_eval_leakage.harness.models.vllm_engine import VLLMPrefixTreeLM

    model = checkpoint(
        folder, hidden_size=64, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512
    )
    chosen = {"max_model_len": 512, "block_size": BLOCK, "enforce_eager": True, "max_num_batched_tokens": 64}
    chosen |= {"max_num_seqs": 16, "batch_size": "auto", "dtype": "float32"}
    return VLLMPrefixTreeLM(pretrained=model, **(chosen | arguments))


def instances(method: str, some: list[Any]) -> list[Instance]:
    return [Instance(method, {}, arguments, index) for index, arguments in enumerate(some)]


def as_vllm(lm: Any, method: str, requests: list[Instance], monkeypatch: Any) -> list[Any]:
    """Return what the harness's own code returns on the same engine."""
    with monkeypatch.context() as patch:
        patch.setattr(lm, "_scorer", None)
        return getattr(lm, method)(requests, disable_tqdm=True)


@pytest.mark.parametrize("pairs", [ORDERS, FIVE_SHOT, EDGES], ids=["orders", "five-shot", "edges"])
def test_log_likelihoods_are_those_of_vllm_to_the_last_bit(lm, pairs, monkeypatch) -> None:
    requests = instances("loglikelihood", pairs)
    expected = as_vllm(lm, "loglikelihood", requests, monkeypatch)
    assert lm._scorer is not None, "the engine passed the check at its start"
    before = lm._scorer.n_cached, lm._scorer.n_holes
    assert lm.loglikelihood(requests, disable_tqdm=True) == expected
    assert lm._scorer.n_cached > before[0]
    if pairs is EDGES:
        assert lm._scorer.n_holes > before[1]


def test_an_engine_that_interrupts_requests_gives_the_same_answers(tmp_path: Path, monkeypatch, caplog) -> None:
    """It has four blocks more than the longest text needs, and begins several texts at a time."""
    lm = loaded(tmp_path, long_prefill_token_threshold=16)
    pool = lm.model.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    n_kept = 20
    pool.get_new_blocks(pool.get_num_free_blocks() - n_kept)
    requests = instances("loglikelihood", [*ORDERS, *EDGES, *((letter * 450, " end") for letter in "KLMN")])
    expected = as_vllm(lm, "loglikelihood", requests, monkeypatch)
    assert lm.loglikelihood(requests, disable_tqdm=True) == expected
    assert "the engine interrupted requests" in caplog.text


def test_without_a_prefix_cache_scoring_is_that_of_vllm_with_one_line(tmp_path: Path, caplog) -> None:
    lm = loaded(tmp_path, enable_prefix_caching=False)
    (line,) = [text for text in caplog.messages if text.startswith("vllm-prefix-tree")]
    assert "this engine has no prefix cache" in line
    assert len(lm.loglikelihood(instances("loglikelihood", ORDERS[:2]), disable_tqdm=True)) == 2
