"""A vLLM server without vLLM: its prefix cache of blocks, what it returns for cached tokens, and its faults."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from tests.harness.fake_completions import LIKELIEST, Raw, Status, logprob, served
from tests.scoring.test_engine_cache import BlockCache

BLOCK = 4


@dataclass
class FakeVllm:
    """whole_lists: whether entries of cached tokens are returned too, with arbitrary content
    fails: numbers of requests that are computed, but answered with this status
    preempts: numbers of requests during which another one is preempted, so that their count of cached tokens is wrong
    """

    whole_lists: bool = True
    says_cached: bool = True
    has_endpoint: bool = True
    metrics: bool = True
    counts_requests: bool = True
    mistaken: float = 0.0  # added to the log-probabilities of requests that read the cache
    fails: dict[int, int] = field(default_factory=dict)
    preempts: tuple[int, ...] = ()
    asked: list[dict[str, Any]] = field(default_factory=list)
    n_computed: int = 0
    n_preempted: int = 0
    cache: BlockCache = field(default_factory=lambda: BlockCache(BLOCK))
    lock: Any = field(default_factory=threading.Lock)

    @property
    def n_plain(self) -> int:
        return sum(sent["sampling_params"].get("skip_reading_prefix_cache", False) for sent in self.asked)

    def answer(self, sent: dict[str, Any]) -> Any:
        with self.lock:
            number = len(self.asked)
            self.asked.append(sent)
            wanted, tokens = sent["sampling_params"], sent["token_ids"]
            skips = wanted.get("skip_reading_prefix_cache", "prompt_logprobs" in wanted)
            n_cached = self.cache.read(tokens, sent["cache_salt"], not skips)
            self.n_computed += len(tokens) - n_cached
        if number in self.fails:
            return Status(self.fails[number])
        found = {"prompt_logprobs": self.rows(tokens, n_cached), "choices": [self.choice(sent)]}
        told = n_cached
        if number in self.preempts:
            self.n_preempted, told = self.n_preempted + 1, 0
        if self.says_cached:
            found["usage"] = {"prompt_tokens_details": {"cached_tokens": told}}
        return found

    def rows(self, tokens: list[int], n_cached: int) -> list[Any]:
        rows: list[Any] = []
        for place in range(n_cached + 1, len(tokens)):
            value = logprob(tokens[:place], tokens[place]) + (self.mistaken if n_cached else 0)
            rows.append({str(tokens[place]): {"logprob": value}, "-1": {"logprob": LIKELIEST}})
        garbage = {str(token): {"logprob": 7e9} for token in tokens}
        return [None, *[garbage] * (n_cached * self.whole_lists), *rows]

    def choice(self, sent: dict[str, Any]) -> dict[str, Any]:
        (token,) = sent["sampling_params"].get("allowed_token_ids", [0])
        value = {"token_id": token, "logprob": logprob(sent["token_ids"], token)}
        return {"logprobs": {"content": [{**value, "top_logprobs": [value, {"token_id": -1, "logprob": LIKELIEST}]}]}}

    def told(self) -> str:
        n_answered = len(self.asked) if self.counts_requests else 0
        return (
            "# TYPE vllm:num_preemptions_total counter\n"
            f'vllm:num_preemptions_total{{engine="0"}} {self.n_preempted}.0\n'
            f'vllm:num_preemptions_created{{engine="0"}} 1.8e9\n'
            f'vllm:request_success_total{{finished_reason="stop"}} 0.0\n'
            f'vllm:request_success_total{{finished_reason="length"}} {n_answered}.0\n'
        )


def serving(vllm: FakeVllm) -> AbstractContextManager[str]:
    """The URL of its completions."""

    def post(path: str, sent: dict[str, Any]) -> Any:
        return vllm.answer(sent) if vllm.has_endpoint and path == "/inference/v1/generate" else Status(404)

    def get(path: str) -> Any:
        return Raw(vllm.told().encode()) if vllm.metrics and path == "/metrics" else Status(404)

    return served(post, get)
