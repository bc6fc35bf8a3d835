"""Scorers: log-likelihoods of many texts, yielded as they are computed; here, the one by tree attention."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from lm_eval_leakage.scoring.budget import TokenBudget
from lm_eval_leakage.scoring.path_sums import PathSums, ScoredText, ScoredTexts
from lm_eval_leakage.scoring.pieces import Carried, Piece, index_tensor
from lm_eval_leakage.scoring.prefix_tree import PrefixTree, Text, Texts, prefix_tree
from lm_eval_leakage.scoring.tree_model import TreeModel, logprobs_and_greedy
from lm_eval_leakage.scoring.two_parts import rows_at_once


class Scorer(Protocol):
    """Scores texts and yields results in any order, those that are known at the same time together; `name` is for
    messages."""

    name: str
    budget: TokenBudget

    def batches(self, texts: Sequence[Text]) -> Iterator[ScoredTexts]: ...

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]: ...


class TextsOfTree(Texts):
    """Texts whose tree is built in advance."""

    def __init__(self, texts: Texts) -> None:
        super().__init__(texts.flat, texts.lengths, texts.n_scored)
        self.tree = prefix_tree(self)


class TreeScorer:
    """Computes every shared prefix once, by tree attention."""

    name = "tree attention"

    def __init__(self, model: Any, device: torch.device, budget: TokenBudget) -> None:
        self.model = TreeModel(model)
        self.device = device
        self.budget = budget

    def answers(self, texts: Sequence[Text]) -> Iterator[ScoredText]:
        return chain.from_iterable(self.batches(texts))

    def batches(self, texts: Sequence[Text]) -> Iterator[ScoredTexts]:
        tree = texts.tree if isinstance(texts, TextsOfTree) else prefix_tree(texts)
        sums, carried, first, n_nodes = PathSums(tree), Carried(), 0, len(tree.node_tokens)
        while first < n_nodes:
            try:
                carried, first = self._advance(tree, sums, carried, first)
            except RuntimeError as error:
                self.budget.lower(error)
                continue
            yield sums.answers(first)

    def _advance(self, tree: PrefixTree, sums: PathSums, carried: Carried, first: int) -> tuple[Carried, int]:
        n_left = len(tree.node_tokens) - first
        n_pieces = -(-n_left // self.budget.max_tokens)  # of equal size: a last one of a few tokens costs a whole pass
        piece = Piece(tree, first, first - (-n_left // n_pieces), carried, device_type=self.device.type)
        targets, logprobs, greedy = self.model.score(piece, self.device)
        sums.logprobs[targets], sums.greedy[targets] = logprobs, greedy
        return piece.passed_on, piece.stop


def reference(model: Any, device: torch.device, text: Text) -> tuple[float, bool]:
    """The model's own result on one text in its own row: the ground truth that every scorer must agree with."""
    known = inspect.signature(getattr(model, "get_base_model", lambda: model)().forward).parameters
    tokens, n_tokens = tokens_of(text, device), len(text.tokens)
    # A long text's logits may not fit into memory, so request only some if the model supports it: each is the same
    # whether tokens follow or not.
    step = rows_at_once(model, device) if "logits_to_keep" in known else text.n_scored
    total, greedy = 0.0, True
    with torch.inference_mode():
        for first in range(n_tokens - text.n_scored, n_tokens, step):
            wanted = tokens[first : first + step]
            kept = {"logits_to_keep": len(wanted)} if "logits_to_keep" in known else {}
            logits = model(tokens[None, : first + len(wanted) - 1], **kept).logits[0]
            some, likeliest = summed(logits[-len(wanted) :], wanted)
            total, greedy = total + some, greedy and likeliest
    return total, greedy


def summed(logits: Tensor, tokens: Tensor) -> tuple[float, bool]:
    """Summed log-likelihood of one token per row of logits, and whether each is the most likely."""
    logprobs, greedy = logprobs_and_greedy(logits, torch.arange(len(tokens), device=logits.device), tokens)
    return float(logprobs.double().sum()), bool(greedy.all())


def tokens_of(text: Text, device: torch.device) -> Tensor:
    return index_tensor(text.tokens, device)
