"""A module `vllm` whose engine is a toy: log-probabilities are a function of the prefix, blocks are kept in a cache.

It answers as vLLM's model runners do: one returns an entry for every token of a prompt, where those of cached tokens
hold what was in memory; another one leaves these entries out.
"""

from __future__ import annotations

import importlib.metadata
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.scoring.test_engine_cache import BlockCache, logprob

COUNTER = "vllm:num_preemptions"
IMPORTED = ("lm_eval.models.vllm_causallms", "lm_eval_leakage.harness.models.vllm_engine")
PARAMETERS = {
    "temperature": 1.0,
    "prompt_logprobs": None,
    "logprobs": None,
    "max_tokens": 16,
    "detokenize": True,
    "stop": None,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "allowed_token_ids": None,
    "flat_logprobs": False,
    "skip_reading_prefix_cache": None,
}


@dataclass(frozen=True)
class Logprob:
    logprob: float


Candidates = tuple[tuple[int, float], tuple[int, float]]  # the prompt's token, the most likely one


class FlatLogprobs(list[Any]):
    """A list of log-probabilities as vLLM's: the entries, and lists of their tokens and log-probabilities one after
    the other."""

    def __init__(self, candidates: list[Candidates]) -> None:
        super().__init__([None, *map(as_entry, candidates)])
        self.token_ids = [token for pair in candidates for token, _ in pair]
        self.logprobs = [value for pair in candidates for _, value in pair]


def as_entry(candidates: Candidates) -> dict[int, Logprob]:
    return {token: Logprob(value) for token, value in candidates}


def candidates_at(prefix: tuple[int, ...]) -> Candidates:
    """The last token after those before it, and the most likely one: itself, another one equally likely, or a better
    one."""
    value = logprob(prefix)
    kind = int(-1000 * value) % 3
    return (prefix[-1], value), (prefix[-1] + (kind > 0), value + 0.25 * (kind == 2))


@dataclass
class Behaviour:
    """The behaviour of the engine.

    whole: whether a list has entries for cached tokens too
    caches: whether it has a prefix cache, of blocks of `block` tokens; forgets: share evicted after each request
    counts: whether it counts interrupted requests; interrupts: numbers of the calls (from 0) in which it interrupts
        them, and reports that nothing was cached
    off_by: added to log-probabilities that are computed after cached tokens, as a faulty engine would
    """

    whole: bool = True
    caches: bool = True
    counts: bool = True
    interrupts: tuple[int, ...] = ()
    forgets: float = 0.0
    off_by: float = 0.0
    block: int = 16
    window: int = 400


