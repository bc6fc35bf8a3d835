"""`--model hf-prefix-tree`: the harness's `hf`, but shared prefixes of requests are computed only once."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tqdm import tqdm

from lm_eval_leakage.harness.models.exact_scoring import PROBE_BUDGET, ScorerChoice
from lm_eval_leakage.harness.models.processes import all_equal, are_replicas, least_of_all
from lm_eval_leakage.harness.models.tokenising import encoded_pairs
from lm_eval_leakage.harness.patches.hf_model import refuse_other_hf
from lm_eval_leakage.scoring.budget import TokenBudget, default_max_tokens
from lm_eval_leakage.scoring.prefix_tree import IntArray, Text

logger = logging.getLogger(__name__)
Pair = tuple[str, str]  # context, continuation


class PrefixTreeLM(HFLM):  # type: ignore[misc]
    """Takes all arguments of `hf`, and behaves like `hf` except for log-likelihoods.

    max_tokens: maximum number of tokens per forward pass, `auto` for what fits into free memory; lowered when memory
        runs out. Used instead of `batch_size`, which still applies to generation.
    softmax_dtype: float32 by default; that of `hf` is the model's dtype
    """

    def __init__(self, *args: Any, max_tokens: int | str = "auto", **kwargs: Any) -> None:
        refuse_other_hf()
        if max_tokens != "auto" and not (isinstance(max_tokens, int) and max_tokens >= PROBE_BUDGET):
            raise ValueError(
                f"max_tokens is {max_tokens!r}; give `auto`, or a whole number of at least {PROBE_BUDGET}"
            )
        if str(kwargs.get("batch_size") or 1) != "1":
            logger.warning(
                "batch_size=%s applies to generation only: log-likelihoods are packed up to max_tokens=%s",
                kwargs["batch_size"],
                max_tokens,
            )
        kwargs.setdefault("softmax_dtype", "float32")
        super().__init__(*args, **kwargs)
        if self.world_size > 1:
            self._rank = self.accelerator.process_index  # over all nodes; that of `hf` starts at 0 on each
        fitting = default_max_tokens(self.model, self.device) if isinstance(max_tokens, str) else max_tokens
        # Processes that hold parts of the model must compute the same pieces of the same texts.
        self.budget = TokenBudget(least_of_all(fitting), least_of_all) if self._shared() else TokenBudget(fitting)
        self.choice = ScorerChoice(self, self.budget)
        self._left_to_hf = False
        if self.backend == "causal":
            self.choice.settle(self.choice.probe_texts())
        else:
            logger.warning("hf-prefix-tree: an encoder-decoder model has no shared prefixes; scoring as `hf` does")

    def _shared(self) -> bool:
        """Whether other processes hold parts of this model."""
        return are_replicas(self)

    # ------------------------------------------------------------------ scoring

    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if self._shared() and not all_equal(_digest(request.args for request in requests)):
            raise ValueError(
                "the processes that hold this model were given different requests, which happens if each has its own "
                "response cache; run without --use_cache, or without tensor parallelism"
            )
        if self.backend == "causal" and not self.enable_thinking:
            pairs = [request.args for request in requests]
            texts = self._texts(pairs, encoded_pairs(self, pairs, disable_tqdm or self.rank != 0))
            if self.choice.suits(max(texts, key=lambda text: len(text.tokens), default=None)):
                return self._answers(texts, pairs, disable_tqdm)
        self._left_to_hf = True
        try:
            answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        finally:
            self._left_to_hf = False
        return answers

    def _loglikelihood_tokens(
        self,
        requests: Sequence[tuple[Pair | None, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        """Also called by rolling log-likelihoods, for their windows."""
        if self.backend == "causal" and not self._left_to_hf:
            pairs = [pair for pair, _, _ in requests]
            texts = self._texts(pairs, ((np.array(a), np.array(b)) for _, a, b in requests))
            if self.choice.suits(max(texts, key=lambda text: len(text.tokens), default=None)):
                return self._answers(texts, pairs, disable_tqdm)
        answers: list[tuple[float, bool]] = super()._loglikelihood_tokens(requests, disable_tqdm, override_bs)
        return answers

    def _answers(
        self, texts: Sequence[Text], pairs: Sequence[Pair | None], disable_tqdm: bool
    ) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool]] = [(math.nan, False)] * len(texts)
        if not texts:
            return answers
        scorer = self.choice.scorer
        assert scorer is not None, "without a suitable scorer, texts are scored by `hf`"
        quiet = disable_tqdm or self.rank != 0
        with (
            self.choice.precision(),
            tqdm(total=len(texts), disable=quiet, desc="Running loglikelihood requests") as bar,
        ):
            for answer in scorer.answers(texts):
                answers[answer.text] = (answer.loglikelihood, answer.greedy)
                pair = pairs[answer.text]
                if pair is not None:  # a window of a rolling log-likelihood, which is cached as a whole
                    self.cache_hook.add_partial("loglikelihood", pair, answers[answer.text])
                bar.update()
        return answers

    def _texts(self, pairs: Sequence[Pair | None], tokens: Iterable[tuple[IntArray, IntArray]]) -> list[Text]:
        """The requests as `hf` fits them into the model's window: truncated on the left."""
        texts, n_cut = [], 0
        for pair, (context, continuation) in zip(pairs, tokens, strict=True):
            if not 0 < len(continuation) <= self.max_length or not len(context):
                raise ValueError(
                    f"a request has {len(context)} tokens of context and {len(continuation)} of continuation "
                    f"({(pair or ('', ''))[1][:60]!r}); it needs at least one of each, and the continuation must "
                    f"fit into the model's window of {self.max_length}: raise max_length, or leave this request out"
                )
            whole = np.concatenate([context, continuation])
            n_cut += len(whole) > self.max_length + 1
            texts.append(Text(whole[-(self.max_length + 1) :], len(continuation)))
        if n_cut:
            logger.warning(
                "%d of %d texts are longer than the model's window of %d tokens, and truncated on the left as by `hf`",
                n_cut,
                len(texts),
                self.max_length,
            )
        return texts


def _digest(requests: Iterable[Pair]) -> str:
    digest = blake2b(digest_size=16)
    for context, continuation in requests:
        digest.update(f"{len(context)} {context}{continuation}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
