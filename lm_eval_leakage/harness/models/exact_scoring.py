"""Which scorer gives a model's log-likelihoods exactly: each is compared with the model itself before it is used."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence

import numpy as np
import torch

from lm_eval_leakage.harness.models.processes import PATIENCE, on_all
from lm_eval_leakage.harness.models.ranked_hf import RankedHF
from lm_eval_leakage.scoring.budget import TokenBudget
from lm_eval_leakage.scoring.path_sums import ScoredText
from lm_eval_leakage.scoring.prefix_tree import Text
from lm_eval_leakage.scoring.scorers import Scorer, TreeScorer, reference
from lm_eval_leakage.scoring.shared_prefix import SharedPrefixScorer

logger = logging.getLogger(__name__)
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


class ScorerChoice:
    """The fastest scorer that is exact for a model, as far as its longest text so far has shown.

    scorer: None if only `hf` itself is exact
    verified: number of tokens of the longest text that was compared with `hf`
    """

    def __init__(self, lm: RankedHF, budget: TokenBudget) -> None:
        self.lm, self.budget = lm, budget
        self.scorer: Scorer | None = None
        self.verified = 0
        self._ways = list(WAYS)
        self._said_unsteady = False

    def suited(self, longest: Text) -> Scorer | None:
        """A scorer other than that of `hf` that is exact for texts up to `longest`; None if there is none."""
        if self.scorer is not None and len(longest.tokens) - 1 > self._steady_window:
            if not self._said_unsteady:
                logger.warning(
                    "hf-prefix-tree: this model's rotary embedding depends on the longest text of a batch, and some "
                    "texts are long enough for that to matter; scoring as `hf` does"
                )
            self._said_unsteady = True
            return None
        if self.scorer is not None and len(longest.tokens) > self.verified:
            # It could be the first text affected by a sliding window or a position rule of this model.
            self.settle([Text(longest.tokens, min(len(longest.tokens) - 1, PROBE_BUDGET))])
        return self.scorer

    def precision(self) -> torch.autocast:
        """The context of all forward passes: the model's mixed precision, if it has one."""
        dtype = self.lm.mixed_precision_dtype
        return torch.autocast(self.lm.device.type, dtype=dtype, enabled=dtype is not None)

    def probe_texts(self) -> list[Text]:
        """Texts to check scorers with: options in every order after a question, and a single last letter."""
        texts = []
        for stem, options in PROBE:
            for order in itertools.permutations(options):
                block = "\n".join(f"{letter}. {option}" for letter, option in zip("ABC", order, strict=True))
                window = min(self.lm.max_length, self._steady_window)
                tokens = np.array(self.lm.tok_encode(stem + block + "\nAnswer: A")[-(window + 1) :])
                n_scored = max(1, len(tokens) - len(self.lm.tok_encode(stem)))
                texts += [Text(tokens, n_scored), Text(tokens, 1)]
        return texts

    def settle(self, texts: Sequence[Text]) -> None:
        """Chooses the first remaining scorer that agrees with the model itself on `texts`; `hf` if none does."""
        reasons = []
        self.scorer = None
        budget = min(self.budget.max_tokens, max(PROBE_BUDGET, max(len(text.tokens) for text in texts) // 2))
        while self._ways and self.scorer is None:
            trouble = None
            try:
                scorer = self._ways[0](self.lm.model, self.lm.device, TokenBudget(budget, self.budget.agree))
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
            self.scorer = scorer
            self.verified = max(self.verified, *(len(text.tokens) for text in texts))
        name = type(self.lm.model).__name__
        if reasons:
            now = self.scorer.name if self.scorer else "stock `hf` scoring"
            logger.warning("hf-prefix-tree: %s: %s; using %s", name, "; ".join(reasons), now)
        elif self.scorer:
            logger.info("hf-prefix-tree: %s: %s agrees with `hf`", name, self.scorer.name)

    def _on_all(self, found: bool) -> bool:
        return on_all(found, PATIENCE) if self.lm.is_replica else found

    def _disagreement(self, scorer: Scorer, texts: Sequence[Text]) -> float:
        """Root mean square over `texts` of the difference from the model's own results, per square root of a token."""
        with self.precision():
            found: list[ScoredText] = sorted(scorer.answers(texts), key=lambda answer: answer.text)
            own = [reference(self.lm.model, self.lm.device, text) for text in texts]
        errors = [
            (answer.loglikelihood - loglikelihood) ** 2 / text.n_scored
            for answer, (loglikelihood, _), text in zip(found, own, texts, strict=True)
        ]
        error = math.sqrt(sum(errors) / len(errors))
        return math.inf if math.isnan(error) else error

    @property
    def _tolerance(self) -> float:
        dtype = self.lm.mixed_precision_dtype or self.lm.model.dtype
        return NOISE.get(dtype, NOISE[torch.bfloat16])

    @property
    def _steady_window(self) -> int:
        """Length up to which the model's rotary embedding does not depend on the longest text of the batch."""
        config = self.lm.config.get_text_config() if hasattr(self.lm.config, "get_text_config") else self.lm.config
        rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
        if rope.get("rope_type", rope.get("type")) not in ROPE_BY_LENGTH:
            return int(self.lm.max_length)
        windows = (
            rope.get("original_max_position_embeddings"),
            getattr(config, "original_max_position_embeddings", None),
            getattr(config, "max_position_embeddings", None),
        )
        return next((int(window) for window in windows if window), int(self.lm.max_length))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
