"""Gets from a vLLM engine the log-probabilities of a prompt's tokens, with its prefix cache and without.

vLLM reads no cached block for a request that asks for log-probabilities of its prompt, unless set otherwise
(`skip_reading_prefix_cache`). A prompt of n tokens of which c were cached has log-probabilities
from token c + 1 on (counted from 0): token c needs the output at the cached token before it. One of vLLM's model
runners returns a list of n entries, of which those of cached tokens hold whatever was in memory, another one of n - c
entries; so lists are read from their end.

`--model vllm-prefix-tree`: the harness's `vllm`, but blocks of tokens shared by requests are computed only once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.vllm_causallms import VLLM
from tqdm import tqdm
from vllm import SamplingParams, TokensPrompt  # type: ignore[import-not-found,unused-ignore]

from lm_eval_leakage.harness.models.prefix_tree_lm import NOISE, probe_texts
from lm_eval_leakage.harness.models.tokenising import AS_VLLM, FittedTexts, encoded_pairs
from lm_eval_leakage.scoring.engine import EngineAnswer, EngineScorer
from lm_eval_leakage.scoring.prefix_tree import IntArray, Text, Texts
from lm_eval_leakage.texts import in_one_sentence

logger = logging.getLogger(__name__)
USUAL_BLOCK, LARGE_BLOCK = 16, 64  # tokens; vLLM's default on GPUs, and one that a question often fits into
COUNTER = "vllm:num_preemptions"


class VllmEngine:
    """Scores texts with a vLLM engine.

    llm: vllm.LLM, whose statistics are logged (`disable_log_stats=False`); lora_request: sent with each request.
    """

    no_counts: ClassVar[str] = (
        "this engine does not count the requests that it interrupts (disable_log_stats must be False)"
    )
    no_cache: ClassVar[str] = "this engine has no prefix cache (enable_prefix_caching=False, or a recurrent model)"

    def __init__(self, llm: Any, lora_request: Any) -> None:
        self.llm, self.lora_request = llm, lora_request

    def scores(self, texts: Sequence[IntArray], salt: str | None) -> list[EngineAnswer]:
        """Return the log-probabilities of each text's tokens.

        salt: only blocks of requests with the same salt are taken from the cache; None computes every text whole
        """
        parameters = _parameters(prompt_logprobs=1, skip_reading_prefix_cache=salt is None)
        outputs = self._generate([_prompt(text, salt) for text in texts], parameters)
        return [returned(text, output) for text, output in zip(texts, outputs, strict=True)]

    def last_tokens(self, texts: Sequence[IntArray], salt: str) -> list[tuple[float, bool]]:
        """Return the log-probability of each text's last token, and whether it is the most likely one. The token is
        generated, so that the cache holds everything before it."""
        parameters = [_parameters(logprobs=1, allowed_token_ids=[int(text[-1])]) for text in texts]
        outputs = self._generate([_prompt(text[:-1], salt) for text in texts], parameters)
        entries = [output.outputs[0].logprobs[0] for output in outputs]
        logprobs = [entry[int(text[-1])].logprob for text, entry in zip(texts, entries, strict=True)]
        most = [max(token.logprob for token in entry.values()) for entry in entries]
        return [(logprob, logprob >= likeliest) for logprob, likeliest in zip(logprobs, most, strict=True)]

    def n_preemptions(self) -> float | None:
        """Return how often this engine has interrupted a request so far; None if it does not count them."""
        try:
            counts = [metric.value for metric in self.llm.get_metrics() if metric.name == COUNTER]
        except Exception:  # statistics are off, or of another form
            return None
        return float(sum(counts)) if counts else None

    def _generate(self, prompts: list[Any], parameters: Any) -> list[Any]:
        if not prompts:
            return []
        outputs: list[Any] = self.llm.generate(
            prompts, sampling_params=parameters, use_tqdm=False, lora_request=self.lora_request
        )
        return outputs


def _parameters(**parameters: Any) -> Any:
    # flat lists are much less work for vLLM
    return SamplingParams(temperature=0, max_tokens=1, detokenize=False, flat_logprobs=True, **parameters)


def _prompt(tokens: IntArray, salt: str | None) -> Any:
    salted = {} if salt is None else {"cache_salt": salt}
    return TokensPrompt(prompt_token_ids=tokens.tolist(), **salted)


def returned(tokens: IntArray, output: Any) -> EngineAnswer:
    """Return what a vllm.RequestOutput says about the tokens of its prompt."""
    entries, n = output.prompt_logprobs, len(tokens)
    # after an interruption, more may have been cached than it says
    n_cached = max(output.num_cached_tokens, n - len(entries))
    n_computed = n - 1 - n_cached
    last = slice(len(entries.logprobs) - 2 * n_computed, None)  # the prompt's token and the most likely one of each
    rows = np.array(entries.logprobs[last], np.float64).reshape(-1, 2)
    rows[np.array(entries.token_ids[last][::2]) != tokens[n - n_computed :]] = np.nan  # is of another token
    return EngineAnswer(n_cached, rows[:, 0], rows[:, 0] >= rows[:, 1])


class VLLMPrefixTreeLM(VLLM):  # type: ignore[misc]
    """Takes all arguments of `vllm`, and behaves like `vllm` except for log-likelihoods of continuations. `batch_size`
    applies to what else there is: vLLM packs log-likelihoods by max_num_batched_tokens and max_num_seqs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("disable_log_stats", False)  # they count preempted requests
        super().__init__(*args, **kwargs)
        self._scorer: EngineScorer | None = None
        if self.data_parallel_size > 1:
            why_not = (
                f"data_parallel_size={self.data_parallel_size} starts new engines for every call, which share "
                "nothing; use tensor_parallel_size, or a process for each part of the questions (--samples)"
            )
        else:
            engine = VllmEngine(self.model, self.lora_request)
            why_not = self._why_not(engine)
            self._scorer = None if why_not else EngineScorer(engine)
            if self._scorer and self._block_size > LARGE_BLOCK:
                logger.warning(
                    "vllm-prefix-tree: this engine shares whole blocks of %d tokens only; a smaller block_size among "
                    "the model's arguments (32 on CPUs, 16 on most GPUs) shares more",
                    self._block_size,
                )
        if why_not:
            logger.warning("vllm-prefix-tree: %s; scoring as `vllm` does", why_not)

    @property
    def reports_as_it_goes(self) -> bool:
        """Return whether answers are reported before a call returns."""
        return self._scorer is not None

    # ------------------------------------------------------------------ scoring

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        # tokenizers of another kind (Mistral's own) take other arguments
        if self._scorer is None or self.enable_thinking or not hasattr(self.tokenizer, "name_or_path"):
            answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
            return answers
        pairs = [request.args for request in requests]
        tokens = encoded_pairs(self, pairs, disable_tqdm)
        encoded = {number: pair for number, pair in enumerate(tokens) if len(pair[1])}
        fitted = FittedTexts(self.max_length, *AS_VLLM)
        texts = fitted.texts([pairs[number] for number in encoded], Texts.of_pairs(encoded.values()))
        fitted.warn_if_cut()
        answers = [(0.0, True)] * len(pairs)  # as `vllm` answers a continuation without tokens
        indices = [*encoded]
        with tqdm(total=len(texts), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            for text, loglikelihood, greedy in self._scorer.answers(texts):
                index = indices[text]
                answers[index] = loglikelihood, greedy
                self.cache_hook.add_partial("loglikelihood", pairs[index], answers[index])
                bar.update()
        return answers

    # ------------------------------------------------------------------ is it exact?

    def _why_not(self, engine: VllmEngine) -> str:
        """Return why the engine cannot score by its prefix cache, as the beginning of a sentence; empty if it can."""
        tolerance = NOISE.get(self.model.llm_engine.model_config.dtype, NOISE[torch.bfloat16])
        try:
            return EngineScorer(engine).why_not_exact(self._probe_texts(), tolerance)
        except Exception as problem:  # an engine may refuse what it has not implemented
            return f"this engine refuses the requests ({in_one_sentence(problem)})"

    @property
    def _block_size(self) -> int:
        """Tokens that the engine's cache holds or misses together."""
        return getattr(self.model.llm_engine.vllm_config.cache_config, "block_size", None) or USUAL_BLOCK

    def _probe_texts(self) -> list[Text]:
        """Options in every order after a question, a single last letter, two texts that part where a block ends."""
        longest = self.max_length - 1
        texts = probe_texts(self.tok_encode, longest)
        block = self._block_size
        long = np.resize(texts[0].tokens, min(block + 8, longest))
        parts = np.concatenate([long[:block], long[block:][::-1]])
        return [*texts, Text(long, len(long) - 1), Text(parts, len(long) - 1)]
