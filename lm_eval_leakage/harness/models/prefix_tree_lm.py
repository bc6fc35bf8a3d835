"""Uses tree attention where it gives a model's log-likelihoods exactly: it is compared with the model before it is
used.

`--model hf-prefix-tree`: the harness's `hf`, but shared prefixes of requests are computed only once.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from tqdm import tqdm

from lm_eval_leakage.harness.models.processes import of_every
from lm_eval_leakage.harness.models.ranked_hf import RankedHF, in_step
from lm_eval_leakage.harness.models.token_scores import precision_of
from lm_eval_leakage.harness.models.tokenising import FittedTexts, PairEncoder, in_portions, one_ahead
from lm_eval_leakage.scoring.positions import most_rows, steady_window
from lm_eval_leakage.scoring.prefix_tree import Text, Texts
from lm_eval_leakage.scoring.scorers import (
    TokenBudget,
    TreeScorer,
    default_max_tokens,
    disagreement,
    keep_freed_memory,
    plain_score,
    slows_down,
)
from lm_eval_leakage.texts import in_one_sentence

logger = logging.getLogger(__name__)
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


def probe_texts(encode: Callable[[str], list[int]], longest: int) -> list[Text]:
    """Options in every order after a question, and a single last letter, in at most `longest` tokens."""
    texts = []
    for stem, options in PROBE:
        for order in itertools.permutations(options):
            block = "\n".join(f"{letter}. {option}" for letter, option in zip("ABC", order, strict=True))
            tokens = np.array(encode(f"{stem}{block}\nAnswer: A")[-longest:])
            texts += [Text(tokens, max(1, len(tokens) - len(encode(stem)))), Text(tokens, 1)]
    return texts


class ScorerChoice:
    """Tree attention where it is exact for a model, as far as its longest text so far has shown; else `hf`.

    scorer: None if only `hf` itself is exact
    verified: number of tokens of the longest text that was compared with `hf`
    """

    def __init__(self, lm: RankedHF, budget: TokenBudget) -> None:
        self.lm, self.budget = lm, budget
        self.scorer: TreeScorer | None = None
        self.verified = 0
        self._said_unsteady = False

    def suited(self, longest: Text) -> TreeScorer | None:
        """Return tree attention if it is exact for texts up to `longest`; None if only `hf` is."""
        if self.scorer is not None and len(longest.tokens) - 1 > self.steady_window:
            if not self._said_unsteady:
                logger.warning(
                    "hf-prefix-tree: a text of more than %d tokens changes how this model reads shorter texts beside "
                    "it (a rotary embedding or a scale that depends on length); texts that are computed together "
                    "with one are scored as `hf` does",
                    self.steady_window,
                )
            self._said_unsteady = True
            return None
        if self.scorer is not None and len(longest.tokens) > self.verified:
            # It could be the first text affected by a sliding window or a position rule of this model.
            self.settle([Text(longest.tokens, min(len(longest.tokens) - 1, PROBE_BUDGET))])
        return self.scorer

    def settle(self, texts: Sequence[Text]) -> None:
        """Use tree attention if it agrees with the model itself on `texts`; else `hf` scores from here on."""
        self.scorer = None
        tolerance = NOISE.get(self.lm.mixed_precision_dtype or self.lm.model.dtype, NOISE[torch.bfloat16])
        budget = min(self.budget.max_tokens, max(PROBE_BUDGET, max(len(text.tokens) for text in texts) // 2))
        trouble = ""
        try:
            scorer = TreeScorer(self.lm.model, self.lm.device, TokenBudget(budget, self.budget.agree))
            with precision_of(self.lm):
                expected = [plain_score(self.lm.model, self.lm.device, text)[0] for text in texts]
                error = disagreement(scorer.answers(texts), expected, texts)
            if error > tolerance:
                trouble = f"is off by {error:.2g} nats per token, more than the tolerance of {tolerance:.2g}"
        except Exception as problem:  # the model's own code may raise anything
            trouble = f"does not suit it ({in_one_sentence(problem)})"
        name = type(self.lm.model).__name__
        if not all(of_every(not trouble, in_step=True) if self.lm.is_replica else [not trouble]):
            reason = trouble or "does not suit another process of the run"
            logger.warning("hf-prefix-tree: %s: tree attention %s; using stock `hf` scoring", name, reason)
            return
        scorer.budget = self.budget
        self.scorer = scorer
        self.verified = max(self.verified, *(len(text.tokens) for text in texts))
        logger.info("hf-prefix-tree: %s: tree attention agrees with `hf`", name)

    @cached_property
    def steady_window(self) -> int:
        """Return the length up to which no text changes how a shorter one beside it is read."""
        return steady_window(self.lm.model, self.lm.device, int(self.lm.max_length))


class PrefixTreeLM(RankedHF):
    """Takes all arguments of `hf`, and behaves like `hf` except for log-likelihoods of continuations.

    max_tokens: maximum number of tokens per forward pass, `auto` for what fits into free memory; lowered when memory
        runs out. Used instead of `batch_size`, which still applies to generation and rolling log-likelihoods.
    softmax_dtype: float32 by default; that of `hf` is the model's dtype
    """

    def __init__(self, *args: Any, max_tokens: int | str = "auto", **kwargs: Any) -> None:
        if max_tokens != "auto" and not (isinstance(max_tokens, int) and max_tokens >= PROBE_BUDGET):
            raise ValueError(
                f"max_tokens is {max_tokens!r}; give `auto`, or a whole number of at least {PROBE_BUDGET}"
            )
        if str(kwargs.get("batch_size") or 1) != "1":
            logger.warning(
                "batch_size=%s applies to generation and rolling log-likelihoods only: others are packed up to "
                "max_tokens=%s",
                kwargs["batch_size"],
                max_tokens,
            )
        kwargs.setdefault("softmax_dtype", "float32")
        super().__init__(*args, **kwargs)
        if slows_down(getattr(self.model, "dtype", None), self.device):
            logger.warning("this processor is several times slower in bfloat16 than in float32; give dtype=float32")
        fitting = default_max_tokens(self.model, self.device) if isinstance(max_tokens, str) else max_tokens
        fitting = most_rows(self.model, fitting)
        # Processes that hold parts of the model must compute the same pieces of the same texts.
        self.budget = TokenBudget(fitting)
        if self.is_replica:
            self.budget = TokenBudget(min(of_every(fitting)), lambda fits: min(of_every(fits, in_step=True)))
        self.choice = ScorerChoice(self, self.budget)
        if self.backend == "causal":
            if self.device.type == "cpu":
                keep_freed_memory()
            self.choice.settle(probe_texts(self.tok_encode, min(self.max_length, self.choice.steady_window) + 1))
        else:
            logger.warning("hf-prefix-tree: an encoder-decoder model has no shared prefixes; scoring as `hf` does")

    def computed_together(self, requests: Sequence[Instance]) -> list[slice]:
        """Requests whose values depend on each other by rounding, if this process has the model for itself."""
        return in_portions(len(requests))

    # ------------------------------------------------------------------ scoring

    @in_step
    def loglikelihood(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        answers: list[tuple[float, bool] | None] = [None] * len(requests)
        if self.choice.scorer is not None and not self.enable_thinking:
            self._score(answers, requests, disable_tqdm)
        left = [request for request, answer in zip(requests, answers, strict=True) if answer is None]
        rest = iter(super().loglikelihood(left, disable_tqdm=disable_tqdm) if left else ())
        return [next(rest) if answer is None else answer for answer in answers]

    def _score(
        self, answers: list[tuple[float, bool] | None], requests: Sequence[Instance], disable_tqdm: bool
    ) -> None:
        """Fills in the answers of all requests for which tree attention is exact."""
        portions = self.computed_together(requests)
        fitted, encoder = FittedTexts(self.max_length), PairEncoder(self, len(requests))

        def texts_of(some: slice) -> Texts:
            pairs = [request.args for request in requests[some]]
            return fitted.texts(pairs, encoder.batch(pairs))

        quiet = disable_tqdm or self.rank != 0
        with tqdm(total=len(answers), disable=quiet, desc="Running loglikelihood requests") as bar:
            for some, texts in zip(portions, one_ahead(texts_of, portions), strict=True):
                scorer = self.choice.suited(texts[int(texts.lengths.argmax())])
                if scorer is None:
                    continue
                with precision_of(self):
                    for batch in scorer.batches(texts):
                        for place, loglikelihood, greedy in batch:
                            number = some.start + place
                            answers[number] = answer = loglikelihood, greedy
                            self.cache_hook.add_partial("loglikelihood", requests[number].args, answer)
                        bar.update(len(batch))
        fitted.warn_if_cut()