class LLM:
    behaviour = Behaviour()

    def __init__(self, **arguments: Any) -> None:
        self.arguments, self.is_like = arguments, self.behaviour
        model = SimpleNamespace(max_model_len=self.is_like.window, dtype=torch.float32)
        cache = SimpleNamespace(block_size=self.is_like.block)
        self.llm_engine = SimpleNamespace(model_config=model, vllm_config=SimpleNamespace(cache_config=cache))
        self.rng = random.Random(0)
        self.cache = BlockCache(self.is_like.block, self.is_like.forgets)
        self.calls: list[list[tuple[tuple[int, ...], Any, Any, Any]]] = []  # prompt, parameters, salt, LoRA adapter
        self.n_computed, self.n_interrupted = 0, 0.0

    def generate(
        self, prompts: list[Any], sampling_params: Any, use_tqdm: bool = True, lora_request: Any = None
    ) -> list[Any]:
        many = sampling_params if isinstance(sampling_params, list) else [sampling_params] * len(prompts)
        interrupted = len(self.calls) in self.is_like.interrupts
        self.n_interrupted += interrupted
        self.calls.append([])
        return [self._answer(*prompt, lora_request, interrupted) for prompt in zip(prompts, many, strict=True)]

    def get_metrics(self) -> list[Any]:
        assert not self.arguments.get("disable_log_stats", True), "Stat logging disabled"
        other = SimpleNamespace(name="vllm:prompt_tokens", value=7.0)
        return [other, SimpleNamespace(name=COUNTER, value=self.n_interrupted)] if self.is_like.counts else [other]

    def _answer(self, prompt: Any, params: Any, adapter: Any, interrupted: bool) -> Any:
        tokens, salt = tuple(prompt["prompt_token_ids"]), prompt.get("cache_salt")
        assert 0 < len(tokens) < self.is_like.window, "the engine generates a token too"
        self.calls[-1].append((tokens, params, salt, adapter))
        skip = params.skip_reading_prefix_cache
        reads = self.is_like.caches and not (params.prompt_logprobs is not None if skip is None else skip)
        n_cached = self.cache.read(tokens, (salt, adapter), reads)
        self.n_computed += len(tokens) - n_cached
        listed = None if params.prompt_logprobs is None else self._listed(tokens, n_cached)
        if listed is not None:
            listed = FlatLogprobs(listed) if params.flat_logprobs else [None, *map(as_entry, listed)]
        generated = [as_entry(candidates_at((*tokens, token))) for token in params.allowed_token_ids or [0]]
        return SimpleNamespace(
            prompt_logprobs=listed,
            num_cached_tokens=0 if interrupted else n_cached,
            outputs=[SimpleNamespace(logprobs=generated, text="generated")],
        )

    def _listed(self, tokens: tuple[int, ...], n_cached: int) -> list[Candidates]:
        computed = [candidates_at(tokens[: end + 1]) for end in range(n_cached + 1, len(tokens))]
        if n_cached:
            computed = [((token, value + self.is_like.off_by), other) for (token, value), other in computed]
        # what an earlier request of the same length left there may even be about the right token
        left = [((token, -1.0), (token, self.rng.choice([-1.0, float("nan")]))) for token in tokens[1 : n_cached + 1]]
        return left + computed if self.is_like.whole else computed


@contextmanager
def installed() -> Iterator[ModuleType]:
    """The module of our model, imported with the toy in the place of vLLM; it is forgotten afterwards."""
    from lm_eval.api.registry import model_registry
    from transformers import AutoTokenizer

    vllm, real_version = ModuleType("vllm"), importlib.metadata.version
    vllm.__spec__ = ModuleSpec("vllm", None)
    fields = [(name, Any, default) for name, default in PARAMETERS.items()]
    vllm.SamplingParams = make_dataclass("SamplingParams", fields)  # type: ignore[attr-defined]
    vllm.LLM, vllm.TokensPrompt = LLM, dict  # type: ignore[attr-defined]
    lora, hf, tokenizers = (ModuleType(f"vllm.{name}") for name in ("lora.request", "renderers.hf", "tokenizers"))
    lora.LoRARequest = lambda *options: options  # type: ignore[attr-defined]
    hf.resolve_chat_template = lambda **options: "{{ messages[0].content }}"  # type: ignore[attr-defined]

    def tokenizer(name: str, tokenizer_mode: str, **options: Any) -> Any:
        return AutoTokenizer.from_pretrained(name, **options)

    tokenizers.get_tokenizer = tokenizer  # type: ignore[attr-defined]
    engine = ModuleType("vllm.engine.arg_utils")
    engine.EngineArgs = lambda **options: SimpleNamespace(create_model_config=lambda: None)  # type: ignore[attr-defined]
    parents = [ModuleType(f"vllm.{name}") for name in ("lora", "renderers", "engine")]
    with pytest.MonkeyPatch.context() as patch:
        for module in (vllm, *parents, lora, hf, tokenizers, engine):
            patch.setitem(sys.modules, module.__name__, module)
        patch.setattr(importlib.metadata, "version", lambda name: "0.32.0" if name == "vllm" else real_version(name))
        patch.setattr(model_registry, "_objs", dict(model_registry._objs))  # it refuses a class that is made again
        before = {name: sys.modules.pop(name, None) for name in IMPORTED}
        try:
            yield importlib.import_module(IMPORTED[-1])
        finally:
            for name, module in before.items():
                sys.modules.pop(name, None)
                if module is not None:
                    sys.modules[name] = module
