"""Scorer that computes the common prefix of texts once and keeps it in the model's own key-value cache."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.scoring.pieces import UnsuitedModelError
from lm_eval_leakage.scoring.prefix_tree import Text
from lm_eval_leakage.scoring.scorers import ScoredTexts, Scorer, TokenBudget, summed, tokens_of
from lm_eval_leakage.scoring.tree_model import vocabulary_size

LOGITS_OF_TAILS = 2**26  # values
CACHED_PER_TOKEN = 16  # tokens in the cache, of all rows together, for each token of a forward pass


class SharedPrefixScorer(Scorer):
    """Computes the common prefix of a run of texts once, keeps it in the model's own key-value cache, and scores the
    remainders as a batch. For models whose attention cannot be replaced."""

    name = "a shared-prefix cache"

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model = model
        self.device = device
        self.budget = budget
        known = inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters
        self._takes_positions = "position_ids" in known
        if "past_key_values" not in known:
            raise UnsuitedModelError("it has no key-value cache")

    @torch.inference_mode()
    def batches(self, texts: Sequence[Text]) -> Iterator[ScoredTexts]:
        for run in runs_with_shared_prefix(texts):
            n_prefix = shared_prefix_length([texts[index] for index in run])
            past = self._read_prefix(tokens_of(texts[run[0]], self.device)[:n_prefix]) if n_prefix else None
            while run:
                longest = max(len(texts[index].tokens) for index in run) - n_prefix
                fitting = min(self.budget.max_tokens, self._rows_at_once) // longest
                rows = max(1, min(fitting, CACHED_PER_TOKEN * self.budget.max_tokens // (n_prefix + longest)))
                try:
                    found = self._read_rests([texts[index] for index in run[:rows]], n_prefix, past)
                except RuntimeError as error:
                    if rows == 1:
                        raise
                    self.budget.lower(error)
                    continue
                totals, greedy = map(np.array, zip(*found, strict=True))
                yield ScoredTexts(np.array(run[:rows], np.int32), totals, greedy)
                run = run[rows:]

    @property
    def _rows_at_once(self) -> int:
        """How many rows of logits may be in memory at once; more than by `TreeScorer`, as layers are read so often."""
        return max(1, LOGITS_OF_TAILS // vocabulary_size(self.model))

    def _read_prefix(self, tokens: Tensor) -> Any:
        *_, (_, _, past) = self._read(tokens[None], torch.ones_like(tokens[None]), None, cached=True)
        if not hasattr(past, "batch_repeat_interleave"):
            raise UnsuitedModelError(f"its cache, {type(past).__name__}, cannot be shared by several texts")
        return past

    def _read_rests(self, texts: Sequence[Text], n_prefix: int, past: Any) -> list[tuple[float, bool]]:
        rests = [tokens_of(text, self.device)[n_prefix:] for text in texts]
        rows = torch.nn.utils.rnn.pad_sequence([rest[:-1] for rest in rests], batch_first=True)
        mask = torch.ones((len(texts), n_prefix + rows.shape[1]), dtype=torch.long, device=self.device)
        for row, rest in zip(mask, rests, strict=True):
            row[n_prefix + len(rest) - 1 :] = 0
        if past is not None:
            past = copy.deepcopy(past)
            past.batch_repeat_interleave(len(texts))
        sums, greedy = [0.0] * len(texts), [True] * len(texts)
        for first, logits, _ in self._read(rows, mask, past, cached=past is not None):
            for index, (text, rest, row) in enumerate(zip(texts, rests, logits, strict=True)):
                begin = max(len(rest) - text.n_scored - 1, first)  # the token before the first scored one predicts it
                wanted = rest[begin + 1 : first + len(row) + 1]
                some, likeliest = summed(row[begin - first :][: len(wanted)], wanted)
                sums[index] += some
                greedy[index] &= likeliest
        return list(zip(sums, greedy, strict=True))

    def _read(self, rows: Tensor, mask: Tensor, past: Any, cached: bool) -> Iterator[tuple[int, Tensor, Any]]:
        """Reads as many columns of `rows` at once as their logits fit into memory: the first column, logits, and the
        cache after them. `mask` includes the tokens in the cache."""
        n_past, n_columns = mask.shape[1] - rows.shape[1], rows.shape[1]
        step = max(1, self._rows_at_once // len(rows))
        for first in range(0, n_columns, step):
            some = rows[:, first : first + step]
            columns = torch.arange(n_past + first, n_past + first + some.shape[1], device=self.device)
            further = {"position_ids": columns[None].expand_as(some)} if self._takes_positions else {}
            output = self.model(
                input_ids=some,
                attention_mask=mask[:, : n_past + first + some.shape[1]],
                past_key_values=past,
                use_cache=cached or step < n_columns,
                **further,
            )
            past = output.past_key_values
            yield first, output.logits, past


def runs_with_shared_prefix(texts: Sequence[Text]) -> list[list[int]]:
    """Indices of the texts, sorted by tokens, in runs where each shares half of its tokens with the one before."""
    runs: list[list[int]] = []
    for index in sorted(range(len(texts)), key=lambda index: texts[index].tokens.tolist()):
        text = texts[index]
        if runs and 2 * shared_prefix_length([texts[runs[-1][-1]], text]) >= len(text.tokens):
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def shared_prefix_length(texts: Sequence[Text]) -> int:
    """Length of the common prefix of all texts that needs no logits; the token before the first scored one
    is the first that needs them."""
    rows = [text.tokens[: -text.n_scored - 1] for text in texts]
    shortest = min(map(len, rows))
    differs = np.flatnonzero((np.stack([row[:shortest] for row in rows]) != rows[0][:shortest]).any(axis=0))
    return int(differs[0]) if len(differs) else shortest
