"""`--model hf-prefix-tree`: the harness's `hf`, but shared prefixes of requests are computed only once."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from tqdm import tqdm

from lm_eval_leakage.harness.models.processes import PATIENCE, least_of_all, on_all
from lm_eval_leakage.harness.models.ranked_hf import RankedHF, together
from lm_eval_leakage.harness.models.tokenising import encoded_pairs
from lm_eval_leakage.harness.patches.hf_model import refuse_other_hf
from lm_eval_leakage.scoring.budget import TokenBudget, default_max_tokens
from lm_eval_leakage.scoring.prefix_tree import IntArray, ScoredText, Text
from lm_eval_leakage.scoring.scorers import Scorer, TreeScorer, reference
from lm_eval_leakage.scoring.shared_prefix import SharedPrefixScorer

logger = logging.getLogger(__name__)
Pair = tuple[str, str]  # context, continuation
WAYS: tuple[type[TreeScorer] | type[SharedPrefixScorer], ...] = (TreeScorer, SharedPrefixScorer)
PROBE_BUDGET = 48  # tokens: fewer than the check's texts have, so that it also tests carrying over between pieces
# Tolerated rounding difference between two ways to compute the same text, in nats per square root of a token. On the
# texts of the check, SmolLM2 has 5e-6, 0.015 and 0.12; attention that sees one sibling's tokens is off by 1.3 or more.
NOISE = {torch.float32: 1e-3, torch.float64: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.4}
PROBE = [
    (
        "Question: On which day does a week begin in most calendars of Europe?\n",
        ["Monday", "the first of May", "never"],
    ),
    ("Question: What does a baker put into the oven?\n", ["a loaf of bread", "Monday", "two letters"]),
]
ROPE_BY_LENGTH = ("dynamic", "longrope")


class PrefixTreeLM(RankedHF):
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
        fitting = default_max_tokens(self.model, self.device) if isinstance(max_tokens, str) else max_tokens
        # Processes that hold parts of the model must compute the same pieces of the same texts.
        self.budget = TokenBudget(fitting)
        if self.is_replica:
            self.budget = TokenBudget(least_of_all(fitting), partial(least_of_all, patience=PATIENCE))
        self._ways = list(WAYS)
        self._scorer: Scorer | None = None
        self._verified = 0  # tokens of the longest text that was compared with `hf`
        self._left_to_hf = False
        if self.backend == "causal":
            self._settle(self._probe_texts())
        else:
            logger.warning("hf-prefix-tree: an encoder-decoder model has no shared prefixes; scoring as `hf` does")

    # ------------------------------------------------------------------ scoring

    @together
    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if self.backend == "causal" and not self.enable_thinking:
            pairs = [request.args for request in requests]
            texts = self._texts(pairs, encoded_pairs(self, pairs, disable_tqdm or self.rank != 0))
            if self._suits(texts):
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
            if self._suits(texts):
                return self._answers(texts, pairs, disable_tqdm)
        answers: list[tuple[float, bool]] = super()._loglikelihood_tokens(requests, disable_tqdm, override_bs)
        return answers

    def _suits(self, texts: Sequence[Text]) -> bool:
        """Whether a scorer other than that of `hf` is exact for these texts."""
        longest = max(texts, key=lambda text: len(text.tokens), default=None)
        if longest is None or self._scorer is None:
            return longest is None
        if len(longest.tokens) - 1 > self._steady_window:
            logger.warning(
                "hf-prefix-tree: this model's rotary embedding depends on the longest text of a batch, and some "
                "texts are long enough for that to matter; scoring as `hf` does"
            )
            return False
        if len(longest.tokens) > self._verified:
            # It could be the first text affected by a sliding window or a position rule of this model.
            self._settle([Text(longest.tokens, min(len(longest.tokens) - 1, PROBE_BUDGET))])
        return self._scorer is not None

    def _answers(
        self, texts: Sequence[Text], pairs: Sequence[Pair | None], disable_tqdm: bool
    ) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool]] = [(math.nan, False)] * len(texts)
        if not texts:
            return answers
        assert self._scorer is not None, "without a suitable scorer, texts are scored by `hf`"
        quiet = disable_tqdm or self.rank != 0
        with self._precision(), tqdm(total=len(texts), disable=quiet, desc="Running loglikelihood requests") as bar:
            for answer in self._scorer.answers(texts):
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

    def _precision(self) -> torch.autocast:
        dtype = self.mixed_precision_dtype
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)

    # ------------------------------------------------------------------ is it exact?

    def _probe_texts(self) -> list[Text]:
        """Texts to check scorers with: options in every order after a question, and a single last letter."""
        texts = []
        for stem, options in PROBE:
            for order in itertools.permutations(options):
                block = "\n".join(f"{letter}. {option}" for letter, option in zip("ABC", order, strict=True))
                window = min(self.max_length, self._steady_window)
                tokens = np.array(self.tok_encode(stem + block + "\nAnswer: A")[-(window + 1) :])
                n_scored = max(1, len(tokens) - len(self.tok_encode(stem)))
                texts += [Text(tokens, n_scored), Text(tokens, 1)]
        return texts

    def _settle(self, texts: Sequence[Text]) -> None:
        """Chooses the first remaining scorer that agrees with the model itself on `texts`; `hf` if none does."""
        reasons = []
        self._scorer = None
        budget = min(self.budget.max_tokens, max(PROBE_BUDGET, max(len(text.tokens) for text in texts) // 4))
        while self._ways and self._scorer is None:
            trouble = None
            try:
                scorer = self._ways[0](self.model, self.device, TokenBudget(budget, self.budget.agree))
                error = self._disagreement(scorer, texts)
                if error > self._tolerance:
                    allowed = f"more than the tolerance of {self._tolerance:.2g}"
                    trouble = f"is off by {error:.2g} nats per token, {allowed}"
            except Exception as problem:  # the model's own code may raise anything
                trouble = f"does not suit it ({_first_line(problem)})"
            if not self._on_all(trouble is None):
                reasons.append(f"{self._ways.pop(0).name} {trouble or 'does not suit another process of the run'}")
                continue
            scorer.budget = self.budget
            self._scorer = scorer
            self._verified = max(self._verified, *(len(text.tokens) for text in texts))
        name = type(self.model).__name__
        if reasons:
            now = self._scorer.name if self._scorer else "stock `hf` scoring"
            logger.warning("hf-prefix-tree: %s: %s; using %s", name, "; ".join(reasons), now)
        elif self._scorer:
            logger.info("hf-prefix-tree: %s: %s agrees with `hf`", name, self._scorer.name)

    def _on_all(self, found: bool) -> bool:
        return on_all(found, PATIENCE) if self.is_replica else found

    def _disagreement(self, scorer: Scorer, texts: Sequence[Text]) -> float:
        """Root mean square over `texts` of the difference from the model's own results, per square root of a token."""
        with self._precision():
            found: list[ScoredText] = sorted(scorer.answers(texts), key=lambda answer: answer.text)
            own = [reference(self.model, self.device, text) for text in texts]
        errors = [
            (answer.loglikelihood - loglikelihood) ** 2 / text.n_scored
            for answer, (loglikelihood, _), text in zip(found, own, texts, strict=True)
        ]
        error = math.sqrt(sum(errors) / len(errors))
        return math.inf if math.isnan(error) else error

    @property
    def _tolerance(self) -> float:
        dtype = self.mixed_precision_dtype or self.model.dtype
        return NOISE.get(dtype, NOISE[torch.bfloat16])

    @property
    def _steady_window(self) -> int:
        """Length up to which the model's rotary embedding does not depend on the longest text of the batch."""
        config = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        if rope.get("rope_type", rope.get("type")) not in ROPE_BY_LENGTH:
            return int(self.max_length)
        windows = (
            rope.get("original_max_position_embeddings"),
            getattr(config, "original_max_position_embeddings", None),
            getattr(config, "max_position_embeddings", None),
        )
        return next((int(window) for window in windows if window), int(self.max_length))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
