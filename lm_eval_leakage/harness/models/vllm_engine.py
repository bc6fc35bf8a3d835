"""Asks a vLLM engine for the log-probabilities of a prompt's tokens, with its prefix cache and without.

vLLM reads no cached block for a request that asks for log-probabilities of its prompt, unless told otherwise
(`skip_reading_prefix_cache`, vLLM 0.11.1 and later). A prompt of n tokens of which c were cached has log-probabilities
from token c + 1 on (counted from 0): token c needs the output at the cached token before it. One of vLLM's model
runners returns a list of n entries, of which those of cached tokens hold whatever was in memory, another one of n - c
entries; so lists are read from their end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from vllm import SamplingParams, TokensPrompt  # type: ignore[import-not-found,unused-ignore]

from lm_eval_leakage.scoring.engine_cache import Returned
from lm_eval_leakage.scoring.prefix_tree import IntArray

READS_CACHE = "skip_reading_prefix_cache"
COUNTER = "vllm:num_preemptions"
PromptEntry = Mapping[int, Any]  # at one position: the prompt's token and the most likely one


def reads_cache() -> bool:
    """Whether this vLLM can use its prefix cache for log-probabilities of a prompt."""
    return hasattr(SamplingParams, READS_CACHE)


class VllmEngine:
    """llm: vllm.LLM, whose statistics are logged (`disable_log_stats=False`); lora_request: sent with each request."""

    def __init__(self, llm: Any, lora_request: Any) -> None:
        self.llm, self.lora_request = llm, lora_request

    def scores(self, texts: Sequence[IntArray], salt: str | None) -> list[Returned]:
        """Log-probabilities of each text's tokens.

        salt: only blocks of requests with the same salt are taken from the cache; None computes every text whole
        """
        asked = _parameters(prompt_logprobs=1, **{READS_CACHE: salt is None})
        outputs = self._generate([_prompt(text, salt) for text in texts], asked)
        return [returned(text, output) for text, output in zip(texts, outputs, strict=True)]

    def last_tokens(self, texts: Sequence[IntArray], salt: str) -> list[tuple[float, bool]]:
        """Log-probability of each text's last token, and whether it is the most likely one. The token is generated, so
        that the cache holds everything before it."""
        asked = [_parameters(logprobs=1, allowed_token_ids=[int(text[-1])]) for text in texts]
        outputs = self._generate([_prompt(text[:-1], salt) for text in texts], asked)
        return [
            score(output.outputs[0].logprobs[0], int(text[-1])) for text, output in zip(texts, outputs, strict=True)
        ]

    def n_preemptions(self) -> float | None:
        """How often this engine has interrupted a request so far; None if it does not count them."""
        try:
            found = [metric.value for metric in self.llm.get_metrics() if metric.name == COUNTER]
        except Exception:  # statistics are off, or of another form
            return None
        return float(sum(found)) if found else None

    def _generate(self, prompts: list[Any], parameters: Any) -> list[Any]:
        if not prompts:
            return []
        outputs: list[Any] = self.llm.generate(
            prompts, sampling_params=parameters, use_tqdm=False, lora_request=self.lora_request
        )
        return outputs


def _parameters(**asked: Any) -> Any:
    flat = {"flat_logprobs": True} if hasattr(SamplingParams, "flat_logprobs") else {}  # much less work for vLLM
    return SamplingParams(temperature=0, max_tokens=1, detokenize=False, **flat, **asked)


def _prompt(tokens: IntArray, salt: str | None) -> Any:
    salted = {} if salt is None else {"cache_salt": salt}
    return TokensPrompt(prompt_token_ids=tokens.tolist(), **salted)


def returned(tokens: IntArray, output: Any) -> Returned:
    """What a vllm.RequestOutput says about the tokens of its prompt."""
    entries, n = output.prompt_logprobs or [None], len(tokens)
    n_cached = n - 1 if output.num_cached_tokens is None else output.num_cached_tokens
    n_cached = max(n_cached, n - len(entries))  # after an interruption, more may have been cached than it says
    n_computed = n - 1 - n_cached
    rows = np.full((n_computed, 2), np.nan)
    if n_computed:
        rows = _rows(tokens[-n_computed:], entries)
    return Returned(n_cached, rows[:, 0], rows[:, 0] >= rows[:, 1])


def _rows(tokens: IntArray, entries: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Log-probabilities of the tokens and of the most likely ones, `(n_tokens, 2)`, from the last entries; NaN for an
    entry that does not hold its token."""
    flat = getattr(entries, "token_ids", None)
    n = 2 * len(tokens)
    if flat is not None and len(flat) == 2 * (len(entries) - 1):  # two tokens per entry, but none for the first
        rows = np.array(entries.logprobs[-n:], np.float64).reshape(-1, 2)
        rows[np.array(flat[-n::2]) != tokens] = np.nan
        return rows
    pairs = [_score(entry, token) for entry, token in zip(entries[-len(tokens) :], tokens.tolist(), strict=True)]
    return np.array(pairs, np.float64)


def score(entry: PromptEntry, token: int) -> tuple[float, bool]:
    """Log-probability of a token, NaN if the entry does not hold it, and whether none is more likely."""
    logprob, most = _score(entry, token)
    return logprob, logprob >= most


def _score(entry: PromptEntry | None, token: int) -> tuple[float, float]:
    if entry is None or token not in entry:
        return np.nan, np.nan
    return entry[token].logprob, max(one.logprob for one in entry.values())
