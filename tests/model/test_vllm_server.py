"""`vllm-server-prefix-tree` against `local-completions` on a real server, in the environment of a vLLM (CPU or GPU)
with this package.

VLLM_CPU_KVCACHE_SPACE=2 pytest tests/model/test_vllm_server.py
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import requests

from lm_eval_leakage.harness.models.vllm_server import metric
from tests.harness.test_prefix_tree_lm import checkpoint
from tests.model.test_vllm import BLOCK, EDGES, FIVE_SHOT, ORDERS, asked

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed"),
    pytest.mark.filterwarnings("ignore"),  # those of vllm
]
FLAGS = ["--enable-scale-out", "--enable-prompt-tokens-details", "--block-size", str(BLOCK)]
SMALL = ["--dtype", "float32", "--max-model-len", "512", "--enforce-eager", "--max-num-batched-tokens", "64"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    size = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512}
    return checkpoint(tmp_path_factory.mktemp("llama"), **size)


@pytest.fixture(scope="module")
def root(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--served-model-name", "tiny"]
    command += [*FLAGS, *SMALL, "--host", "127.0.0.1", "--port", str(port)]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as stream:
        server = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            if requests.get(url, timeout=5).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-2000:])


def model_of_the_harness(kind: type, root: str, model: str) -> Any:
    return kind(
        base_url=f"{root}/v1/completions",
        model="tiny",
        tokenizer=model,
        tokenizer_backend="huggingface",
        max_length=512,
        num_concurrent=4,
    )


@pytest.mark.parametrize("pairs", [ORDERS, FIVE_SHOT, EDGES], ids=["orders", "five-shot", "edges"])
def test_log_likelihoods_are_those_of_local_completions_to_the_last_bit(pairs, root: str, model: str) -> None:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    from lm_eval_leakage.harness.models.vllm_server import VllmServerPrefixTreeLM

    lm = model_of_the_harness(VllmServerPrefixTreeLM, root, model)
    assert lm.reports_as_it_goes
    before = n_cached(root)
    found = lm.loglikelihood(asked("loglikelihood", pairs))
    assert n_cached(root) > before
    stock = model_of_the_harness(LocalCompletionsAPI, root, model)
    assert found == stock.loglikelihood(asked("loglikelihood", pairs))


def test_rolling_log_likelihoods_and_generated_text_are_those_of_local_completions(root: str, model: str) -> None:
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    from lm_eval_leakage.harness.models.vllm_server import VllmServerPrefixTreeLM

    lm, stock = (model_of_the_harness(kind, root, model) for kind in (VllmServerPrefixTreeLM, LocalCompletionsAPI))
    texts = [(context + rest,) for context, rest in ORDERS[:4]]
    assert lm.loglikelihood_rolling(asked("loglikelihood_rolling", texts)) == stock.loglikelihood_rolling(
        asked("loglikelihood_rolling", texts)
    )
    prompts = [(stem, {"until": ["\n"], "max_gen_toks": 8}) for stem, _ in ORDERS[:2]]
    assert lm.generate_until(asked("generate_until", prompts)) == stock.generate_until(
        asked("generate_until", prompts)
    )


def n_cached(root: str) -> float:
    return metric(requests.get(f"{root}/metrics", timeout=5).text, "vllm:prefix_cache_hits_total") or 0
