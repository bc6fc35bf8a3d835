"""Ways to score texts that share prefixes, exact for the models that they suit; each answers as it goes along."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lm_eval_leakage.scoring.budget import TokenBudget
from lm_eval_leakage.scoring.prefix_tree import Answer, PathSums, PrefixTree, Text, prefix_tree
from lm_eval_leakage.scoring.tree_attention import Carried, Piece, UnsuitedModelError
from lm_eval_leakage.scoring.tree_model import TreeModel, logprobs_and_greedy

LOGITS_AT_ONCE = 2**26


class Scorer(Protocol):
    """Scores texts in any order; `name` is for messages."""

    name: str
    budget: TokenBudget

    def answers(self, texts: Sequence[Text]) -> Iterator[Answer]: ...


class TreeScorer:
    """Every prefix is computed once, by tree attention."""

    name = "tree attention"

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model = TreeModel(model)
        self.device = device
        self.budget = budget

    def answers(self, texts: Sequence[Text]) -> Iterator[Answer]:
        tree = prefix_tree(texts)
        sums, carried, first, n_nodes = PathSums(tree), Carried(), 0, len(tree.node_tokens)
        while first < n_nodes:
            try:
                carried, first = self._advance(tree, sums, carried, first)
            except RuntimeError as error:
                self.budget.lower(error)
                continue
            yield from sums.answers(first)

    def _advance(self, tree: PrefixTree, sums: PathSums, carried: Carried, first: int) -> tuple[Carried, int]:
        piece = Piece(tree, first, min(first + self.budget.max_tokens, len(tree.node_tokens)), carried)
        targets, logprobs, greedy = self.model.score(piece, self.device)
        sums.logprobs[targets], sums.greedy[targets] = logprobs, greedy
        return piece.passed_on, piece.stop


class SharedPrefixScorer:
    """What a run of texts shares at its beginning is computed once and kept in the model's own cache of keys and
    values; the rests are rows of a batch. For models whose attention cannot be exchanged."""

    name = "a shared-prefix cache"

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model = model
        self.device = device
        self.budget = budget
        known = inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters
        self._takes_positions = "position_ids" in known
        if "past_key_values" not in known:
            raise UnsuitedModelError("it keeps no cache of keys and values")

    @torch.inference_mode()
    def answers(self, texts: Sequence[Text]) -> Iterator[Answer]:
        for run in runs_with_shared_prefix(texts):
            n_prefix = shared_prefix_length([texts[index] for index in run])
            past = self._read_prefix(texts[run[0]].tokens[:n_prefix]) if n_prefix else None
            while run:
                longest = max(len(texts[index].tokens) for index in run) - n_prefix
                rows = max(1, min(self.budget.max_tokens, self._logits_rows) // longest)
                try:
                    found = self._read_rests([texts[index] for index in run[:rows]], n_prefix, past)
                except RuntimeError as error:
                    if rows == 1:
                        raise
                    self.budget.lower(error)
                    continue
                yield from (Answer(index, *answer) for index, answer in zip(run[:rows], found, strict=True))
                run = run[rows:]

    @property
    def _logits_rows(self) -> int:
        return max(1, LOGITS_AT_ONCE // int(self.model.get_output_embeddings().weight.shape[0]))

    def _read_prefix(self, tokens: Sequence[int]) -> Any:
        row = torch.tensor([tokens], device=self.device)
        past = self.model(input_ids=row, use_cache=True).past_key_values
        if not hasattr(past, "batch_repeat_interleave"):
            raise UnsuitedModelError(f"its cache, {type(past).__name__}, cannot be shared by several texts")
        return past

    def _read_rests(self, texts: Sequence[Text], n_prefix: int, past: Any) -> list[tuple[float, bool]]:
        rests = [torch.tensor(text.tokens[n_prefix:-1]) for text in texts]
        rows = torch.nn.utils.rnn.pad_sequence(rests, batch_first=True).to(self.device)
        mask = torch.ones((len(texts), n_prefix + rows.shape[1]), dtype=torch.long, device=self.device)
        for row, rest in zip(mask, rests, strict=True):
            row[n_prefix + len(rest) :] = 0
        further: dict[str, Any] = {}
        if self._takes_positions:
            further["position_ids"] = torch.arange(n_prefix, mask.shape[1], device=self.device)[None].expand_as(rows)
        if past is not None:
            further["past_key_values"] = copy.deepcopy(past)
            further["past_key_values"].batch_repeat_interleave(len(texts))
        logits = self.model(input_ids=rows, attention_mask=mask, use_cache=past is not None, **further).logits
        return [
            _summed(row[: len(rest)], text) for row, rest, text in zip(logits, rests, texts, strict=True)
        ]


def reference(model: Any, device: torch.device, text: Text) -> tuple[float, bool]:
    """The model's own answer on one text, as a row of its own: what every other way has to agree with."""
    with torch.inference_mode():
        logits = model(torch.tensor([text.tokens[:-1]], device=device)).logits[0]
    return _summed(logits, text)


def _summed(logits: Tensor, text: Text) -> tuple[float, bool]:
    """Sum over the scored tokens of a row of logits, and whether each is the likeliest."""
    asked = logits[-text.n_scored :]
    tokens = torch.tensor(text.tokens[-text.n_scored :], device=logits.device)
    logprobs, greedy = logprobs_and_greedy(asked, torch.arange(len(asked), device=logits.device), tokens)
    return float(logprobs.double().sum()), bool(greedy.all())


def runs_with_shared_prefix(texts: Sequence[Text]) -> list[list[int]]:
    """Texts in the order of their tokens, in runs in which each shares half of its tokens with the one before it."""
    order = sorted(range(len(texts)), key=lambda index: list(texts[index].tokens))
    runs: list[list[int]] = []
    for index in order:
        together = runs and 2 * shared_prefix_length([texts[runs[-1][-1]], texts[index]]) >= len(texts[index].tokens)
        if together:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


def shared_prefix_length(texts: Sequence[Text]) -> int:
    """Tokens that all texts begin with, and that need no logits: the token before the first scored one does."""
    first, last = (np.asarray(tokens) for tokens in (min(list(t.tokens) for t in texts), max(list(t.tokens) for t in texts)))
    shorter = min(len(first), len(last))
    differs = np.flatnonzero(first[:shorter] != last[:shorter])
    shared = int(differs[0]) if len(differs) else shorter
    return min(shared, *(len(text.tokens) - text.n_scored - 1 for text in texts))
