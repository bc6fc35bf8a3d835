"""`vllm` and `vllm-prefix-tree` in pairs, both on one engine in one process: the part of scoring.py about vLLM.

An engine takes 40 s to start, and the load of a machine changes, so pairs of calls are compared and the median of
their ratios is reported; which of the two is first alternates. The prefix cache is emptied before each call, and it is
checked that `vllm` reads nothing from it, and `vllm-prefix-tree` as much as in its first call. For both, the engine
counts the requests that it interrupts, since `vllm-prefix-tree` needs that.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from timing import cpu_seconds, differences, in_process, is_worker, timed

Found = dict[str, Any]
BACKENDS = PLAIN, TREE = ("vllm", "vllm-prefix-tree")
BLOCKS = {"cpu": 32, "cuda": 16}  # tokens of a block of vLLM's cache: the smallest on CPUs, the default on most GPUs
WARM_UP = 24  # requests that both answer before the first pair
ON_CPUS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # so that the engine's CPU seconds are those of this process
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "2",
}
Requests = Sequence[tuple[str, str]]


def compared(python: str, model: str, device: str, requests: Requests, exact: Requests, n_pairs: int) -> Found:
    """Times on `requests` in bfloat16, and differences on `exact` in float32.

    python: the interpreter of an environment with vllm and lm_eval
    """
    variables = {"VLLM_LOGGING_LEVEL": "ERROR"} | (ON_CPUS if device == "cpu" else {})
    common = {"model": model, "device": device, "block_size": BLOCKS[device]}
    half, single = (
        in_process(python, __file__, common | {"dtype": dtype, "requests": requests_of_dtype, "n_pairs": n}, variables)
        for dtype, requests_of_dtype, n in (("bfloat16", requests, n_pairs), ("float32", exact, 1))
    )
    return half | {"bfloat16": half["off"], "float32": single["off"]}


# ---------------------------------------------------------------------- the process with the engine


class SharedEngine:
    """Answers requests by either backend."""

    def __init__(self, spec: Found) -> None:
        from lm_eval_leakage.harness.models.vllm_engine import VLLMPrefixTreeLM

        self.lm = VLLMPrefixTreeLM(
            pretrained=spec["model"],
            dtype=spec["dtype"],
            max_model_len=2048,
            block_size=spec["block_size"],
            batch_size="auto",
            enforce_eager=spec["device"] == "cpu",
        )
        self.scorer = self.lm._scorer
        if self.scorer is None:
            sys.exit("vllm-prefix-tree fell back to stock scoring; the reason is in its log")
        self.n_cached = 0  # tokens that the engine took from its cache
        self._generate, self.lm.model.generate = self.lm.model.generate, self._counted

    def call(self, backend: str, requests: Sequence[Any]) -> tuple[Found, list[tuple[float, bool]]]:
        """Figures and answers."""
        self.lm._scorer = self.scorer if backend == TREE else None
        if not self.lm.model.reset_prefix_cache():
            sys.exit("vLLM could not empty its prefix cache")
        self.n_cached, n_holes, used = 0, self.scorer.n_holes, cpu_seconds()
        seconds, answers = timed(lambda: self.lm.loglikelihood(requests, disable_tqdm=True))
        figures = {"seconds": seconds, "cpu_seconds": cpu_seconds() - used, "load": os.getloadavg()[0]}
        return figures | {"n_cached": self.n_cached, "n_holes": self.scorer.n_holes - n_holes}, answers

    def _counted(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self._generate(*args, **kwargs)
        self.n_cached += sum(output.num_cached_tokens or 0 for output in outputs)
        return outputs


def measure(spec: Found) -> Found:
    from lm_eval.api.instance import Instance

    engine = SharedEngine(spec)
    instances = [Instance("loglikelihood", {}, tuple(pair), index) for index, pair in enumerate(spec["requests"])]
    for backend in BACKENDS:
        engine.call(backend, instances[:WARM_UP])
    pairs: list[dict[str, Found]] = []
    for number in range(spec["n_pairs"]):
        answers = {}
        pairs.append({})
        for backend in BACKENDS[:: -1 if number % 2 else 1]:
            pairs[-1][backend], answers[backend] = engine.call(backend, instances)
        n_cached = [pairs[-1][backend]["n_cached"] for backend in BACKENDS]
        if n_cached != [0, pairs[0][TREE]["n_cached"]]:
            sys.exit(f"{BACKENDS} took {n_cached} tokens from the cache; in the first pair {pairs[0]}")
    plain, tree = (answers[backend] for backend in BACKENDS)
    off = differences([score for score, _ in plain], [score for score, _ in tree])
    greedy_equal = [greedy for _, greedy in plain] == [greedy for _, greedy in tree]
    return {"pairs": pairs, "off": off | {"greedy_equal": greedy_equal}} | _block_figures(engine.lm, instances, spec)


def _block_figures(lm: Any, instances: Sequence[Any], spec: Found) -> Found:
    """Numbers of tokens that an engine reads: without its cache, with it, and with blocks of the usual size."""
    from lm_eval_leakage.harness.models.tokenising import AS_VLLM, FittedTexts, encoded_pairs
    from lm_eval_leakage.scoring.prefix_tree import ENGINE_BLOCK, Texts, token_counts

    pairs = [request.args for request in instances]
    fitted = FittedTexts(lm.max_length, *AS_VLLM).texts(pairs, Texts.of_pairs(encoded_pairs(lm, pairs)))
    texts = [text.tokens for text in fitted]
    counts, usual = token_counts(texts, spec["block_size"]), token_counts(texts, ENGINE_BLOCK)
    return {
        "n_requests": len(instances),
        "block_size": spec["block_size"],
        "n_prompt_tokens": counts.n_row_tokens + counts.n_texts,
        "n_block_tokens": counts.n_block_tokens,
        "n_usual_block_tokens": usual.n_block_tokens,
    }


# ---------------------------------------------------------------------- its figures as a table

HEADING = [
    "requests",
    "`vllm`, s",
    "`vllm-prefix-tree`, s",
    "times as fast",
    "in CPU seconds",
    "token ratio at the block size",
    "share of it",
    "token ratio at 16",
    "float32",
]


def ratios(figures: Found, unit: str = "seconds") -> list[float]:
    """Return of each pair how many times as fast `vllm-prefix-tree` is."""
    return [pair[PLAIN][unit] / pair[TREE][unit] for pair in figures["pairs"]]


def engine_table(measured: Mapping[str, Found]) -> str:
    """Return how much of the ratio of tokens becomes a ratio of times; medians over pairs."""
    from lm_eval_leakage.results.tabulating import markdown_of

    lines = [HEADING]
    for name, figures in measured.items():
        plain, tree = (
            statistics.median(pair[backend]["seconds"] for pair in figures["pairs"]) for backend in BACKENDS
        )
        faster, tokens = statistics.median(ratios(figures)), figures["n_prompt_tokens"] / figures["n_block_tokens"]
        exact = figures["float32"]
        lines.append(
            [
                f"{name}, {figures['n_requests']}",
                f"{plain:.1f}",
                f"{tree:.1f}",
                f"{faster:.2f}",
                f"{statistics.median(ratios(figures, 'cpu_seconds')):.2f}",
                f"{tokens:.2f} at {figures['block_size']}",
                f"{faster / tokens:.2f}",
                f"{figures['n_prompt_tokens'] / figures['n_usual_block_tokens']:.2f}",
                f"{exact['largest']:.1e}, greedy {'equal' if exact['greedy_equal'] else 'DIFFERS'}",
            ]
        )
    return markdown_of(lines)


if __name__ == "__main__":
    is_worker(measure)
